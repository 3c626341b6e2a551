"""Settings: one module per section of the file, each field with its name, type, default and a sentence.

root.py joins the sections; load.py reads a file, the environment and flags into it; consistency.py judges
what no single field can; features.py lists what may be asked for but is not there yet; reference.py writes
the reference page from the models and masking.py shows settings without their secrets.
"""
