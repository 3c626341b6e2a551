"""The limit of exchanges of one purpose with an upstream: more than that wait their turn or are refused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from adapter.errors import AdapterError, LimitReached

C = TypeVar("C")


class ExchangeLimit(Generic[C]):
    """At most ``limit`` exchanges at once, each on a connection (C) of its own.

    ``patience``: seconds that one more waits for a place; without patience it is refused at once. A refusal names
    ``noun``, what there are too many of, and ``setting``, which limits them.
    """

    __slots__ = ("_noun", "_patience", "_setting", "limit", "queue", "taken")

    def __init__(self, limit: int, *, patience: float, noun: str, setting: str) -> None:
        self.limit = limit
        self.taken = 0
        self.queue: deque[asyncio.Future[C | None]] = deque()
        self._patience = patience
        self._noun = noun
        self._setting = setting

    def __repr__(self) -> str:
        return f"<Places: {self.taken} of {self.limit} taken, {len(self.queue)} wait>"

    async def turn(self, give_back: Callable[[C], None]) -> C | None:
        """Wait for a place with a connection that is free, or for a place to open one in (None).

        ``give_back`` takes a connection that came too late for who waited. Raises LimitReached when no place became
        free for ``patience`` seconds.
        """
        if not self._patience:
            raise self._full()
        turn: asyncio.Future[C | None] = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                return await turn
        except TimeoutError as error:
            self._decline(turn, give_back)
            raise self._full() from error
        except BaseException:
            self._decline(turn, give_back)
            raise

    def give(self, connection: C | None) -> bool:
        """Hand a place that became free, with its connection or without one, to who waits longest. False where nobody
        waits.
        """
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def free(self) -> None:
        """A place has become free."""
        if not (self.queue and self.give(None)):
            self.taken -= 1

    def refuse(self, error: AdapterError) -> None:
        """Tell all who wait that nothing will become free."""
        for turn in self.queue:
            if not turn.done():
                turn.set_exception(error)
        self.queue.clear()

    def _decline(self, turn: asyncio.Future[C | None], give_back: Callable[[C], None]) -> None:
        """Leave the queue; a place that was given in the same moment goes to the next."""
        if turn in self.queue:
            self.queue.remove(turn)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            connection = turn.result()
            if connection is None:
                self.free()
            else:
                give_back(connection)

    def _full(self) -> LimitReached:
        return LimitReached(
            f"All {self.limit} {self._noun} to the upstream server are in use, and {self._setting} allows "
            "no more; try again shortly.",
            data={"limit": self.limit, "setting": self._setting, "retry_after": 1},
            retry_after=1,
        )
