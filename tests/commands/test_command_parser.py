"""The help of commands: examples in each, and no code that it does not need."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.cli import _parser
from tests.commands.running import mcp_adapter

HEAVY = ("adapter.app", "adapter.settings", "asyncio", "pydantic", "shtab", "structlog", "uvloop", "yaml")

IMPORTED = """
import json, sys
from adapter import cli
try:
    cli.run(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
print()
print(json.dumps(list(sys.modules)))
"""


def commands(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[str, ...]]:
    """Every command by its words, with its topics."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield (*words, name)
                yield from commands(command, *words, name)


ALL = list(commands(_parser()))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_command_shows_examples(tmp_path: Path, words: tuple[str, ...]) -> None:
    """They call this command, and its flags are those that it has."""
    done = mcp_adapter(tmp_path, *words, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    examples = done.stdout.partition("examples:\n")[2].splitlines()
    called = f"mcp-adapter {' '.join(words)}"
    assert examples and any(called in line for line in examples)
    for line in examples:
        example = (
            line.partition("mcp-adapter ")[2]
            .partition(" | ")[0]
            .partition(" > ")[0]
            .partition('"')[0]
            .partition(")")[0]
        )
        _parser().parse_args(example.split())


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["serve", "--help"], ["pins", "diff", "--help"]]
)
def test_help_and_version_load_no_settings(arguments: list[str]) -> None:
    """They are answered before anybody waits: the libraries and the adapter itself are not imported for them."""
    command = [sys.executable, "-c", IMPORTED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    modules = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in modules if name.startswith(HEAVY)] == []
