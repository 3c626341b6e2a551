"""Cleanup at regular times: idle sessions rest, ended ones are closed upstream, other tasks run beside.

No task waits for another one, and each server has a task of its own. A task of an earlier round that still runs is
not started a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.replies import discard
from adapter.relay.server import Servers
from adapter.relay.sessions.own_session import CLOSE_SILENCE
from adapter.relay.sessions.session_map import Found, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.rules.access.sessions import SessionRecord, SessionState
from adapter.state.port import Row

CLOSINGS = 4
"""Sessions of one server that are closed at the same time."""

UNREADABLE_REST = 3600.0
"""Seconds after which the cleanup looks again at sessions that this version cannot read."""


@dataclass(slots=True)
class Cleanup:
    """Runs a round every ``interval`` seconds until cancelled: over the sessions, and of each of ``tasks``.

    No round begins while it ``is_paused``.
    """

    sessions: Sessions
    upstream_sessions: UpstreamSessions
    servers: Servers
    interval: float
    log: FilteringBoundLogger
    tasks: tuple[Callable[[], Awaitable[None]], ...] = ()
    is_paused: Callable[[], bool] = field(default=bool, init=False)
    _under_way: dict[Hashable, asyncio.Task[None]] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self.interval)
                if not self.is_paused():
                    self._begin_round()
        finally:
            under_way = list(self._under_way.values())
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def run_once(self) -> None:
        """One round to its end. An upstream that fails is left for the next round."""
        self._begin_round()
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    def _begin_round(self) -> None:
        self._begin("sessions", self._tend_sessions)
        for number, task in enumerate(self.tasks):
            self._begin(number, task)

    def _begin(self, name: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Start a part of the round, unless that of an earlier round is still under way."""
        if name not in self._under_way:
            self._under_way[name] = asyncio.get_running_loop().create_task(self._do(name, work))

    async def _do(self, name: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except AdapterError as error:
            self.log.warning("the cleanup could not finish its round", why=str(error))
        except Exception:
            # A defect in one round must not end all later ones.
            self.log.exception("the cleanup's round failed unexpectedly")
        finally:
            del self._under_way[name]

    async def _tend_sessions(self) -> None:
        await self.sessions.write_last_seen()
        by_server: dict[str, Found] = {}
        overdue = await self.sessions.overdue()
        for row, record in overdue.found:
            by_server.setdefault(record.server, []).append((row, record))
        if overdue.unreadable:
            self.log.warning(
                "sessions cannot be read and are passed over",
                count=len(overdue.unreadable),
                setting="state_persistence",
            )
            await self.sessions.put_off(overdue.unreadable, UNREADABLE_REST)
        # All are put off, so that the sessions of a server that does not answer delay no others in the next round.
        await self.sessions.put_off([row.key for row, _ in overdue.found], self.interval)
        for server, found in by_server.items():
            self._begin(("server", server), partial(self._tend_server, found))

    async def _tend_server(self, found: Found) -> None:
        """Tend the sessions of one server until it does not answer."""
        left = iter(found)
        answers = True

        async def tend() -> None:
            nonlocal answers
            for row, record in left:
                if not answers:
                    return
                answered = False
                try:
                    answered = await self._tend(row, record)
                finally:
                    answers = answers and answered

        # Wait for all of them also where one fails: none may go on after the store was closed.
        outcomes = await asyncio.gather(*(tend() for _ in range(CLOSINGS)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _tend(self, row: Row, record: SessionRecord) -> bool:
        """Lay an idle session to rest, or forget one that has ended. False if the upstream does not answer."""
        is_open = record.state is SessionState.OPEN
        if is_open and not self.sessions.is_idle(row.key):
            return True
        # Closed first: if the client comes back in between, the upstream's 404 renews its session.
        try:
            closed = await self._close_upstream(record)
        except AdapterError as error:
            self.log.info("upstream sessions are still to be closed", server=record.server, why=error.code)
            return False
        if closed and is_open:
            await self.sessions.lay_to_rest(row, record)
        elif closed:
            await self.sessions.closed(row)
        return True

    async def _close_upstream(self, record: SessionRecord) -> bool:
        """Tell whether there is nothing left to close. A server no longer configured cannot be asked.

        Raises what the upstream raises.
        """
        server = self.servers.get(record.server)
        if server is None:
            return True
        # Any request may be set to take less.
        read_timeout = min(CLOSE_SILENCE, server.timeouts.request)
        reply = await self.upstream_sessions.close(server, record, read_timeout=read_timeout)
        if reply is not None:
            await discard(reply, read_timeout)
        return reply is None or reply.status < 500
