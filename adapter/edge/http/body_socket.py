"""The rest of a large body, read from the socket of its connection by threads instead of by the loop.

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
import termios
from collections.abc import Callable

from adapter.edge.http.bodies import Body, ClientGone
from adapter.upstream.limits import scarce

LARGE = 512 * 1024
"""Bytes still to come from which on this is worth two hops between loop and thread."""

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
