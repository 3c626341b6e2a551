"""Requests of a host's aiohttp application as our own: whatever serves ours serves there too."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web
from multidict import CIMultiDict

from adapter.edge.http.bodies import RESUME_BELOW, TERMS, Body, BodyLimits, ClientGone
from adapter.edge.http.request import Fields, Request, Sendable

LOOK_EVERY = 1.0
"""Seconds between two looks whether the client is still there: aiohttp tells nobody who only waits."""

WAITING_AT_MOST = 256 * 1024
"""Bytes of an answer that wait for a slow client."""

FILE_PIECE = 64 * 1024
"""Bytes of a file on their way at once; a socket's buffer has room for them."""

Act = Callable[[Request], Awaitable[object]]


class HostRequest(Request):
    """A request of ours that stands for ``original``; whoever has it must not read its body again."""

    __slots__ = ("original",)

    def __init__(self, original: web.Request, prefix: str, body: Body, reply: ForeignReply) -> None:
        self.original = original
        fields = [(_text(name), _text(value)) for name, value in original.raw_headers]
        # aiohttp has decoded the body, so its coding is no longer what the client said.
        fields = [field for field in fields if field[0].lower() != "content-encoding"]
        target = original.raw_path
        if prefix and target.startswith(prefix):
            target = target[len(prefix) :] or "/"
        path = original.path.removeprefix(prefix) or "/"
        peer = original.transport.get_extra_info("peername") if original.transport is not None else None
        super().__init__(
            original.method,
            target,
            path,
            Fields(fields),
            body,
            reply,
            peer[0] if isinstance(peer, tuple) else None,
        )


class ForeignReply:
    """A Reply that aiohttp sends. What is written waits in it until ``pass_on`` has taken it."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.sent = 0
        self.extra: tuple[tuple[str, str], ...] = ()
        self._fields: list[tuple[str, str]] = []
        self._length: int | None = None
        self._whole = False
        self._ended = False
        self._broken = False
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._gone = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    # --- for who answers --------------------------------------------------------------------------------------

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """See Reply."""
        self.begin(status, fields, len(body))
        self._whole = True
        self.put(body)
        self.end()

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """See Reply."""
        self.status, self._fields, self._length = status, [*fields, *self.extra], length
        self._changed.set()

    def put(self, chunk: bytes, *, more: bool = False) -> bool:  # noqa: ARG002 (a Reply's)
        """See Reply."""
        if chunk:
            self._pieces.append(chunk)
            self._waiting += len(chunk)
            self._changed.set()
        if self._waiting > WAITING_AT_MOST:
            self._room.clear()
        return self._room.is_set()

    async def drained(self) -> None:
        """See Reply."""
        await self._room.wait()
        if self._gone:
            raise ClientGone("the client has gone")

    async def write(self, piece: bytes) -> None:
        """See Reply."""
        self.put(piece)
        await self.drained()

    async def write_file(self, file: Sendable, offset: int, length: int) -> None:
        """See Reply. The file passes through a pair of sockets, for a host's connection may be encrypted."""
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            end = offset + length
            while offset < end:
                sent = await file.send(far.fileno(), offset, min(FILE_PIECE, end - offset))
                offset += sent
                while sent > 0:
                    piece = await loop.sock_recv(near, sent)
                    sent -= len(piece)
                    await self.write(piece)

    def end(self) -> None:
        """See Reply."""
        self._ended = True
        self._changed.set()

    def abort(self) -> None:
        """See Reply."""
        self._broken = True
        self._changed.set()

    @property
    def ended(self) -> bool:
        """Tell whether the answer is complete."""
        return self._ended

    # --- for aiohttp ------------------------------------------------------------------------------------------

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """The answer, sent as it comes. Raises ConnectionError when the client has gone, or the answer broke off."""
        while self.status is None and not self._broken:
            await self._change()
        if self._broken and self.status is None:
            raise self._break_off(request)
        assert self.status is not None, "it has begun"
        headers = CIMultiDict(self._fields)
        if self._whole:
            return web.Response(status=self.status, headers=headers, body=b"".join(self._pieces))
        response = web.StreamResponse(status=self.status, headers=headers)
        if self._length is not None:
            response.content_length = self._length
        try:
            await response.prepare(request)
            await self._pour(request, response)
        except ConnectionError:
            self.gone()
            raise
        return response

    async def _pour(self, request: web.Request, response: web.StreamResponse) -> None:
        bare = request.method == "HEAD"
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                if not bare:
                    await response.write(piece)
                self._waiting -= len(piece)
            self._room.set()
            if self._broken:
                raise self._break_off(request)
            if self._ended:
                break
            await self._change()
        if not bare:
            await response.write_eof()

    def gone(self) -> None:
        """Note that the client has gone."""
        self._gone = True
        self._room.set()

    async def _change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _break_off(self, request: web.Request) -> ConnectionError:
        """Break the connection off, so that nobody takes the answer for complete."""
        if request.transport is not None:
            request.transport.abort()
        return ConnectionResetError("the answer broke off")


async def answered(
    original: web.Request, act: Act, prefix: str = "", terms: BodyLimits = TERMS
) -> web.StreamResponse:
    """Return the answer of ``act`` to a request. ``prefix`` is the part of its path that the host has dealt with.

    When the client goes, ``act`` is cancelled. Raises ConnectionError where no whole answer could be given.
    """
    reply, taken = ForeignReply(), asyncio.Event()
    # aiohttp decodes a compressed body, so its length is not what the client said.
    coded = "content-encoding" in original.headers
    body = Body(taken.set, terms, None if coded else original.content_length)
    request = HostRequest(original, prefix, body, reply)
    acting = request.task = asyncio.create_task(_act(act, request, reply))
    helping = [asyncio.create_task(_feed(original, body, taken)), asyncio.create_task(_until_gone(original))]
    helping[1].add_done_callback(lambda watching: None if watching.cancelled() else _give_up(acting, reply))
    try:
        response = await reply.pass_on(original)
        await asyncio.wait({acting})
        return response
    finally:
        for task in (acting, *helping):
            task.cancel()
        await asyncio.gather(acting, *helping, return_exceptions=True)
        body.release()


async def _act(act: Act, request: Request, reply: ForeignReply) -> None:
    try:
        await act(request)
    finally:
        request.task = None
        if not reply.ended:
            # Nobody may take for whole what is not, nor wait for what will not come.
            reply.abort()


async def _feed(original: web.Request, body: Body, taken: asyncio.Event) -> None:
    try:
        async for chunk in original.content.iter_any():
            body.add(chunk)
            while body.size >= RESUME_BELOW:
                taken.clear()
                await taken.wait()
    except Exception as error:
        # A client that went, or a coding that its body is not in: aiohttp has a family of exceptions for that.
        body.fail(partial(_broken_off, str(error)))
    else:
        body.end()


async def _until_gone(original: web.Request) -> None:
    while original.transport is not None and not original.transport.is_closing():  # noqa: ASYNC110 (nobody sets one)
        await asyncio.sleep(LOOK_EVERY)


def _give_up(acting: asyncio.Task[None], reply: ForeignReply) -> None:
    reply.gone()
    acting.cancel()


def _broken_off(why: str) -> ClientGone:
    return ClientGone(f"the body broke off: {why}")


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")
