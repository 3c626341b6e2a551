"""The connection of a command to any MCP server, with the token, the headers or the sign-in of its person."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapter.commands.client.terminal import Terminal
from adapter.commands.file_writing import write_new
from adapter.commands.upload import authorization
from adapter.rules.tools.call_arguments import WrongArgument
from adapter.upstream.client_connection import PATIENCE, McpServer, ServerRefused, connected
from adapter.upstream.client_sign_in import TerminalSignIn

_MOST_NAMES = 30


@asynccontextmanager
async def opened(
    options: argparse.Namespace, terminal: Terminal, patience: float = PATIENCE
) -> AsyncIterator[McpServer]:
    """Connect to the URL of the options. Raises ServerRefused, WrongArgument."""
    # The SDK logs what strangers send, as it came.
    logging.disable(logging.CRITICAL)
    headers = _headers(options)
    sign_in = None
    if "authorization" not in map(str.lower, headers):
        file = _file_of(options.url)
        sign_in = TerminalSignIn(
            options.url, terminal.sign_in, _kept(file), lambda content: _keep(file, content)
        )
    async with connected(options.url, headers, terminal, sign_in, patience) as server:
        yield server


def named(tools: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The definition of a tool. Raises WrongArgument, which tells the names that there are."""
    found = next((tool for tool in tools if tool["name"] == name), None)
    if found is None:
        names = ", ".join(tool["name"][:100] for tool in tools[:_MOST_NAMES]) or "no tools at all"
        more = " …: mcp-adapter tools URL lists all" if len(tools) > _MOST_NAMES else ""
        raise WrongArgument(f"The server has no tool {name}; it has {names}{more}.")
    return found


def _headers(options: argparse.Namespace) -> dict[str, str]:
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
