"""``mcp-adapter download``: fetch what a tool wrote, by its artifact URI or its download URL."""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from adapter.commands.command_parser import failed
from adapter.commands.progress_bar import ProgressBar
from adapter.commands.upload import authorization
from adapter.rules.files.filenames import stored_name
from adapter.upstream.client_connection import ServerRefused, connected
from adapter.upstream.transfers import TransferFailed, download

STDOUT = "-"

_MOST_NAMESAKES = 1000


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
            return failed(str(failure))
    return 0


async def _fetched(handle: str, options: argparse.Namespace) -> None:
    headers = authorization(options.token)
    with LocalFile(last_part(handle), options.output, options.force) as file:
        if handle.startswith(("http://", "https://")):
            await by_http(handle, file)
        elif options.url is None:
            raise TransferFailed(f"{handle} needs --url, the address of the server whose tool wrote it.")
        else:
            await _by_mcp(handle, options.url, headers, file)
        if (path := file.keep()) is not None:
            print(path)


async def by_http(url: str, file: LocalFile) -> None:
    try:
        # The link is signed, and may lead elsewhere: it never gets the token.
        await download(url, {}, file.open, file.bar.advance)
    finally:
        file.bar.end()


async def _by_mcp(uri: str, address: str, headers: dict[str, str], file: LocalFile) -> None:
    async with connected(address, headers) as server:
        await by_server(uri, server, file)


class Resources(Protocol):
    """A server whose resources are read."""

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource. Raises ServerRefused."""


async def by_server(
    uri: str, server: Resources, file: LocalFile, allows: Callable[[str], bool] = bool
) -> None:
    """Read the resource; one that is too large for that comes by the link that the refusal holds.

    ``allows`` says which link is followed. Raises ServerRefused, TransferFailed.
    """
    try:
        contents = await server.read(uri)
    except ServerRefused as refused:
        link = refused.data.get("download_url") if isinstance(refused.data, dict) else None
        if not isinstance(link, str) or not allows(link):
            raise
        await by_http(link, file)
        return
    try:
        pieces = [
            base64.b64decode(each.get("blob", "")) or each.get("text", "").encode() for each in contents
        ]
    except ValueError:
        raise TransferFailed(f"The server's {uri} is no file: its base64 or its text is broken.") from None
    opened = file.open(None, sum(map(len, pieces)))
    opened.write(b"".join(pieces))


@dataclass(eq=False, repr=False)
class LocalFile:
    """A file of this machine that appears under its name when it is complete.

    ``name`` is used where neither ``output`` nor the server has one. Where that is taken, ``force`` replaces the file,
    and ``renames`` gives it a number. It has at most ``most`` bytes.
    """

    name: str
    output: str | None
    force: bool = False
    renames: bool = False
    most: int | None = None

    def __post_init__(self) -> None:
        self.bar = ProgressBar()
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
        if self.output == STDOUT:
            return sys.stdout.buffer
        place = Path(self.output or "")
        self._path = place / stored_name(filename or self.name) if place.is_dir() else place
        if self.renames:
            self._path = _free(self._path)
        elif self._path.exists() and not self.force:
            raise _exists(self._path)
        self._part = self._path.with_name(f".{secrets.token_hex(8)}.part")
        self._file = _BoundedFile(self._part, self.most)
        return self._file

    def keep(self) -> Path | None:
        """Give the file its name and return its path, None for standard output. Raises TransferFailed."""
        if self._file is None or self._path is None:
            sys.stdout.flush()
            return None
        self._file.close()
        try:
            self._name_it(self._path)
        except FileExistsError:
            if not self.renames:
                raise _exists(self._path) from None
            # Another call has saved one of this name meanwhile.
            self._path = _free(self._path)
            return self.keep()
        except OSError as failure:
            raise TransferFailed(f"{self._path} cannot be written: {failure.strerror}.") from None
        return self._path

    def _name_it(self, path: Path) -> None:
        if not self.force:
            try:
                # Fails where somebody else has made a file of this name by now, as renaming would not.
                os.link(self._part, path)
                return
            except PermissionError:
                pass  # file systems without links
        self._part.replace(path)


class _BoundedFile(io.BufferedWriter):
    """A new file that takes no more than ``most`` bytes."""

    def __init__(self, path: Path, most: int | None) -> None:
        super().__init__(io.FileIO(path, "xb"))
        self._most = self._left = most

    def write(self, data: Any, /) -> int:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise TransferFailed(
                    f"The file is larger than the {self._most} bytes that may be saved here."
                )
        return super().write(data)


def _exists(path: Path) -> TransferFailed:
    return TransferFailed(f"{path} exists already: choose another --output, or pass --force.")


def _free(path: Path) -> Path:
    """The path, with a number where there is such a file. Raises TransferFailed."""
    names = (path.stem, *(f"{path.stem}-{number}" for number in range(2, _MOST_NAMESAKES)))
    for name in names:
        found = path.with_name(name + path.suffix)
        # The name of a link that leads nowhere is taken too.
        if not (found.exists() or found.is_symlink()):
            return found
    raise _exists(path)


def last_part(handle: str) -> str:
    """The end of a URI, which is mostly the name of a file."""
    try:
        path = urlsplit(handle).path
    except ValueError:
        path = handle  # such as http://[
    return unquote(path.rpartition("/")[2])
