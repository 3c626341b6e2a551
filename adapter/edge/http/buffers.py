"""The memory that the bodies of requests may take, all of them together."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from adapter.errors import BuffersFull

_READ_AT_ONCE = 256 * 1024
"""Bytes that one read of a socket may bring."""

_PROBE_AGAIN = 0.05
"""Seconds until more waiting readers are woken, if there is still room."""


TURN = 1.0
"""Seconds of a body that is ahead, in which it has to bring ``LEAST_PER_TURN`` while others wait."""

LEAST_PER_TURN = 128 * 1024


class RequestBuffers:
    """The bytes of request bodies that are held in memory, those of all connections together.

    Above ``limit`` bytes (``core.max_buffered_bytes``) readers wait for room, up to ``patience`` seconds. Above a
    quarter more nobody waits, and bodies are refused.

    Bodies that all held bytes and waited for each other's would all wait in vain. So those that have waited longest go
    ahead, above the limit: as many at once as another quarter has room for, each with ``largest`` bytes
    (``core.max_request_bytes``), and one in any case. No more than one and a half times the limit is held so.
    """

    def __init__(
        self, limit: int = 256 * 1024**2, patience: float = 10.0, *, largest: int = 4 * 1024**2
    ) -> None:
        self.used = 0
        self._limit = limit
        self._most = limit + limit // 4
        self._patience = patience
        self._places = max(1, limit // 4 // largest)
        self._ahead = 0
        self._waiting: OrderedDict[asyncio.Future[None], tuple[HeldBytes, Callable[[], None]]] = OrderedDict()
        self._later: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RequestBuffers: {self.used} of {self._limit} bytes, {len(self._waiting)} waiting>"

    @property
    def limit(self) -> int:
        """Bytes above which readers wait."""
        return self._limit

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

    async def room(self, held: HeldBytes, lose: Callable[[], None]) -> None:
        """Wait until there is room, or it is the turn of ``held`` to go ahead; first come, first served.

        ``lose`` is called when others wait and a body that went ahead brings too little: it gives its bytes back, or
        its place at least. Raises BuffersFull.
        """
        if held.ahead:
            return
        if self.overfull:
            raise self.refusal()
        if not self.full:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = held, lose
        late = loop.call_later(self._patience, give_up, turn)
        self._send_ahead()
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
            f"The request bodies in memory have reached the {self._limit} bytes that "
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
        self._send_ahead()
        if self._waiting and self._later is None:
            self._later = asyncio.get_running_loop().call_later(_PROBE_AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._later = None
        if self._waiting:
            self._let_in()

    # --- above the limit --------------------------------------------------------------------------------------

    def _send_ahead(self) -> None:
        """Let those go on that have waited longest, while there are places."""
        while self._waiting and self.full and not self.overfull and self._ahead < self._places:
            turn, (held, lose) = self._waiting.popitem(last=False)
            if not turn.done():
                self._ahead += 1
                self._watch(held, lose)
                turn.set_result(None)

    def _watch(self, held: HeldBytes, lose: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        held.turn = loop.call_later(TURN, self._check_turn, held, lose, held.size + LEAST_PER_TURN)

    def _check_turn(self, held: HeldBytes, lose: Callable[[], None], due: int) -> None:
        if self._waiting and held.size < due:
            lose()
        else:
            self._watch(held, lose)

    def give_place(self) -> None:
        """Note that a body is no longer ahead, and let the next one go."""
        self._ahead -= 1
        self._send_ahead()


class HeldBytes:
    """The bytes of one body among those of all; they stop counting when the body is collected, at the latest."""

    __slots__ = ("_buffers", "size", "turn")

    def __init__(self, buffers: RequestBuffers) -> None:
        self.size = 0
        self.turn: asyncio.TimerHandle | None = None
        """Set while the body is ahead of others that wait."""
        self._buffers = buffers

    @property
    def ahead(self) -> bool:
        """True while the body may go on above the limit."""
        return self.turn is not None

    def add(self, size: int) -> None:
        """Count ``size`` bytes more, or fewer."""
        self.size += size
        self._buffers.add(size)

    def fall_back(self) -> None:
        """Go no longer ahead: the body is whole, or over, or holds nothing and can wait again. Idempotent."""
        if self.turn is not None:
            self.turn.cancel()
            self.turn = None
            self._buffers.give_place()

    def release(self) -> None:
        """Give everything back. Idempotent."""
        self.add(-self.size)
        self.fall_back()

    def __del__(self) -> None:
        if self.size:
            self._buffers.add(-self.size)


def give_up(waiter: asyncio.Future[None]) -> None:
    """Make whoever waits for this raise TimeoutError."""
    if not waiter.done():
        waiter.set_exception(TimeoutError())
