"""The memory that the bodies of requests may take, all of them together."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from adapter.errors import BuffersFull

_READ_AT_ONCE = 256 * 1024
"""Bytes that one read of a socket may bring."""

_LOOK_AGAIN = 0.05
"""Seconds until more waiting readers are woken, if there is still room."""


class RequestBuffers:
    """The bytes of request bodies that are held in memory, those of all connections together.

    Above ``limit`` bytes (``core.max_buffered_bytes``) readers wait for room, up to ``patience`` seconds. Above a
    quarter more nobody waits, and bodies are refused.
    """

    def __init__(self, limit: int = 256 * 1024**2, patience: float = 10.0) -> None:
        self.used = 0
        self._limit = limit
        self._most = limit + limit // 4
        self._patience = patience
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._later: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RequestBuffers: {self.used} of {self._limit} bytes, {len(self._waiting)} waiting>"

    @property
    def full(self) -> bool:
        """True when no more should be read now."""
        return self.used > self._limit

    @property
    def overfull(self) -> bool:
        """True when bytes that come now cannot even wait here."""
        return self.used > self._most

    def add(self, size: int) -> None:
        """Count ``size`` bytes more, or fewer."""
        self.used += size
        if size < 0 and self._waiting:
            self._let_in()

    async def room(self) -> None:
        """Wait until there is room; first come, first served. Raises BuffersFull."""
        if self.overfull:
            raise self.refusal()
        if not self.full:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = None
        late = loop.call_later(self._patience, _give_up, turn)
        try:
            await turn
        except TimeoutError:
            raise self.refusal() from None
        finally:
            late.cancel()
            # Who gave up, or was cancelled, is still among them.
            self._waiting.pop(turn, None)

    def refusal(self) -> BuffersFull:
        """Make the failure of a body for which there is no room."""
        return BuffersFull(
            f"The request bodies held in memory are more than the {self._limit} bytes that "
            "core.max_buffered_bytes allows; try again shortly.",
            retry_after=1,
        )

    def _let_in(self) -> None:
        """Wake as many readers as there is room for a read of each; look again soon if some of that room is left."""
        room = self._limit - self.used
        while self._waiting and room >= 0:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                room -= _READ_AT_ONCE
        if self._waiting and self._later is None:
            self._later = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._later = None
        if self._waiting:
            self._let_in()


class HeldBytes:
    """The bytes of one body among those of all; they stop counting when the body is collected, at the latest."""

    __slots__ = ("_buffers", "size")

    def __init__(self, buffers: RequestBuffers) -> None:
        self.size = 0
        self._buffers = buffers

    def add(self, size: int) -> None:
        """Count ``size`` bytes more, or fewer."""
        self.size += size
        self._buffers.add(size)

    def __del__(self) -> None:
        if self.size:
            self._buffers.add(-self.size)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
