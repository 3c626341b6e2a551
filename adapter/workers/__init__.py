"""Several processes that serve one port: a supervisor that handles no request, and its workers.

``supervisor`` starts and watches workers, and replaces them one by one. ``fleet`` has their processes and the signals
to the supervisor, ``replacement`` their places and what is under way there, ``worker`` is what each of them does, and
``serve_plan`` has the settings that all of them serve. The supervisor imports nothing that serving needs, so that it
stays small; a worker imports it after the fork.
"""
