"""``mcp-adapter config``: the documentation of the settings file."""

from __future__ import annotations

import argparse


def run(arguments: argparse.Namespace) -> int:
    """Print the topic. Returns the exit status."""
    if arguments.topic == "reference":
        from adapter.settings.reference_page import reference

        print(reference(), end="")
    else:
        from adapter.settings.reference_page import schema_text

        print(schema_text(), end="")
    return 0
