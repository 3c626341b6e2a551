"""The parser of the command line, which is made at every start and seldom asked for help."""

from __future__ import annotations

import argparse
import os
from typing import Any, TypeAlias


class CommandParser(argparse.ArgumentParser):
    """A parser whose commands, too, have help as wide as the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=HelpText, **options)

    def add_switch(self, name: str, text: str) -> None:
        """Add a flag without a value; ``text`` is its help."""
        self.add_argument(name, action="store_true", help=text)


class HelpText(argparse.HelpFormatter):
    """Help as wide as the terminal. argparse's own loads shutil, with its compressors, for that at every start."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, width=_columns() - 2, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # Text of several lines is examples to paste.
        return text if "\n" in text else super()._fill_text(text, width, indent)


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
"""The commands of a parser, to which another is added."""


def _columns() -> int:
    """The width of the terminal, 80 where there is none."""
    try:
        return int(os.environ["COLUMNS"]) or 80
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80
