"""The processes of one server: as many as are allowed, not too soon after failures, and stopped when idle."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached
from adapter.rules.calls.circuit_breaker import RestartBackoff
from adapter.settings.servers.server import UpstreamSettings
from adapter.upstream.port import ProcessUse
from adapter.upstream.stdio.child import ChildOwner, ChildProcess
from adapter.upstream.stdio.conversation import ChildConversation, StartChild
from adapter.upstream.stdio.failures import backing_off

MOST_BACKOFFS = 1000
"""Principals whose failed starts are remembered."""

SPARE = 60.0
"""Seconds without use after which a process may be stopped to make room for another."""

_LOOKS = 8
"""Looks at the idle processes within the time after which they are stopped."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between failed starts; each is twice the one before."""


@dataclass(eq=False, slots=True)
class Processes:
    """Starts processes of the server ``name`` by ``start``. ``put_to_rest`` is called with a conversation that nobody
    uses, and ends it. After ``spare`` seconds without use a process may be stopped to make room for another.
    """

    name: str
    settings: UpstreamSettings
    start: StartChild
    log: FilteringBoundLogger
    put_to_rest: Callable[[ChildConversation], None]
    spare: float
    # Also those that are being stopped: they are processes as long as anything of them is left.
    _all: dict[ChildConversation, str] = field(default_factory=dict, init=False)
    _closing: dict[ChildConversation, asyncio.Task[None]] = field(default_factory=dict, init=False)
    # Of these, those for which another one waits to start.
    _claimed: set[ChildConversation] = field(default_factory=set, init=False)
    _backoffs: OrderedDict[str, RestartBackoff] = field(default_factory=OrderedDict, init=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Processes of {self.name!r}: {len(self._all)} of {self.settings.max_processes}>"

    @property
    def use(self) -> ProcessUse:
        """The number of processes now, and the most."""
        return ProcessUse(len(self._all), self.settings.max_processes)

    def begin(
        self, series: str, ended: Callable[[ChildConversation], None], *, shared: bool
    ) -> ChildConversation:
        """Start a process. ``series`` names the starts that fail together; ``ended`` is called when it is over.

        Raises LimitReached, and UpstreamUnreachable where the last start of the series failed just now.
        """
        now = asyncio.get_running_loop().time()
        backoff = self._backoffs.get(series)
        if backoff is not None and (wait := backoff.wait(now)):
            raise backing_off(self.name, wait, backoff.reason)
        start = self.start if len(self._all) < self.settings.max_processes else self._start_in_place(now)
        conversation = ChildConversation(
            self.name,
            self.settings.start_timeout_seconds,
            start,
            partial(self._over, ended),
            self.log,
            shared=shared,
        )
        self._all[conversation] = series
        if self._looking is None and self.settings.idle_ttl_seconds is not None:
            self._looking = asyncio.get_running_loop().create_task(self._look(self.settings.idle_ttl_seconds))
        return conversation

    async def close(self) -> None:
        """Stop all processes; returns when nothing of them is left."""
        if self._looking is not None:
            self._looking.cancel()
        for conversation in list(self._all):
            conversation.leave()
        await asyncio.gather(*self._closing.values())

    def _over(self, ended: Callable[[ChildConversation], None], conversation: ChildConversation) -> None:
        now = asyncio.get_running_loop().time()
        self._note(self._all[conversation], conversation, now)
        ended(conversation)
        self._closing[conversation] = asyncio.get_running_loop().create_task(self._close(conversation))

    async def _close(self, conversation: ChildConversation) -> None:
        try:
            await conversation.close()
        finally:
            del self._all[conversation], self._closing[conversation]
            self._claimed.discard(conversation)

    def _note(self, series: str, conversation: ChildConversation, now: float) -> None:
        """Count a start that failed. One that was stopped by the adapter says nothing."""
        if conversation.answered:
            self._backoffs.pop(series, None)
        elif not conversation.was_left:
            backoff = self._backoffs.pop(series, None) or RestartBackoff(FIRST_PAUSE, LONGEST_PAUSE)
            failure = conversation.failure
            backoff.failed(now, "" if failure is None else failure.reason or str(failure))
            self._backoffs[series] = backoff
            if len(self._backoffs) > MOST_BACKOFFS:
                self._backoffs.popitem(last=False)

    # --- idle processes ---------------------------------------------------------------------------------------

    def _start_in_place(self, now: float) -> StartChild:
        """Start when nothing is left of a process that has ended, else of the one that was unused for longest, which is
        stopped for it.

        Raises LimitReached where each was used a short time ago.
        """
        # Each makes room for one.
        leaving = [each for each in self._closing if each not in self._claimed]
        idle = [
            each
            for each in self._all
            if each not in self._closing and each.is_idle and now - each.used >= self.spare
        ]
        if not (leaving or idle):
            raise LimitReached(
                f'The server "{self.name}" has {self.settings.max_processes} processes, as many as '
                "servers[].upstream.max_processes allows. Try again when a session has ended.",
                retry_after=SPARE,
            )
        if leaving:
            place = leaving[0]
        else:
            place = min(idle, key=lambda each: each.used)
            self.put_to_rest(place)
        self._claimed.add(place)
        return partial(self._start_after, self._closing[place])

    async def _start_after(self, closing: asyncio.Task[None], owner: ChildOwner) -> ChildProcess:
        await asyncio.wait((closing,))
        return await self.start(owner)

    async def _look(self, idle_ttl: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.1, idle_ttl / _LOOKS))
            for each in list(self._all):
                if each.is_idle and loop.time() - each.used > idle_ttl:
                    self.put_to_rest(each)
