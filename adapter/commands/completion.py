"""``mcp-adapter completion``: a script that completes commands, flags, choices and file names in a shell."""

from __future__ import annotations

import argparse

import shtab


def run(arguments: argparse.Namespace) -> int:
    """Print the script for ``bash``, ``zsh`` or ``fish`` that completes the arguments of ``arguments.parser``."""
    _complete_files(arguments.parser)
    print(shtab.complete(arguments.parser, arguments.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Let every argument that is shown as FILE complete file names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command)
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads this attribute
