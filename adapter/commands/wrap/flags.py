"""The arguments of ``mcp-adapter wrap``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from adapter.commands.command_parser import CommandParser, Commands, add_command


def add_wrap(commands: Commands) -> None:
    """Add the command."""
    text = "serve one server at a URL, without a settings file: a program, or a server on the network"
    wrap = add_command(commands, "wrap", text, "commands.wrap.flags")
    wrap.add_argument(
        "server",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND … | URL",
        help="the program with its arguments, or the URL of a server",
    )
    wrap.add_argument("--port", type=int, help="port on 127.0.0.1 (default: 8932); 0 takes a free one")
    wrap.add_argument("--name", metavar="ID", help="id of the server, the end of its URL (default: found)")
    wrap.add_argument("--root", type=Path, metavar="DIR", help="where files are kept (default: ./data/ID)")
    wrap.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="environment variable for the program, which gets few others; without a value that of this shell",
    )
    wrap.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="header sent to a URL"
    )
    wrap.add_switch("--oauth", "people sign in at the URL: a first call is answered with a link")
    wrap.add_argument(
        "--consume",
        action="append",
        default=[],
        metavar="TOOL:ARG",
        help="this argument names a file that the tool reads",
    )
    wrap.add_argument(
        "--produce",
        action="append",
        default=[],
        metavar="TOOL:ARG",
        help="this argument names a file that the tool writes",
    )
    wrap.add_switch("--auto", "handle all arguments as files that look like one")
    wrap.add_argument("--save", type=Path, metavar="FILE", help="also write a settings file for serve")
    wrap.add_switch("--force", "overwrite the file of --save")
    wrap.set_defaults(parser=wrap)


def run(arguments: argparse.Namespace) -> int:
    """Read what stands behind the flags, and run the command. Returns the exit status."""
    parser: CommandParser = arguments.parser
    words = _words(arguments.server)
    if len(words) > 1 and _is_url(words[0]):
        # Flags may stand behind a URL, which takes no arguments of its own.
        arguments = parser.parse_args(words[1:], arguments)
        if extra := _words(arguments.server):
            parser.error(f"a URL stands alone: {extra[0]}")
        words = words[:1]
    if not words:
        parser.error(
            "name a program behind --, or a URL; for example: mcp-adapter wrap -- npx -y @playwright/mcp"
        )
    from adapter.commands.wrap import command

    return command.run(_server(arguments, words), arguments)


def _words(server: list[str]) -> list[str]:
    return server[1:] if server[:1] == ["--"] else server


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _server(arguments: argparse.Namespace, words: list[str]) -> Any:
    from adapter.commands.wrap.server_name import name_of_command, name_of_url
    from adapter.commands.wrap.wrapped_settings import WrappedServer

    url = words[0] if _is_url(words[0]) else None
    parser = arguments.parser
    if url is not None and arguments.env:
        parser.error("--env is for programs; a URL takes --header")
    if url is None and arguments.header:
        parser.error("--header is for a URL; a program takes --env")
    if arguments.oauth and (url is None or arguments.auto or arguments.consume or arguments.produce):
        parser.error(
            "--oauth is for a URL, without --auto, --consume and --produce: its tools are known when somebody has "
            "signed in. Name them in the file of --save"
        )
    id_ = arguments.name or (name_of_command(words) if url is None else name_of_url(url))
    given = dict(_pair(each, "=", "--env NAME=VALUE", parser) for each in arguments.env if "=" in each)
    return WrappedServer(
        id_,
        arguments.root or Path("data") / id_,
        _port(arguments.port),
        command=() if url is not None else words,
        url=url,
        variables=given,
        inherited=[_present(each, parser) for each in arguments.env if "=" not in each],
        headers=dict(_pair(each, ":", "--header 'NAME: VALUE'", parser) for each in arguments.header),
        oauth=arguments.oauth,
    )


def _port(port: int | None) -> int | None:
    if port != 0:
        return port
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _pair(text: str, mark: str, form: str, parser: CommandParser) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name.strip():
        parser.error(f"write {form}")
    return name.strip(), value if mark == "=" else value.strip()


def _present(name: str, parser: CommandParser) -> str:
    if name not in os.environ:
        parser.error(f"--env {name}: this variable is not set here; set it, or write --env {name}=VALUE")
    return name
