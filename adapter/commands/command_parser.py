"""The parser of the command line, which is made at every start and seldom asked for help; examples to paste."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
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


# --- commands ------------------------------------------------------------------------------------------------------

EXAMPLES: dict[str, Sequence[str]] = {
    "wrap": (
        "mcp-adapter wrap -- npx -y @playwright/mcp --headless",
        "mcp-adapter wrap --auto --save config.yaml -- uvx mcp-server-git",
        "mcp-adapter wrap https://mcp.example.com/mcp --port 9000",
    ),
    "init": (
        "mcp-adapter init",
        "mcp-adapter init --from ~/.cursor/mcp.json",
        "mcp-adapter init --from .vscode/mcp.json adapter.yaml --schema",
    ),
    "serve": (
        "mcp-adapter serve",
        "mcp-adapter serve --config adapter.yaml --port 9000",
        "mcp-adapter serve --watch --set core.log_level=debug",
    ),
    "check": (
        "mcp-adapter check",
        "mcp-adapter check --connect",
        "mcp-adapter check --effective --config adapter.yaml",
        "mcp-adapter check --json | jq .problems",
    ),
    "plan": ("mcp-adapter plan browser", "mcp-adapter plan browser browser_take_screenshot --json"),
    "doctor": (
        "mcp-adapter doctor",
        "mcp-adapter doctor --server demo --tool count_words",
        "mcp-adapter doctor --json | jq .",
    ),
    "upload": (
        "mcp-adapter upload photo.png --url http://127.0.0.1:8932/mcp/demo",
        "mcp-adapter upload first.pdf second.pdf --url http://127.0.0.1:8932/mcp/demo --json",
    ),
    "download": (
        "mcp-adapter download artifact://sessions/… --url http://127.0.0.1:8932/mcp/demo",
        "mcp-adapter download http://127.0.0.1:8932/artifacts/… --output chart.png",
    ),
    "tools": (
        "mcp-adapter tools http://127.0.0.1:8932/mcp/demo",
        "mcp-adapter tools https://mcp.example.com/mcp search",
        "mcp-adapter tools http://127.0.0.1:8932/mcp/demo --json | jq '.[].name'",
    ),
    "call": (
        "mcp-adapter call http://127.0.0.1:8932/mcp/demo count_words path=@letter.txt",
        "mcp-adapter call https://mcp.example.com/mcp search query=tea limit=5 --json",
        "mcp-adapter call http://127.0.0.1:8932/mcp/demo draw_chart values:='[1, 2]' --save-to charts",
    ),
    "install": (
        "mcp-adapter install claude-code",
        "mcp-adapter install cursor --url http://127.0.0.1:8932/mcp/demo --print",
        "mcp-adapter install cursor --remove --name demo",
    ),
    "config": ("mcp-adapter config reference | less", "mcp-adapter config schema > config.schema.json"),
    "config reference": ("mcp-adapter config reference | less",),
    "config schema": ("mcp-adapter config schema > config.schema.json",),
    "pins": ("mcp-adapter pins diff", "mcp-adapter pins accept browser"),
    "pins list": ("mcp-adapter pins list", "mcp-adapter pins list browser --json"),
    "pins diff": ("mcp-adapter pins diff browser", "mcp-adapter pins diff --seen"),
    "pins check": ("mcp-adapter pins check", "mcp-adapter pins check --json > drift.json"),
    "pins accept": ("mcp-adapter pins accept browser", "mcp-adapter pins accept --yes"),
    "pins export": ("mcp-adapter pins export", "mcp-adapter pins export browser --output -"),
    "grants": ("mcp-adapter grants list", "mcp-adapter grants revoke notes alice"),
    "grants list": ("mcp-adapter grants list", "mcp-adapter grants list notes --json"),
    "grants revoke": ("mcp-adapter grants revoke notes alice", "mcp-adapter grants revoke notes all"),
    "completion": (
        'eval "$(mcp-adapter completion bash)"    # in ~/.bashrc',
        "mcp-adapter completion zsh > ~/.zfunc/_mcp-adapter",
        "mcp-adapter completion fish > ~/.config/fish/completions/mcp-adapter.fish",
    ),
    "demo": ("mcp-adapter demo", "mcp-adapter demo --port 9000"),
}
"""Commands to paste, by the words of the command."""


JSON = "print JSON; the exit status is the same"
"""The help of ``--json``."""


def add_command(commands: Commands, name: str, text: str, runs: str | None = None) -> CommandParser:
    """Add a command whose help is ``text`` (one sentence in lower case, without a full stop) and its examples.

    ``run`` of the module ``runs`` of the adapter is the command; None: of the module of the command's first word.
    """
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    words = command.prog.split()[1:]
    command.epilog = "\n  ".join(("examples:", *EXAMPLES[" ".join(words)]))
    command.set_defaults(runs=runs or f"commands.{words[0]}")
    return command


def add_topics(commands: Commands, name: str, text: str) -> Commands:
    """Add a command that has topics, to which these are added; the one that is called is ``arguments.topic``."""
    command = add_command(commands, name, text)
    return command.add_subparsers(title="topics", required=True, metavar="TOPIC", dest="topic")
