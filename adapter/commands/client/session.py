"""The connection of a command to any MCP server, with the token, the headers or the sign-in of its person."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from adapter.commands.client.terminal import Terminal
from adapter.commands.file_writing import write_new
from adapter.commands.upload import authorization
from adapter.rules.text.unicode import shown
from adapter.rules.tools.call_arguments import WrongArgument
from adapter.upstream.client_connection import PATIENCE, McpServer, ServerRefused, connected
from adapter.upstream.client_sign_in import PATIENCE as SIGN_IN_PATIENCE
from adapter.upstream.client_sign_in import TerminalSignIn

_MOST_NAMES = 30
_LOCK_PAUSE = 0.25


@asynccontextmanager
async def opened(
    options: argparse.Namespace, terminal: Terminal, patience: float = PATIENCE
) -> AsyncIterator[McpServer]:
    """Connect to the URL of the options. Raises ServerRefused, WrongArgument."""
    # The SDK logs what strangers send, as it came.
    logging.disable(logging.CRITICAL)
    headers = headers_of(options)
    sign_in = None
    if "authorization" not in map(str.lower, headers):
        sign_in = sign_in_at(options.url, terminal)
    async with connected(options.url, headers, terminal, sign_in, patience) as server:
        yield server


def sign_in_at(url: str, terminal: Terminal) -> TerminalSignIn:
    """The sign-in at a server, which is kept for the next command."""
    file = _file_of(url)

    def keep(content: bytes) -> None:
        _keep(file, content)

    return TerminalSignIn(url, terminal.sign_in, lambda: _kept(file), keep, str(file), lambda: _alone(file))


def named(tools: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The definition of a tool. Raises WrongArgument, which tells the names that there are."""
    found = next((tool for tool in tools if tool["name"] == name), None)
    if found is None:
        names = ", ".join(shown(tool["name"], 100) for tool in tools[:_MOST_NAMES]) or "no tools at all"
        more = " …: mcp-adapter tools URL lists all" if len(tools) > _MOST_NAMES else ""
        raise WrongArgument(f"The server has no tool {name}; it has {names}{more}.")
    return found


def headers_of(options: argparse.Namespace) -> dict[str, str]:
    """The fields that are sent to the URL of the options. Raises WrongArgument."""
    headers = {}
    for text in options.header:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise WrongArgument("Write --header 'NAME: VALUE'.")
        headers[name.strip()] = value.strip()
    if "authorization" in map(str.lower, headers):
        return headers
    return headers | authorization(options.token)


def _file_of(url: str) -> Path:
    """Where the tokens of a sign-in are kept: one file for each address, which only its owner reads."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    name = hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()[:32]
    return data / "mcp-adapter" / "sign-ins" / f"{name}.json"


@asynccontextmanager
async def _alone(file: Path) -> AsyncIterator[None]:
    """Keep other processes out of a sign-in at the same server. Where no lock is to be had, they are not.

    Raises ServerRefused where another one takes too long.
    """
    async with AsyncExitStack() as leaving:
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            leaving.callback(os.close, lock)
            # Waiting for it would hold a thread, and with that the end of the process.
            for _ in range(int(SIGN_IN_PATIENCE / _LOCK_PAUSE)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_PAUSE)
            else:
                # Both would use one refresh token, which ends the sign-in where these are used once.
                raise ServerRefused("Another command is still signing in at this server: try again.")
        yield


def _kept(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _keep(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f".{secrets.token_hex(8)}.part")
        write_new(draft, content, 0o600)
        draft.replace(file)
    except OSError as failure:
        raise ServerRefused(f"{file} cannot be written: {failure.strerror}.") from None
