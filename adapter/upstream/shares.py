"""The bytes of answers that move in one turn of the loop, shared among all that could move at the same moment."""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

PER_TURN = 2 << 20
"""Bytes that move in one turn, but for the last piece; they take some milliseconds."""


class ByteShare:
    """Lets at most so many bytes move in each turn of one loop; who comes when these are spent waits for a later turn,
    in the order of coming.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._taken = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def __repr__(self) -> str:
        return f"<ByteShare: {self._taken} bytes taken, {len(self._waiting)} pieces waiting>"

    def spend(self, size: int) -> bool:
        """Move ``size`` bytes now; False if this turn has none left, or others wait for them."""
        if self._taken >= PER_TURN or self._waiting:
            return False
        self._taken += size
        return True

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes, more than none, may move."""
        if self.spend(size):
            return
        if not self._waiting:
            # Not before somebody waits: for a lone answer each turn more is time lost.
            self._loop.call_soon(self._next_turn)
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((turn, size))
        await turn

    def _next_turn(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < PER_TURN:
            turn, size = self._waiting.popleft()
            if not turn.done():
                self._taken += size
                turn.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._next_turn)


_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, ByteShare] = WeakKeyDictionary()


def share_of_this_loop() -> ByteShare:
    """Return the share of the running loop."""
    loop = asyncio.get_running_loop()
    share = _shares.get(loop)
    if share is None:
        share = _shares[loop] = ByteShare(loop)
    return share
