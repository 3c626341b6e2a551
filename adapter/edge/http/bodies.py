"""The body of a request as it arrives, within the limits of memory and speed that all bodies share.

The rest of a large body, read from the socket of its connection by threads instead of by the loop.

Bytes that come through the loop are copied three times before they are hashed and written, in pieces that each cost a
turn of the loop. A thread that reads, hashes and writes the same block does so while it is in the processor's cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from adapter.edge.http.buffers import HeldBytes, RequestBuffers, give_up
from adapter.errors import BodyTooSlow
from adapter.rules.access.rate_limit import Floor, Pace
from adapter.upstream.timeouts import scarce

RESUME_BELOW = 64 * 1024
"""Bytes of a body that may wait unread before its sender is slowed down."""

PAUSE_ABOVE = 2 * RESUME_BELOW

SMALL = 16 * 1024
"""Bytes of a body that neither wait for room nor are refused for want of it: each connection has one such body at most.
Where one comes whole in one read it is not even counted, as that would cost every call.
"""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits that all bodies share: memory and least speed.

    ``read_timeout``: seconds for which a sender may send nothing.
    """

    buffers: RequestBuffers = field(default_factory=RequestBuffers)
    floor: Floor = field(default_factory=Floor)
    read_timeout: float = 30.0


TERMS = BodyLimits()
"""The default limits, for a host that embeds only its own tools and so has no settings."""


class ClientGone(ConnectionError):
    """The client closed its connection before the exchange was over."""


class Body:
    """A request's body. Its connection adds to it; one reader takes from it, and is waited for when slow.

    ``content`` is all of it, where that is here already.
    """

    __slots__ = (
        "_chunks", "_failed", "_most", "_pace", "_resume", "_terms", "_waiter", "announced", "arrived", "complete",
        "held", "open_socket", "size", "unwanted", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        resume: Callable[[], None],
        terms: BodyLimits = TERMS,
        announced: int | None = None,
        content: bytes | None = None,
    ) -> None:
        self.announced = announced
        """Bytes that the head of the request says it has; None where it does not say."""
        self.complete = content is not None
        self.size = len(content) if content else 0
        """Bytes that nobody has read yet."""
        self.arrived = self.size
        """Bytes that have come altogether."""
        self.unwanted = False
        """Nobody will read it, so nothing is kept."""
        self.wanted: Callable[[], None] | None = None
        self.open_socket: Callable[[Body], BodySocket | None] | None = None
        """Opens the way for threads to read the rest; set for a body that is announced to be large."""
        self.held: HeldBytes | None = None
        """Its bytes among those that are counted; None: it came whole and is small, so it is not counted."""
        self._chunks: list[bytes] = [content] if content else []
        self._failed: Callable[[], Exception] | None = None
        self._most: int | None = None
        """Bytes that its reader waits for at once; None for a reader of pieces."""
        self._pace: Pace | None = None
        self._resume = resume
        self._terms = terms
        self._waiter: asyncio.Future[None] | None = None

    async def whole(self, most: int, too_long: Callable[[], Exception]) -> bytes:
        """Return all of it. Raises ClientGone, BuffersFull, and BodyTooSlow for a sender that is silent for too long or
        below the floor, and ``too_long()`` for more than ``most`` bytes.
        """
        loop, read_timeout = asyncio.get_running_loop(), self._terms.read_timeout
        self._most = most
        look = min(LOOK_EVERY, read_timeout)
        heard, arrived = loop.time(), self.arrived
        while self._failed is None and not self.complete and self.size <= most:
            asked = loop.time()
            await self._room()
            # What its sender was made to wait for is no silence of his.
            heard += loop.time() - asked
            self._resume()
            try:
                await self._arrived(look, once=True)
            except TimeoutError:
                if self.arrived == arrived and loop.time() - heard >= read_timeout:
                    raise BodyTooSlow(f"The body was silent for {read_timeout:g} s.") from None
                self.check_pace(look)
            if self.arrived != arrived:
                heard, arrived = loop.time(), self.arrived
        if self.size > most:
            raise too_long()
        if self._failed is not None:
            raise self._failed()
        return self.take()

    async def piece(self, patience: float) -> bytes:
        """Return the next piece as it came, ``b""`` at the end. Raises as ``whole``, and TimeoutError when
        nothing comes for ``patience`` seconds.

        For readers that do not need the whole body: nothing is copied, and no more than needed waits in memory.
        """
        if not self._chunks and not self.complete:
            # Only now: while the last piece is being written, more would only wait here.
            await self._room()
            self._resume()
        await self._arrived(patience)
        if self.held is not None:
            # Such a body holds no more than this piece, and can wait again.
            self.held.fall_back()
        if not self._chunks:
            return b""
        piece = self._chunks.pop(0)
        self.size -= len(piece)
        if self.held is not None:
            self.held.add(-len(piece))
        return piece

    async def _arrived(self, patience: float, *, once: bool = False) -> None:
        """Wait until there is a piece, or ``once`` for whatever its connection tells next. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        while once or not self._chunks:
            # First of all: the rest of a body that was refused is not kept, but its end still comes.
            if self._failed is not None:
                raise self._failed()
            if self.complete:
                return
            if self.wanted is not None:
                wanted, self.wanted = self.wanted, None
                wanted()
            self._waiter = loop.create_future()
            # Not asyncio.timeout: for each piece of a large body it would cost as much as reading it.
            late = loop.call_later(patience, give_up, self._waiter)
            began = loop.time()
            try:
                await self._waiter
            finally:
                late.cancel()
                self._waiter = None
            self.check_pace(loop.time() - began)
            if once:
                return

    def socket(self) -> BodySocket | None:
        """Return a way for threads to read the rest; None where that is not large, or has partly come already.

        To be closed before anything else is read.
        """
        if self._chunks or self.complete or self._failed is not None or self.open_socket is None:
            return None
        return self.open_socket(self)

    def check_pace(self, waited: float) -> None:
        """Count ``waited`` seconds more of waiting for the sender. Raises BodyTooSlow."""
        floor = self._terms.floor
        if self._pace is None:
            self._pace = Pace(floor)
        if self._pace.is_too_slow(waited, self.arrived) and not self.complete and self._failed is None:
            raise BodyTooSlow(
                f"The body arrived slower than the {floor.rate:g} bytes per second over {floor.window:g} "
                "s that are required."
            )

    def take(self) -> bytes:
        """Return the bytes that are here now. Raises the failure of a body that has none left."""
        if self._failed is not None and not self._chunks:
            raise self._failed()
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.size = 0
        return piece

    # --- memory -----------------------------------------------------------------------------------------------

    def count(self, more: int = 0) -> None:
        """Count its bytes, also those still to come, as held until ``release``; ``more`` bytes were made of them."""
        if self.held is None:
            self.held = HeldBytes(self._terms.buffers)
            self.held.add(self.size)
        if more:
            self.held.add(more)

    def require_room(self) -> None:
        """Raise BuffersFull when there is no room even for the bytes that have come."""
        if self._terms.buffers.overfull:
            raise self._terms.buffers.refusal()

    @property
    def overfull(self) -> bool:
        """True when there is no room even for the bytes that have come."""
        ahead = self.held is not None and self.held.ahead
        return self.arrived > SMALL and self._terms.buffers.overfull and not ahead

    @property
    def crowded(self) -> bool:
        """True when its sender should wait."""
        above = PAUSE_ABOVE if self._most is None else self._most
        return self.size > above or (self.size > SMALL and self._terms.buffers.full)

    async def _room(self) -> None:
        if self.arrived > SMALL:
            self.count()
            assert self.held is not None
            await self._terms.buffers.room(self.held, self._lose_turn)

    def _lose_turn(self) -> None:
        assert self.held is not None, "only a body that is counted goes ahead"
        if self.held.size:
            self.refuse()
        else:
            self.held.fall_back()

    def release(self) -> None:
        """Let go of the bytes; nobody needs them any more. Idempotent."""
        self._chunks.clear()
        self.size = 0
        self.unwanted = True
        if self.held is not None:
            self.held.release()

    # --- for the connection ---------------------------------------------------------------------------------

    def add(self, chunk: bytes) -> None:
        if self.unwanted:
            return
        # Whose body is coming does not wait to be asked for it.
        self.wanted = None
        self._chunks.append(chunk)
        self.size += len(chunk)
        self.arrived += len(chunk)
        if self.held is not None:
            self.held.add(len(chunk))
        if self._waiter is not None and (self._most is None or self.crowded):
            self._wake()

    def end(self) -> None:
        self.complete = True
        if self.held is not None:
            self.held.fall_back()
        if self._waiter is not None:
            self._wake()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Make its reader raise ``failure()``.

        A new one for each: an exception that was kept would keep, by its traceback, all that its reader had.
        """
        self._failed = failure
        self._wake()

    def refuse(self) -> None:
        """Let go of the bytes, for which there is no room, and make its reader raise BuffersFull."""
        self.release()
        self.fail(self._terms.buffers.refusal)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


LARGE = 512 * 1024
"""Bytes still to come from which on this is worth two hops between loop and thread."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""malloc.h of glibc."""


@cache
def keep_freed_memory() -> None:
    """Have the C library keep the memory of large messages for the next ones: 16 MiB, in blocks of up to 8 MiB.

    By default glibc gives it back at once, and the kernel hands it out again page by page: a message of a mebibyte, of
    which there are several copies for a moment, then costs twice the CPU. Does nothing with another C library.
    """
    # Late: to load it takes memory, and only large messages need it.
    import ctypes

    with contextlib.suppress(AttributeError):
        if sys.platform == "linux":
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, 8 << 20)
            mallopt(_M_TRIM_THRESHOLD, 16 << 20)


LOW_WATER = 256 * 1024
"""Bytes that the kernel gathers before it wakes whoever waits for more."""

LOOK_EVERY = 1.0
"""Seconds after which fewer bytes are taken too."""

_Size = struct.Struct("i")


class BodySocket:
    """``left`` bytes of a body that nobody has read. Until ``close`` nothing else reads from their socket.

    ``number`` is a descriptor of the socket; this closes it. ``read_on`` is called by ``close`` with the bytes that are
    left then.
    """

    def __init__(self, number: int, body: Body, left: int, read_on: Callable[[int], None]) -> None:
        self.left = left
        self.empty = False
        """Nothing was there when ``receive`` was called last."""
        self._socket = socket.socket(fileno=number)
        self._body = body
        self._read_on = read_on
        self._low_water = 1
        self._gone = False
        self._closed = False

    @classmethod
    def open(
        cls, transport: asyncio.Transport, body: Body, read_on: Callable[[int], None]
    ) -> BodySocket | None:
        """Take the rest of ``body`` away from ``transport``, whose next bytes it is.

        None where few bytes are left, where they are encrypted, or where descriptors are scarce.
        """
        left = (body.announced or 0) - body.arrived
        if left < LARGE or transport.is_closing() or transport.get_extra_info("sslcontext") is not None:
            return None
        number = _duplicate(transport)
        if number is None:
            return None
        transport.pause_reading()
        return cls(number, body, left, read_on)

    def __repr__(self) -> str:
        return f"<BodySocket: {self.left} bytes left>"

    def receive(self, block: memoryview) -> int:
        """Fill the beginning of ``block``, in a thread: how many bytes came, 0 while there are none."""
        count, asked = 0, block[: self.left]
        try:
            count = self._socket.recv_into(asked)
            self._gone = not count and len(asked) > 0
        except BlockingIOError:
            pass
        except OSError:
            self._gone = True
        self.empty = count == 0
        self.left -= count
        return count

    async def wait(self, patience: float) -> None:
        """Wait until more has come.

        Raises ClientGone, BodyTooSlow, and TimeoutError when nothing comes for ``patience`` seconds.
        """
        loop = asyncio.get_running_loop()
        began = now = loop.time()
        while not self._gone:
            self._gather(min(LOW_WATER, self.left))
            came = await until_ready(self._socket.fileno(), min(LOOK_EVERY, began + patience - now))
            waited, now = loop.time() - now, loop.time()
            pending = self._pending()
            self._count(pending)
            self._body.check_pace(waited)
            if came or pending:
                return
            if now - began >= patience:
                raise TimeoutError
        raise ClientGone("the client has gone")

    def _gather(self, size: int) -> None:
        """Let the kernel say that bytes have come when it has so many."""
        if size != self._low_water:
            self._low_water = size
            with contextlib.suppress(OSError):  # a system without it wakes for fewer bytes
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _pending(self) -> int:
        """Bytes of the body that the kernel has."""
        (size,) = _Size.unpack(fcntl.ioctl(self._socket, termios.FIONREAD, bytes(_Size.size)))
        return min(int(size), self.left)

    def _count(self, pending: int) -> None:
        assert self._body.announced is not None, "only what is left of a known length can be counted"
        self._body.arrived = self._body.announced - self.left + pending

    def close(self) -> None:
        """Let the transport read again. Idempotent."""
        if not self._closed:
            self._closed = True
            self._gather(1)
            self._socket.close()
            self._count(0)
            self._read_on(self.left)


def _duplicate(transport: asyncio.Transport) -> int | None:
    """A descriptor of our own for a transport's socket; None where descriptors are scarce."""
    try:
        number = os.dup(transport.get_extra_info("socket").fileno())
    except OSError:
        return None
    if scarce(number, 2):
        os.close(number)
        return None
    return number


async def until_ready(number: int, seconds: float, *, writing: bool = False) -> bool:
    """Wait until bytes can be read from the descriptor, or written to it; False if not within ``seconds``."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    watch, forget = (
        (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    )
    watch(number, _end, ready, True)
    # Not asyncio.timeout: it costs as much as the rest.
    late = loop.call_later(seconds, _end, ready, False)
    try:
        return await ready
    finally:
        late.cancel()
        forget(number)


def _end(waiting: asyncio.Future[bool], ready: bool) -> None:
    if not waiting.done():
        waiting.set_result(ready)
