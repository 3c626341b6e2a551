"""The version of the package, as clients and the command line see it. The build reads it from here."""

from __future__ import annotations

# A constant: importlib.metadata, which could look it up, takes 20 ms and 1.7 MiB.
VERSION = "0.1.0"
