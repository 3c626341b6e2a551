"""The parser of the command line, which is made at every start and seldom asked for help; examples to paste, and the
flags of commands that read settings.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from adapter.settings.root import Settings
    from adapter.settings.servers.server import ServerSettings


class CommandParser(argparse.ArgumentParser):
    """A parser whose commands, too, have help as wide as the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=HelpText, **options)

    def add_switch(self, name: str, text: str) -> None:
        """Add a flag without a value; ``text`` is its help."""
        self.add_argument(name, action="store_true", help=text)

    def add_list(self, name: str, metavar: str, text: str, kind: Callable[[str], object] = str) -> None:
        """Add a flag that may be given several times, and whose values are a list."""
        self.add_argument(name, action="append", default=[], type=kind, metavar=metavar, help=text)


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
        "mcp-adapter wrap -- npx -y @playwright/mcp -- uvx mcp-server-git",
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
    "connect": (
        "mcp-adapter connect https://mcp.example.com/mcp/demo",
        "mcp-adapter connect https://mcp.example.com/mcp/demo --folder ~/Shared --save-to ~/Saved",
        "mcp-adapter connect https://mcp.example.com/mcp/demo --header 'X-Team:${TEAM}'",
    ),
    "install": (
        "mcp-adapter install claude-code",
        "mcp-adapter install cursor --url http://127.0.0.1:8932/mcp/demo --print",
        "mcp-adapter install claude-desktop --url https://mcp.example.com/mcp/demo --stdio --folder ~/Shared",
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


# --- settings ----------------------------------------------------------------------------------------------


VARIABLE = "MCP_ADAPTER_CONFIG"
"""The environment variable that names the settings file."""

DEFAULT = Path("config.yaml")
"""The settings file where none is named: one in the working directory."""

_NO_FILE = (
    f"there is no {DEFAULT} here: mcp-adapter init writes one, and --config or {VARIABLE} names another"
)


def add_settings_flags(command: CommandParser) -> None:
    """Add ``--config`` and the flags that override settings."""
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the settings file (default: ${VARIABLE}, or {DEFAULT} in the working directory)",
    )
    command.add_argument("--host", metavar="H", help="overrides core.host")
    command.add_argument("--port", metavar="P", help="overrides core.port")
    command.add_argument("--log-level", metavar="L", help="overrides core.log_level")
    text = "overrides any setting, for example --set sessions.max_active=100; may be repeated"
    command.add_list("--set", "KEY=VALUE", text)


def load_settings(arguments: argparse.Namespace) -> Settings:
    """The settings that the flags of ``add_settings_flags`` mean. Raises SettingsError.

    Where no file is named, the one that is found becomes ``arguments.config``, and standard error says so.
    """
    from adapter.settings.file.load import load
    from adapter.settings.section import Problem, SettingsError

    overrides = overrides_of(arguments)
    if arguments.config is None:
        arguments.config = _found()
    try:
        return load(arguments.config, overrides=overrides)
    except SettingsError as refused:
        if arguments.config is None and any(problem.path == "servers" for problem in refused.problems):
            raise SettingsError([*refused.problems, Problem("", _NO_FILE)]) from None
        raise


def servers_named(settings: Settings, server: str | None) -> list[ServerSettings]:
    """The servers of the settings, or the one of this id. Raises SettingsError where there is none."""
    found = [each for each in settings.servers if server in (None, each.id)]
    if not found:
        from adapter.rules.text.unicode import shown
        from adapter.settings.section import Problem, SettingsError

        known = ", ".join(each.id for each in settings.servers)
        sentence = f"no server has the id {shown(str(server), 64)}; there are {known}"
        raise SettingsError([Problem("server", sentence)])
    return found


def local_address(settings: Settings) -> str:
    """Host and port at which this machine reaches the adapter."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.core.host, settings.core.host)  # noqa: S104 (nothing is bound here)
    return f"{f'[{host}]' if ':' in host else host}:{settings.core.port}"


_LONGEST_REASON = 20_000


def failed(why: str, status: int = 1) -> int:
    """Tell on standard error why a command fails, maybe in a stranger's words; returns its exit status."""
    # Late, as above: few commands fail.
    from adapter.rules.text.unicode import hanging

    print(hanging(f"mcp-adapter: {why[:_LONGEST_REASON]}"), file=sys.stderr)
    return status


def settings_error() -> type[Exception]:
    """SettingsError. Only a command that failed asks for it; the others need not load the classes of settings."""
    from adapter.settings.section import SettingsError

    return SettingsError


def settings_file() -> Path | None:
    """The settings file of the environment or of the working directory, None if there is neither."""
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        return Path(named)
    return DEFAULT if DEFAULT.exists() else None


def _found() -> Path | None:
    """The same; standard error says which one it is."""
    found = settings_file()
    if found is not None:
        where = f", which {VARIABLE} names" if os.environ.get(VARIABLE, "").strip() else " in this folder"
        print(f"mcp-adapter: using {found}{where}", file=sys.stderr)
    return found


def overrides_of(arguments: argparse.Namespace) -> dict[str, str]:
    from adapter.settings.section import Problem, SettingsError

    overrides: dict[str, str] = {}
    for text in arguments.set:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise SettingsError([Problem("--set", f"write KEY=VALUE; {key or 'this'} has no value")])
        overrides[key.strip()] = value
    for key in ("host", "port", "log_level"):
        value = getattr(arguments, key)
        if value is not None:
            overrides[f"core.{key}"] = value
    return overrides
