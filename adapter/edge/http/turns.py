"""Turns of the loop, for what many clients may ask of it at the same moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from adapter.relay.background import settle

AT_ONCE = 16
"""Steps that begin in one turn, and as many that have waited; each takes about 0.2 milliseconds."""


class Turns:
    """Lets so many steps be done in one turn of the loop, and the others in the turns that follow: each time half of
    them for those who have waited longest, and half for those who came last.

    The oldest alone would be fair among the many who came together, but who comes behind them would wait for all.
    ``taken`` has an item for each step of this turn.
    """

    def __init__(self) -> None:
        self.taken: list[None] = []
        self._waiting: deque[Callable[[], object]] = deque()

    def __repr__(self) -> str:
        return f"<Turns: {len(self._waiting)} steps waiting>"

    def do(self, step: Callable[[], object]) -> None:
        """Do ``step`` now, or in a later turn if this one has had its share."""
        if not self.taken:
            asyncio.get_running_loop().call_soon(self.taken.clear)
        if len(self.taken) < AT_ONCE:
            self.taken.append(None)
            step()
        else:
            self.later(step)

    def later(self, step: Callable[[], object]) -> None:
        """Do ``step`` in a later turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._waiting.append(step)

    async def wait(self) -> None:
        """Wait for a later turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.later(partial(settle, turn))
        await turn

    def _go_on(self) -> None:
        waiting = self._waiting
        for number in range(min(AT_ONCE, len(waiting))):
            (waiting.pop if number % 2 else waiting.popleft)()()
        if waiting:
            asyncio.get_running_loop().call_soon(self._go_on)
