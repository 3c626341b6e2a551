"""``mcp-adapter download``: fetch what a tool wrote, by its artifact URI or its download URL."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from adapter.commands.progress_bar import ProgressBar
from adapter.commands.settings_flags import failed
from adapter.commands.upload import authorization
from adapter.rules.files.filenames import stored_name
from adapter.upstream.client_connection import ServerRefused, connected
from adapter.upstream.transfers import TransferFailed, download

STDOUT = "-"


def run(options: argparse.Namespace) -> int:
    """Download each handle; print the path of each file. Return the exit status."""
    handles: Sequence[str] = options.handles
    if len(handles) > 1 and options.output not in (None, STDOUT) and not Path(options.output or "").is_dir():
        print("mcp-adapter: several files need a folder that exists as --output", file=sys.stderr)
        return 1
    for handle in handles:
        try:
            asyncio.run(_fetched(handle, options))
        except (TransferFailed, ServerRefused) as failure:
            return failed(f"{failure}")
    return 0


async def _fetched(handle: str, options: argparse.Namespace) -> None:
    headers = authorization(options.token)
    with LocalFile(_last_part(handle), options) as file:
        if handle.startswith(("http://", "https://")):
            await _by_http(handle, file)
        elif options.url is None:
            raise TransferFailed(f"{handle} needs --url, the address of the server whose tool wrote it.")
        else:
            await _by_mcp(handle, options.url, headers, file)
        file.keep()


async def _by_http(url: str, file: LocalFile) -> None:
    try:
        # The link is signed, and may lead elsewhere: it never gets the token.
        await download(url, {}, file.open, file.bar.advance)
    finally:
        file.bar.end()


async def _by_mcp(uri: str, address: str, headers: dict[str, str], file: LocalFile) -> None:
    """Read the resource; one that is too large for that comes by the link that the refusal holds."""
    link = None
    async with connected(address, headers) as server:
        try:
            contents = await server.read(uri)
        except ServerRefused as refused:
            link = refused.data.get("download_url") if isinstance(refused.data, dict) else None
            if link is None:
                raise
    if link is not None:
        await _by_http(link, file)
        return
    pieces = [base64.b64decode(each.get("blob", "")) or each.get("text", "").encode() for each in contents]
    opened = file.open(None, sum(map(len, pieces)))
    opened.write(b"".join(pieces))


class LocalFile:
    """A file of this machine that appears under its name when it is complete.

    ``name`` is used where neither the options nor the server have one.
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.bar = ProgressBar()
        self._name = name
        self._options = options
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        self._part = Path()

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._part.unlink(missing_ok=True)

    def open(self, filename: str | None, size: int | None) -> BinaryIO:
        """The file to write, by what the server says of it. Raises TransferFailed where one of the name exists."""
        self.bar.total = size
        output = self._options.output
        if output == STDOUT:
            return sys.stdout.buffer
        place = Path(output or "")
        self._path = place / stored_name(filename or self._name) if place.is_dir() else place
        if self._path.exists() and not self._options.force:
            raise _exists(self._path)
        self._part = self._path.with_name(f".{secrets.token_hex(8)}.part")
        self._file = self._part.open("xb")
        return self._file

    def keep(self) -> None:
        """Give the file its name and print its path. Raises TransferFailed."""
        if self._file is None or self._path is None:
            sys.stdout.flush()
            return
        self._file.close()
        try:
            self._name_it(self._path)
        except FileExistsError:
            raise _exists(self._path) from None
        except OSError as failure:
            raise TransferFailed(f"{self._path} cannot be written: {failure.strerror}.") from None
        print(self._path)

    def _name_it(self, path: Path) -> None:
        if not self._options.force:
            try:
                # Fails where somebody else has made a file of this name by now, as renaming would not.
                os.link(self._part, path)
                return
            except PermissionError:
                pass  # file systems without links
        self._part.replace(path)


def _exists(path: Path) -> TransferFailed:
    return TransferFailed(f"{path} exists already: choose another --output, or pass --force.")


def _last_part(handle: str) -> str:
    return unquote(urlsplit(handle).path.rpartition("/")[2])
