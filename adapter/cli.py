"""The command line: argv to settings to what was asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from adapter.commands.command_parser import CommandParser, failed, settings_error
from adapter.commands.flags import add_commands
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
    add_commands(parser)
    return parser
