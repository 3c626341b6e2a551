"""Requests that move files between this machine and an adapter, on aiohttp's client."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

STALL = 60.0
"""Seconds without any progress after which a transfer is given up."""

_CONNECT = 30.0
_PIECE = 1 << 20
_LARGEST_ANSWER = 4 << 20
_DIGEST = re.compile(r'"([0-9a-f]{64})"')
_REFUSED_FROM = 300

Progress = Callable[[int], None]
"""Called with the number of bytes that have moved since the last call."""

Opened = Callable[[str | None, int | None], BinaryIO]
"""Gives the file for a download of that name and size (bytes), as the server says. Raises OSError."""


class TransferFailed(Exception):
    """A file that could not be moved; ``str(error)`` is one sentence for people."""


async def upload(
    url: str, files: Sequence[Path], headers: Mapping[str, str], progress: Progress
) -> list[dict[str, Any]]:
    """Upload the files in one form, all of them or none. Return what the adapter says of each, in their order.

    The SHA-256 of each file is computed while it is sent and stands behind it in the form, so the adapter refuses
    what was changed on the way. Raises TransferFailed.
    """
    with contextlib.ExitStack() as opened:
        named = [(path.name, _opened(path, opened)) for path in files]
        return await upload_opened(url, named, headers, progress)


async def upload_opened(
    url: str, files: Sequence[tuple[str, BinaryIO]], headers: Mapping[str, str], progress: Progress
) -> list[dict[str, Any]]:
    """Upload files that are open, each under a name; see ``upload``."""
    async with _request() as (session, deadline):
        form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
        for name, file in files:
            part = _FilePart(file, deadline, progress)
            form.add_field("file", part, filename=_form_name(name))
            form.add_field("sha256", _DigestPart(part))
        # The adapter refuses by the head alone, before gigabytes are on their way.
        answering = session.post(url, data=form, headers=headers, allow_redirects=False, expect100=True)
        async with answering as response:
            answer = await _answer(response, deadline)
    uploads = answer.get("uploads")
    if not isinstance(uploads, list) or len(uploads) != len(files):
        raise TransferFailed("The URL takes no uploads: its answer names none.")
    return uploads


async def download(url: str, headers: Mapping[str, str], open_file: Opened, progress: Progress) -> None:
    """Write what is at ``url`` to a file, and verify it where the server names its SHA-256 as entity tag.

    Raises TransferFailed. What was written by then is the caller's to remove.
    """
    async with _request() as (session, deadline):
        asking = session.get(url, headers=headers, allow_redirects=False, auto_decompress=False)
        async with asking as response:
            if response.status != 200:
                await _answer(response, deadline)
            named = response.content_disposition
            digest = hashlib.sha256()
            try:
                file = open_file(named.filename if named else None, response.content_length)
                async for piece in response.content.iter_any():
                    deadline.moved()
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
                    progress(len(piece))
            except OSError as failure:
                raise TransferFailed(f"The file cannot be written: {failure.strerror}.") from None
    tag = _DIGEST.fullmatch(response.headers.get("ETag", ""))
    if tag is not None and tag[1] != digest.hexdigest():
        raise TransferFailed(
            "The file was changed on its way: its SHA-256 is not the one that the server names."
        )


async def head_of(url: str, method: str = "OPTIONS") -> Mapping[str, str]:
    """Return the header fields of an answer, whatever its status. Raises TransferFailed."""
    async with _request() as (session, _), session.request(method, url, allow_redirects=False) as response:
        return response.headers


async def json_of(url: str, headers: Mapping[str, str] | None = None) -> Any:
    """Return the value of an answer in JSON, whatever its status. Raises TransferFailed, ValueError for no JSON."""
    async with (
        _request() as (session, _),
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        return await response.json()


class _Deadline:
    """The end of a request that makes no progress."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout

    def moved(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time() + STALL)


@asynccontextmanager
async def _request() -> AsyncIterator[tuple[aiohttp.ClientSession, _Deadline]]:
    """A session for one request, whose failures become TransferFailed."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)
    try:
        async with (
            asyncio.timeout(STALL) as timeout,
            aiohttp.ClientSession(timeout=limits, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            yield session, _Deadline(timeout)
    except TimeoutError:
        raise TransferFailed(f"The server did not take or send anything for {STALL:g} s.") from None
    except aiohttp.InvalidURL:
        raise TransferFailed("This is no URL: it begins with http:// or https://.") from None
    except aiohttp.ClientError as failure:
        # Where there is none yet, the text names the address.
        is_lost = not isinstance(failure, aiohttp.ClientConnectorError)
        reason = failure.strerror if is_lost and isinstance(failure, aiohttp.ClientOSError) else None
        why = f"{reason}." if reason else failure
        raise TransferFailed(f"The connection failed: {why}") from None


async def _answer(response: aiohttp.ClientResponse, deadline: _Deadline) -> dict[str, Any]:
    """The JSON object of a successful answer. Raises TransferFailed."""
    is_refused = response.status >= _REFUSED_FROM
    body = bytearray()
    # A read gives what is there, which is not all of an answer that comes in pieces. A refusal may have no end.
    while piece := await response.content.read(_LARGEST_ANSWER - len(body)):
        deadline.moved()
        body += piece
        if is_refused:
            break
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not is_refused and isinstance(answer, dict):
        return answer
    why = answer.get("detail") if isinstance(answer, dict) else None
    raise TransferFailed(f"The server refuses: {why}" if why else f"The server answers {response.status}.")


def _form_name(name: str) -> str:
    """The name as a form can hold it: line breaks as browsers write them (HTML, "multipart/form-data")."""
    name = name.encode("utf-8", "replace").decode("utf-8")
    return name.replace("\r", "%0D").replace("\n", "%0A")


def _opened(path: Path, opened: contextlib.ExitStack) -> BinaryIO:
    try:
        file = opened.enter_context(path.open("rb"))
    except OSError as failure:
        raise TransferFailed(f"{path} cannot be read: {failure.strerror}.") from None
    return file


class _FilePart(Payload):
    """A file as a part of a form. ``digest`` is complete when the part was sent."""

    def __init__(self, file: BinaryIO, deadline: _Deadline, progress: Progress) -> None:
        super().__init__(file)
        self.digest = hashlib.sha256()
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._deadline = deadline
        self._progress = progress

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise NotImplementedError("a file is sent, never shown")

    async def write(self, writer: AbstractStreamWriter) -> None:
        left = self._size or 0
        while left and (piece := await asyncio.to_thread(self._read, left)):
            await writer.write(piece)
            self._deadline.moved()
            self._progress(len(piece))
            left -= len(piece)
        if left:
            raise TransferFailed("A file became shorter while it was sent.")

    def _read(self, left: int) -> bytes:
        piece = self._file.read(min(left, _PIECE))
        self.digest.update(piece)
        return piece


class _DigestPart(Payload):
    """The SHA-256 of a file that was sent before, as a field of the form."""

    _size = 64

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 (the port's)
        part: _FilePart = self._value
        return part.digest.hexdigest()

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self.decode().encode("ascii"))
