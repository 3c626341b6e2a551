"""A short name for a server, from the command that starts it or from its URL. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from urllib.parse import urlsplit

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
