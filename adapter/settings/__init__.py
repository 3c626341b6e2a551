"""Settings: one module per group of sections of the file; each field has a name, a type, a default and a sentence.

``section`` has the base class and the kinds of values, ``root`` joins the sections, ``servers`` has those of one
server. ``file`` reads a file, the environment and flags; ``consistency`` checks values against each other.
``reference_page`` writes docs/settings.md from the models, and shows settings without their secrets.
"""
