"""The arguments of ``mcp-adapter wrap``."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from adapter.commands.command_parser import CommandParser, Commands, add_command


def add_wrap(commands: Commands) -> None:
    """Add the command."""
    text = "serve servers at one URL, without a settings file: programs, or servers on the network"
    wrap = add_command(commands, "wrap", text, "commands.wrap.flags")
    wrap.add_argument(
        "server",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND … | URL",
        help="the program with its arguments, or the URL of a server; behind another -- the next one",
    )
    wrap.add_argument("--port", type=int, help="port on 127.0.0.1 (default: 8932); 0 takes a free one")
    wrap.add_argument(
        "--name",
        metavar="ID",
        help="id of the server, the end of its URL (default: found; all for several servers)",
    )
    wrap.add_argument("--root", type=Path, metavar="DIR", help="where files are kept (default: ./data/ID)")
    text = "environment variable for the program, which gets few others; without a value that of this shell"
    wrap.add_list("--env", "NAME[=VALUE]", text)
    wrap.add_list("--header", "'NAME: VALUE'", "header sent to the URL")
    wrap.add_switch("--oauth", "people sign in at the URL: a first call is answered with a link")
    wrap.add_switch(
        "--one-session", "all clients share one session at each server, and find what it kept in memory"
    )
    for flag, verb in (("--consume", "reads"), ("--produce", "writes")):
        text = f"this argument names a file that the tool {verb}; may be repeated"
        wrap.add_list(flag, "TOOL:ARG", text)
    wrap.add_switch("--auto", "handle all arguments as files that look like one")
    wrap.add_argument("--save", type=Path, metavar="FILE", help="also write a settings file for serve")
    wrap.add_switch("--force", "overwrite the file of --save")
    wrap.set_defaults(parser=wrap)


def run(arguments: argparse.Namespace) -> int:
    """Read what stands behind the flags, and run the command. Returns the exit status."""
    parser: CommandParser = arguments.parser
    try:
        parts = split_servers(arguments.server)
    except ValueError as error:
        parser.error(f"a command in quotes cannot be read: {error}")
    if not parts:
        parser.error(
            "name a program behind --, or a URL; for example: mcp-adapter wrap -- npx -y @playwright/mcp"
        )
    if _is_url(parts[0][0]):
        # Flags may stand behind a URL, which takes no arguments of its own.
        arguments = parser.parse_args(parts[0][1:], arguments)
        parts[0][1:] = arguments.server
    for first, *extra in parts:
        if _is_url(first) and extra:
            parser.error(f"a URL stands alone: {extra[0]}")
    from adapter.commands.wrap import command

    return command.run(_wrapped(arguments, parts), arguments)


def split_servers(words: Sequence[str]) -> list[list[str]]:
    """Split words into those of each server: ``--`` begins the next one, or stands before the first.

    It belongs to a program instead that only runs others and has not named one yet (``npm exec -- package``), or where
    flags or nothing follow. A command that is one word, in quotes, keeps what it has. Raises ValueError for quotes
    that do not end.
    """
    parts: list[list[str]] = [[]]
    for at, word in enumerate(words):
        following = words[at + 1 : at + 2]
        if word == "--" and _begins_server(parts[-1], following):
            parts.append([])
        else:
            parts[-1].append(word)
    return [_plain_words(part) for part in parts if part]


def _begins_server(before: Sequence[str], following: Sequence[str]) -> bool:
    if not before:
        return True
    return bool(following) and not following[0].startswith("-") and _program(before) is not None


def _plain_words(part: list[str]) -> list[str]:
    # Late: help does without it.
    import shutil

    if len(part) > 1 or len(part[0].split()) < 2 or shutil.which(part[0]) is not None:
        return part
    return shlex.split(part[0])


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _wrapped(arguments: argparse.Namespace, parts: Sequence[Sequence[str]]) -> Any:
    from adapter.commands.wrap.wrapped_settings import WrappedServer, WrappedServers, home_of

    parser, urls = arguments.parser, [_is_url(part[0]) for part in parts]
    _check_flags(arguments, urls)
    given = dict(_pair(each, "=", "--env NAME=VALUE", parser) for each in arguments.env if "=" in each)
    inherited = [_present(each, parser) for each in arguments.env if "=" not in each]
    headers = dict(_pair(each, ":", "--header 'NAME: VALUE'", parser) for each in arguments.header)
    merged = None if len(parts) == 1 else arguments.name or _MERGED
    names = names_of(parts, merged) if arguments.name is None or merged else [arguments.name]
    servers = [
        WrappedServer(name, url=part[0], headers=headers, oauth=arguments.oauth)
        if is_url
        else WrappedServer(name, part, variables=given, inherited=inherited)
        for name, part, is_url in zip(names, parts, urls, strict=True)
    ]
    id_ = merged or names[0]
    root = arguments.root or home_of(id_)
    return WrappedServers(id_, root, _port(arguments.port), servers, arguments.one_session)


def _check_flags(arguments: argparse.Namespace, urls: Sequence[bool]) -> None:
    """End with an error for a flag that is not for these servers; ``urls`` tells which are URLs."""
    parser, programs = arguments.parser, urls.count(False)
    if arguments.env and programs != 1:
        cure = "write env NAME=VALUE before a program" if programs else "a URL takes --header"
        parser.error(f"--env is for one program; {cure}")
    if arguments.header and urls.count(True) != 1:
        cure = "name the headers in the file of --save" if any(urls) else "a program takes --env"
        parser.error(f"--header is for one URL; {cure}")
    names_tools = arguments.auto or arguments.consume or arguments.produce
    if arguments.oauth and (urls != [True] or names_tools):
        parser.error(
            "--oauth is for one URL, without --auto, --consume and --produce: its tools are known when somebody has "
            "signed in. Name them in the file of --save"
        )
    if names_tools and len(urls) > 1:
        parser.error(
            "--auto, --consume and --produce are for one server. Name its files in the file of --save"
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


_MERGED = "all"
"""The id of a mount of several servers."""

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


def names_of(parts: Sequence[Sequence[str]], taken: str | None = None) -> list[str]:
    """Return a name for each of these commands and URLs; none is ``taken``."""
    names: list[str] = []
    for part in parts:
        plain = name = name_of_url(part[0]) if _is_url(part[0]) else name_of_command(part)
        number = 2
        while name in (*names, taken and taken.lower()):
            name, number = f"{plain}-{number}", number + 1
        names.append(name)
    return names


def name_of_command(words: Sequence[str]) -> str:
    """Return a name for the server that a command starts: ``npx -y @playwright/mcp`` is ``playwright``."""
    for word in (_program(words) or "", *words[:1]):
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


def _program(words: Sequence[str]) -> str | None:
    """The word that names the program that is run at last; None where there are only programs that run another."""
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
            return word
    return None


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
