"""Limits of an upstream: exchanges of one purpose at once, and files that the system lets this process open."""

from __future__ import annotations

import asyncio
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from adapter.errors import AdapterError, LimitReached

RESERVE = 64
"""Open files that are kept free for connections of another kind, where the system allows many."""


def scarce(number: int, reserves: int) -> bool:
    """Tell whether fewer files than ``reserves`` times the reserve may still be opened beside the one of this number.

    A new file has the lowest number that is free, so all below it are in use.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return False
    return number >= allowed - reserves * min(RESERVE, allowed // 8)


C = TypeVar("C")


@dataclass(eq=False, slots=True)
class ExchangeLimit(Generic[C]):
    """At most ``limit`` exchanges at once, each on a connection (C) of its own.

    ``patience``: seconds that one more waits for a place; without patience it is refused at once. A refusal names
    ``noun``, what there are too many of, and ``setting``, which limits them.
    """

    limit: int
    patience: float = field(kw_only=True)
    noun: str = field(kw_only=True)
    setting: str = field(kw_only=True)
    taken: int = field(default=0, init=False)
    queue: deque[asyncio.Future[C | None]] = field(default_factory=deque, init=False)
    on_wait: Callable[[float, bool], None] | None = field(default=None, init=False)
    """Is told how many seconds an exchange waited, and True if it got a place; None where nobody counts."""

    def __repr__(self) -> str:
        return f"<ExchangeLimit: {self.taken} of {self.limit} taken, {len(self.queue)} wait>"

    async def turn(self, give_back: Callable[[C], None]) -> C | None:
        """Wait for a place with a connection that is free, or for a place to open one in (None).

        ``give_back`` takes a connection that came too late for who waited. Raises LimitReached when no place became
        free for ``patience`` seconds.
        """
        if not self.patience:
            raise self._full()
        loop, given = asyncio.get_running_loop(), False
        turn: asyncio.Future[C | None] = loop.create_future()
        began = loop.time()
        self.queue.append(turn)
        try:
            async with asyncio.timeout(self.patience):
                connection = await turn
            given = True
            return connection
        except TimeoutError as error:
            self._decline(turn, give_back)
            raise self._full() from error
        except BaseException:
            self._decline(turn, give_back)
            raise
        finally:
            if self.on_wait is not None:
                self.on_wait(loop.time() - began, given)

    def give(self, connection: C | None) -> bool:
        """Hand a free place, with its connection or without one, to the longest waiter; False if none waits."""
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
            f"All {self.limit} {self.noun} to the upstream server are in use, and {self.setting} allows "
            "no more; try again shortly.",
            data={"limit": self.limit, "setting": self.setting, "retry_after": 1},
            retry_after=1,
        )
