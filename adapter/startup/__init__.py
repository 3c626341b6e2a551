"""The start of the process, as those see it who wait for it.

``failure`` has the reasons why a start failed, ``waiting`` stays up with failing readiness until a later one succeeds,
and ``systemd`` tells a service manager. The supervisor of workers imports the first and the last, so these two import
nothing of the adapter.
"""
