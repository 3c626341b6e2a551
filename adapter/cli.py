"""The command line: argv to settings to what was asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from adapter.commands.command_parser import (
    JSON,
    CommandParser,
    Commands,
    add_command,
    add_settings_flags,
    add_topics,
    failed,
    settings_error,
)
from adapter.commands.flags import add_commands
from adapter.commands.wrap.flags import add_wrap
from adapter.extras import extra_of, missing_extras
from adapter.version import VERSION

OK, BAD_SETTINGS, INTERRUPTED = 0, 2, 130

# Each command imports what it runs when it runs: --version, --help and wrong arguments are answered without the
# settings, and the commands that only read settings without servers and clients.


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command of the arguments and return its exit status: 2 for settings that cannot be used.

    Wrong arguments raise SystemExit(2), as argparse does.
    """
    parser = _parser()
    given = list(sys.argv[1:] if argv is None else argv)
    if not given:
        parser.print_help(sys.stderr)
        return BAD_SETTINGS
    arguments = parser.parse_args(given)
    arguments.argv = given
    try:
        status = int(import_module(f"adapter.{arguments.runs}").run(arguments))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as head does. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except ModuleNotFoundError as missing:
        extra = extra_of(missing)
        if extra is None:
            raise
        return failed(f"{given[0]} {missing_extras(extra)}", BAD_SETTINGS)
    except settings_error() as refused:
        print(f"mcp-adapter: the settings cannot be used:\n{refused}", file=sys.stderr)
        return BAD_SETTINGS


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="mcp-adapter",
        description="Reverse proxy for MCP servers that also moves files.",
        epilog="New here? mcp-adapter demo shows it, and mcp-adapter wrap -- COMMAND serves an MCP server of yours.",
    )
    parser.add_argument("--version", action="version", version=f"mcp-adapter {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_wrap(commands)
    _add_init(commands)
    _add_serve(commands)
    _add_check(commands)
    _add_plan(commands)
    add_commands(commands)
    _add_config(commands)
    _add_completion(commands, parser)
    _add_demo(commands)
    return parser


def _add_init(commands: Commands) -> None:
    init = add_command(commands, "init", "write a settings file, empty or from the servers of an MCP client")
    init.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("config.yaml"),
        metavar="FILE",
        help="the file to write (default: %(default)s); - prints it",
    )
    init.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="configuration of an MCP client (Claude, Cursor, VS Code …) whose servers are taken; - reads "
        "standard input",
    )
    init.add_switch("--force", "overwrite a file that exists")
    init.add_switch(
        "--schema", "also write the JSON Schema beside it, with which editors complete and check keys"
    )


def _add_serve(commands: Commands) -> None:
    serve = add_command(commands, "serve", "run the adapter")
    add_settings_flags(serve)
    serve.add_switch("--watch", "use changed settings and scripts at once, also such that need a new process")
    serve.add_switch(
        "--retry-start",
        "stay up when the start fails, with failing readiness and the reason in /healthz, and try again "
        "(also: MCP_ADAPTER_RETRY_START=1)",
    )
    # The number of starts that have failed before this one.
    serve.add_argument("--failed-starts", type=int, default=0, help=argparse.SUPPRESS)
    # What the command starts itself as where there are workers: the process is the same, its memory is not.
    serve.add_switch("--supervise", argparse.SUPPRESS)
    # Of a process that serves, which has another one read its settings again.
    serve.add_switch("--read-settings", argparse.SUPPRESS)


def _add_check(commands: Commands) -> None:
    check = add_command(commands, "check", "find problems of the settings, without serving them")
    add_settings_flags(check)
    check.add_switch("--effective", "print all settings as they hold, with secrets masked")
    check.add_switch(
        "--connect",
        "also connect to each server, issuer of tokens and Redis; exits with 1 if one is unreachable",
    )
    check.add_switch("--json", JSON)


def _add_plan(commands: Commands) -> None:
    plan = add_command(commands, "plan", "show the stages of a tool's calls")
    plan.add_argument("server", metavar="SERVER", help="id of the server")
    plan.add_argument(
        "tool", nargs="?", metavar="TOOL", help="name of the tool (default: all configured tools)"
    )
    add_settings_flags(plan)
    plan.add_switch("--json", JSON)


def _add_config(commands: Commands) -> None:
    topics = add_topics(commands, "config", "show documentation of the settings file")
    add_command(topics, "reference", "print every setting as a Markdown page")
    add_command(topics, "schema", "print a JSON Schema of the settings file, for editors")


def _add_completion(commands: Commands, parser: CommandParser) -> None:
    completion = add_command(commands, "completion", "print a script that completes mcp-adapter in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(parser=parser)


def _add_demo(commands: Commands) -> None:
    text = "run the adapter in front of a demo server on loopback"
    demo = add_command(commands, "demo", text, "demo")
    demo.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    demo.add_argument("--port", type=int, default=8932, help="port to bind (default: %(default)s)")
