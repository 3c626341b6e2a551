"""Limits on the rate and the number of calls of one tool on one server.

Every object here belongs to one tool and is shared by all its calls; all of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Literal, Protocol, runtime_checkable

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.result_cache import caller_part, key_of
from adapter.rules.access.rate_limit import SlidingWindow
from adapter.rules.results import refusals

RateKey = Literal["identity", "principal", "session", "tool"]
"""Whose calls are counted together; ``tool``: everybody's."""

KeyOf = Callable[[PlannedCall], Hashable]


def rate_key(key: RateKey) -> KeyOf:
    """Return the function that names the owner of a call.

    With the key ``identity``, a caller without an identity counts by its principal: a caller can open any number of
    sessions, and each would begin a new count.
    """
    return caller_part(key) if key != "tool" else lambda _: None


@runtime_checkable
class CountingStage(Protocol):
    """A stage that remembers calls."""

    @property
    def idle(self) -> bool:
        """Tell whether it remembers no call."""


class Rate:
    """At most ``most`` calls of each key in any ``window`` seconds of ``clock``. A refused call does not count."""

    def __init__(
        self, tool: str, most: int, window: float, key_of: KeyOf, clock: Callable[[], float]
    ) -> None:
        """Raises ValueError unless ``most`` and ``window`` are positive."""
        self._tool = tool
        self._calls = SlidingWindow(most, window)
        self._key_of = key_of
        self._clock = clock

    @property
    def idle(self) -> bool:
        """See CountingStage."""
        return not self._calls.counts(self._clock())

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Refuses with the whole seconds after which a call gets through."""
        wait = await self._wait(call)
        if not wait:
            return await forward(call)
        most, window = self._calls.most, self._calls.window
        seconds = float(math.ceil(wait))
        refused = refusals.rate_limited(self._tool, limit=most, window=window, retry_after=seconds)
        raise StageFailed.worded("limits", refused, "rate")

    async def _wait(self, call: PlannedCall) -> float | None:
        """Count a call; return the seconds until there is a place for it, if there is none."""
        return self._calls.admit(self._key_of(call), self._clock())


Spend = Callable[[str, int, float], Awaitable[float]]
"""Counts one use of a key, of so many in so many seconds; returns 0.0, or the seconds until one can be counted."""


class SharedRate(Rate):
    """As Rate, over the calls of all replicas: ``spend`` counts in what they share, and may raise AdapterError.

    ``server`` and ``tool`` tell the keys of one tool from those of others.
    """

    def __init__(self, server: str, tool: str, rate: tuple[int, float], key_of: KeyOf, spend: Spend) -> None:
        super().__init__(tool, *rate, key_of, time.monotonic)
        self._server = server
        self._spend = spend

    async def _wait(self, call: PlannedCall) -> float:
        # A digest, since names of callers may be long, and the counts of one tool must not all lie in one place.
        key = key_of(self._server, self._tool, self._key_of(call))
        return await self._spend(key, self._calls.most, self._calls.window)


class Concurrency:
    """At most ``max_active`` calls at once; ``max_queue`` more wait in the order they came, None: any number, as for
    destructive tools, of which there is one call at a time.

    A call that is cancelled while it waits leaves the queue. If its turn had just come, the next call gets it.
    """

    def __init__(self, tool: str, max_active: int, max_queue: int | None = 0) -> None:
        """Raises ValueError for no active call, or a queue shorter than none."""
        if max_active < 1 or (max_queue is not None and max_queue < 0):
            raise ValueError("There is at least one active call, and a queue of none or more.")
        self._tool = tool
        self._max_active = max_active
        self._max_queue = max_queue
        self._queue: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self.active = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._tool!r}: {self.active} active, {self.queued} queued>"

    @property
    def idle(self) -> bool:
        """See CountingStage. Nobody waits while nobody is active."""
        return not self.active

    @property
    def queued(self) -> int:
        """The number of calls that wait. A cancelled call does not wait, even before it is told."""
        return sum(not turn.done() for turn in self._queue)

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Refuses a call for which there is no place in the queue."""
        await self._enter()
        try:
            return await forward(call)
        finally:
            self._leave()

    async def _enter(self) -> None:
        if self.active < self._max_active:
            self.active += 1
            return
        queued = len(self._queue)
        if self._max_queue is not None and queued >= self._max_queue:
            # Only now is it worth counting those that were cancelled and are not told yet.
            queued = self.queued
            if queued >= self._max_queue:
                refused = refusals.busy(self._tool, active=self.active, queued=queued)
                raise StageFailed.worded("limits", refused, "busy")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        """Give the place to the call that waits longest. ``active`` counts the place all the time, so no new call can
        take it.
        """
        while self._queue:
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1
