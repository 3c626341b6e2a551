"""The arguments of ``mcp-adapter wrap``."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

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
    from adapter.commands.wrap.flags import name_of_command, name_of_url
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


FALLBACK = "server"
"""The name where the command or the URL says nothing."""

_LONGEST = 40

_PYTHON = ("-c", "-W", "-X")
_NODE = ("-e", "--eval", "-r", "--require", "--import", "--loader", "--env-file")
_CONTAINER = (
    *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "-p", "--publish", "--network", "--name"),
    *("-w", "--workdir", "-u", "--user", "--entrypoint", "--platform", "-l", "--label", "-m", "--memory"),
)

_RUNNERS: Mapping[str, Sequence[str]] = {
    "npx": ("-p", "--package", "-c", "--call", "-w", "--workspace"),
    "npm": ("-p", "--package", "-w", "--workspace", "--prefix"),
    "pnpm": ("-C", "--dir"),
    "yarn": ("-p", "--package"),
    "bunx": (),
    "bun": (),
    "deno": (),
    "node": _NODE,
    "tsx": _NODE,
    "python": _PYTHON,
    "uvx": ("--with", "--python", "-p", "--from", "--index-url", "--with-editable"),
    "uv": ("--with", "--python", "-p", "--from", "--directory", "--project", "--package", "--env-file"),
    "pipx": ("--spec", "--python"),
    "docker": _CONTAINER,
    "podman": _CONTAINER,
    "env": ("-u", "-C"),
    "java": ("-cp", "-classpath"),
}
"""Programs that run another program, and their flags that are followed by a value."""

_SUBCOMMANDS = frozenset(("run", "exec", "dlx", "x", "tool", "start", "serve"))
_GENERIC = frozenset(
    ("index", "main", "server", "cli", "app", "mcp", "mcp-server", "dist", "build", "src", "bin", "lib")
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_AFFIXES = re.compile(r"\A(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-server|-mcp)\Z")


def name_of_command(words: Sequence[str]) -> str:
    """Return a name for the server that a command starts: ``npx -y @playwright/mcp`` is ``playwright``."""
    for word in _programs(words):
        if name := _name_of_program(word):
            return name
    return FALLBACK


def name_of_url(url: str) -> str:
    """Return a name for the server at a URL, from its host: ``https://mcp.example.com/mcp`` is ``example``."""
    host = ""
    try:
        host = urlsplit(url).hostname or ""
        ipaddress.ip_address(host)
    except ValueError:
        labels = [label for label in host.split(".") if label not in ("mcp", "api", "www")] or host.split(".")
        return _plain("-".join(labels[:-1] or labels)) or FALLBACK
    return _plain(host) or FALLBACK


def _programs(words: Sequence[str]) -> Iterator[str]:
    """Yield the word that names the program that is run at last, then the runner itself."""
    valued: Sequence[str] | None = None
    remaining = iter(words)
    for word in remaining:
        runner = PurePath(word).stem.lower().rstrip("0123456789.")
        if word.startswith("-") or _ASSIGNMENT.match(word):
            if valued and word in valued:
                next(remaining, None)
        elif runner in _RUNNERS:
            valued = _RUNNERS[runner]
        elif valued is None or word not in _SUBCOMMANDS:
            yield word
            break
    yield from words[:1]


def _name_of_program(word: str) -> str:
    """The name in ``@scope/package@1.2``, ``image:tag``, ``package==1.0``, ``a.module`` or a path; empty if none is."""
    word = word.split("://")[-1].rstrip("/")
    parts = [_without_affixes(part) for part in re.split(r"[/\\]", word)]
    for part in reversed(parts):
        if part and part not in _GENERIC:
            return part
    return next(filter(None, reversed(parts)), "")


def _without_affixes(part: str) -> str:
    part = re.split(r"[@:\[=<>~!]", part.removeprefix("@"), maxsplit=1)[0]
    part = re.sub(r"\.(?:[cm]?[jt]s|py|sh|exe|jar|git|whl|cmd)\Z", "", part)
    name = _plain(part.replace("_", "-").replace(".", "-"))
    while name not in _GENERIC and (shorter := _AFFIXES.sub("", name)) not in ("", name):
        name = shorter
    return name


def _plain(text: str) -> str:
    """The text as an id of a server may be: letters, digits and ``-``."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:_LONGEST].strip("-")
