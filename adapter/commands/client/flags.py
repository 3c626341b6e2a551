"""The arguments of ``mcp-adapter tools`` and ``mcp-adapter call``."""

from __future__ import annotations

import argparse
from pathlib import Path

from adapter.commands.command_parser import JSON, CommandParser, Commands, add_command


def add_client(commands: Commands) -> None:
    """Add both commands."""
    tools = add_command(commands, "tools", "list the tools of any MCP server", "commands.client.tools")
    tools.add_argument("url", metavar="URL", help="address of the server, such as a mount of the adapter")
    tools.add_argument("tool", nargs="?", metavar="TOOL", help="show all about this one")
    add_client_flags(tools)
    text = "call a tool of any MCP server, with files"
    call = add_command(commands, "call", text, "commands.client.call")
    call.add_argument("url", metavar="URL", help="address of the server, such as a mount of the adapter")
    call.add_argument("tool", metavar="TOOL", help="name of the tool, as mcp-adapter tools shows it")
    call.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="NAME=VALUE",
        help="arguments: name=value has the type that the tool takes, name=@path uploads a file, name:=JSON is "
        "JSON, and name=@@text a text that begins with @",
    )
    add_call_flags(call)


def add_call_flags(parser: CommandParser) -> None:
    """Add the flags of ``call``, which may also stand behind the arguments of the tool."""
    parser.add_argument(
        "--save-to", type=Path, metavar="DIR", help="save the files of the result in this folder"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="how long to wait for the result (default: %(default)g)",
    )
    add_client_flags(parser)


def add_client_flags(parser: CommandParser) -> None:
    """Add the flags of both commands."""
    parser.add_argument(
        "--token",
        help="token that is sent to the URL (default: $MCP_ADAPTER_TOKEN); without one people sign in",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="header sent to the URL"
    )
    parser.add_switch("--json", JSON)
