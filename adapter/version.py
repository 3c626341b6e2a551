"""The version of the package, as clients and the command line see it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version(otherwise: str = "0") -> str:
    """Return the version of the installed package, or ``otherwise`` if it runs from a source tree."""
    try:
        return version("mcp-file-adapter")
    except PackageNotFoundError:
        return otherwise
