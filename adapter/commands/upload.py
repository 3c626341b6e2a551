"""``mcp-adapter upload``: put files where the tools of a server can read them, and print their handles."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from adapter.commands.command_parser import failed
from adapter.commands.progress_bar import ProgressBar
from adapter.rules.text.unicode import escaped
from adapter.upstream.client_connection import McpServer, ServerRefused, connected
from adapter.upstream.transfers import TransferFailed, upload

HELPER = "_get_upload_url"
"""The end of the name of the tool that gives out upload URLs."""


def run(options: argparse.Namespace) -> int:
    """Upload the files, all of them or none; print a handle for each, in their order. Return the exit status."""
    try:
        uploads = asyncio.run(_uploaded(options))
    except (TransferFailed, ServerRefused) as failure:
        return failed(str(failure))
    if options.json:
        print(orjson.dumps(uploads, option=orjson.OPT_INDENT_2).decode())
    else:
        for each in uploads:
            print(escaped(str(each["upload_handle"])))
    return 0


def authorization(token: str | None) -> dict[str, str]:
    """The header fields for a token: the one given, else that of the environment's MCP_ADAPTER_TOKEN."""
    token = token or os.environ.get("MCP_ADAPTER_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_signed(url: str) -> bool:
    """Tell whether a URL carries a signature, so that it needs neither a token nor a session."""
    return "sig" in parse_qs(urlsplit(url).query)


async def _uploaded(options: argparse.Namespace) -> list[dict[str, Any]]:
    files: Sequence[Path] = options.files
    for path in files:
        _size(path)  # what cannot be read is refused before anybody is asked
    if is_signed(options.url):
        return await send(options.url, files)
    headers = authorization(options.token)
    async with connected(options.url, headers) as server:
        return await send(await _upload_url(server, options.url), files, headers)


async def send(
    url: str, files: Sequence[Path], headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Upload the files to a URL, with a progress bar; what the adapter says of each. Raises TransferFailed."""
    bar = ProgressBar(sum(_size(path) for path in files))
    try:
        return await upload(url, files, headers or {}, bar.advance)
    finally:
        bar.end()


async def _upload_url(server: McpServer, address: str) -> str:
    """The signed URL that the server's own tool gives out."""
    helper = next((name for tool in await server.tools() if (name := tool["name"]).endswith(HELPER)), None)
    if helper is None:
        raise ServerRefused(
            f"No tool of {address} takes files. Pass the address of a server behind the adapter, and declare a tool "
            "of it in servers[].adapters with type upload_consumer."
        )
    offer = (await server.call(helper, {})).get("structuredContent", {})
    if server.has_sessions and offer.get("owner") == "session":
        raise ServerRefused(
            f"Files of {address} belong to the session of their client, and this command has another one. Let the "
            f"client call {helper} and pass its upload_url, or set sessions.scope to principal."
        )
    return str(offer.get("upload_url"))


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as failure:
        raise TransferFailed(f"{path} cannot be read: {failure.strerror}.") from None
    if path.is_dir():
        raise TransferFailed(f"{path} is a folder. Pass the files in it, or pack it first.")
    return status.st_size
