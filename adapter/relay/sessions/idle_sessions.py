"""The cleanup's part for sessions: idle ones rest, and ended ones are closed upstream.

A round is as long as its work. Few sessions of one server are closed at the same time, and no server that is slow or
silent holds up the others for long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.server import Servers
from adapter.relay.sessions.inner_client import CLOSE_SILENCE
from adapter.relay.sessions.session import Session
from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.relay.sessions.upstream_sessions import close_kept
from adapter.rules.access.sessions import Event, SessionRecord, SessionState, advance, decode, encode
from adapter.state.port import Conflict, Row

USUAL = 60.0
"""Seconds between two rounds."""

ALONE = 300.0
"""Seconds between two rounds of a process that has its store to itself: its cleanup writes the times too."""

SHORTEST_ROUND = 0.25
"""Seconds between two rounds where sessions may idle for hardly any time."""

PAGE = 500
"""Last-seen times that are written together."""


class LastSeen:
    """Writes the last-seen times of a process. ``others`` write in the same rounds, and raise StoreUnavailable."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._cache = sessions.cache
        self._store = sessions.store
        self._idle_ttl = sessions.limits.idle_ttl
        self.others: list[Callable[[], Awaitable[None]]] = []

    @property
    def interval(self) -> float:
        """Seconds between two rounds: often enough that no other process takes a session in use here for idle."""
        if not self._store.shared:
            return ALONE
        if self._idle_ttl is None:
            return USUAL
        return min(USUAL, max(SHORTEST_ROUND, self._idle_ttl / 4))

    async def run(self) -> None:
        """Write and forget at regular times, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._cache.crowded.wait()
            # A round that failed is made up for by the next one: nothing is forgotten that is not written.
            with contextlib.suppress(StoreUnavailable):
                await self.write()
                for write in self.others:
                    await write()
            await self._cache.forget_unused(self._sessions.clock())
            # Where too many are in use, nobody gains by looking for others at once.
            await asyncio.sleep(SHORTEST_ROUND)

    async def write(self) -> None:
        """Write the times of the sessions used since the last call. Raises StoreUnavailable."""
        # A tombstone keeps its time until it is revived.
        used = [
            session
            for session in self._cache.open.values()
            if (session.touched or session.in_flight) and not session.asleep
        ]
        for start in range(0, len(used), PAGE):
            await self._write(used[start : start + PAGE])
            # A store in memory makes nobody wait.
            await asyncio.sleep(0)

    async def _write(self, used: list[Session]) -> None:
        dues = {session.key: self._due(session) for session in used}
        for session in used:
            session.touched = False
        if self._idle_ttl is None:
            return
        try:
            await self._store.touch(TABLE, dues)
        except BaseException:
            for session in used:
                session.touched = True
            raise

    def _due(self, session: Session) -> float:
        ttl = self._idle_ttl or 0.0
        if session.in_flight and self._store.shared:
            # It is in use for as long as its requests take, which no other process can see.
            return self._sessions.clock() + max(ttl, 2 * self.interval)
        return session.last_seen + ttl


SHORTEST = 1.0
"""Seconds by which a session is put off at least, so that a round never looks at the same ones without a pause."""

CLOSINGS = 4
"""Sessions of one server that are closed at the same time."""

PAGE_SECONDS = 10.0
"""Seconds after which no more sessions of a page are begun: a slow server's others come when they are due again."""

UNREADABLE_REST = 3600.0
"""Seconds after which the cleanup looks again at sessions that this version cannot read."""


class DueSession(NamedTuple):
    """A session whose time has come. ``put_off``: Unix seconds until which it stands in no other's way."""

    row: Row
    record: SessionRecord
    put_off: float


@dataclass(slots=True)
class IdleSessions:
    """Finds the sessions whose time has come, and writes what becomes of them.

    One that could not be tended is left alone for ``again`` seconds.
    """

    sessions: Sessions
    last_seen: LastSeen
    servers: Servers
    again: float
    log: FilteringBoundLogger

    async def tend(self) -> None:
        """Tend all sessions whose time has come. Raises StoreUnavailable."""
        await self.last_seen.write()
        stopped: set[str] = set()
        working: dict[str, asyncio.Task[None]] = {}
        try:
            while (page := await self.overdue(self.again)) or working:
                of_servers: dict[str, list[DueSession]] = defaultdict(list)
                for due in page:
                    of_servers[due.record.server].append(due)
                for server, dues in of_servers.items():
                    # One that is still at its sessions of an earlier page has these when they are due again.
                    if server not in working and server not in stopped:
                        working[server] = asyncio.create_task(self._tend_all(server, dues, stopped))
                if working:
                    # No longer, so that a server that does not answer keeps no others waiting.
                    await asyncio.wait(working.values(), timeout=SHORTEST)
                for server in [server for server, task in working.items() if task.done()]:
                    await working.pop(server)
        finally:
            # None may go on after the store was closed.
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)

    async def _tend_all(self, server: str, dues: Iterable[DueSession], stopped: set[str]) -> None:
        """Tend a server's sessions of a page, a few at the same time."""
        until, waiting = asyncio.get_running_loop().time() + PAGE_SECONDS, iter(dues)
        # All of them end, also where one fails.
        ended = await asyncio.gather(
            *(self._work(server, waiting, stopped, until) for _ in range(CLOSINGS)), return_exceptions=True
        )
        for failure in ended:
            if failure is not None:
                raise failure

    async def _work(
        self, server: str, waiting: Iterable[DueSession], stopped: set[str], until: float
    ) -> None:
        """Tend what ``waiting`` has, beside others who do, until the server is one that has ``stopped`` answering."""
        loop = asyncio.get_running_loop()
        for due in waiting:
            if server in stopped or loop.time() > until:
                return
            answered = False
            try:
                answered = await self._tend(due)
            finally:
                if not answered:
                    stopped.add(server)
            # Where nothing is waited for at the server or the store, others would never have a turn.
            await asyncio.sleep(0)

    async def _tend(self, due: DueSession) -> bool:
        """Lay an idle session to rest, or forget one that has ended. False if the upstream does not answer."""
        is_open = due.record.state is SessionState.OPEN
        if is_open and not await self.is_idle(due):
            return True
        # Closed first: if the client comes back in between, the upstream's 404 renews its session.
        try:
            closed = await self._close_upstream(due.record)
        except AdapterError as error:
            self.log.info(
                "upstream sessions are still to be closed", server=due.record.server, why=error.code
            )
            return False
        if closed and is_open:
            await self.lay_to_rest(due)
        elif closed:
            await self.forget(due.row)
        return True

    async def _close_upstream(self, record: SessionRecord) -> bool:
        """Tell whether there is nothing left to close. A server no longer configured cannot be asked.

        Raises what the upstream raises.
        """
        server = self.servers.get(record.server)
        if server is None:
            return True
        # Any request may be set to take less.
        return await close_kept(server, record, min(CLOSE_SILENCE, server.timeouts.request))

    # --- one session ------------------------------------------------------------------------------------------

    async def overdue(self, put_off: float = 0.0) -> list[DueSession]:
        """The sessions that have been due for longest, which is a page of them; they are put off by so many seconds,
        so that the next page has others. Raises StoreUnavailable.
        """
        store, found = self.sessions.store, list[DueSession]()
        now = self.sessions.clock()
        while not found and (rows := await store.overdue(TABLE, now)):
            dues: dict[str, float] = {}
            for row in rows:
                try:
                    record = decode(row.value)
                except ValueError:  # one that another version wrote harms no other
                    dues[row.key] = now + UNREADABLE_REST
                    continue
                dues[row.key] = now + self._delay(record, put_off)
                found.append(DueSession(row, record, dues[row.key]))
            if len(found) < len(rows):
                self.log.warning(
                    "sessions cannot be read and are passed over",
                    count=len(rows) - len(found),
                    setting="state_persistence",
                )
            await store.touch(TABLE, {key: due for key, due in dues.items() if due > now})
        return found

    def _delay(self, record: SessionRecord, put_off: float) -> float:
        """The seconds by which a session is put off.

        Half of the time that a session may idle at most: any use that is not written yet moves it further, so its row
        still tells if it was used.
        """
        ttl = self.sessions.limits.idle_ttl
        return min(put_off, max(SHORTEST, ttl / 2)) if record.state is SessionState.OPEN and ttl else put_off

    async def is_idle(self, due: DueSession) -> bool:
        """Tell whether nobody has used that session for ``sessions.idle_ttl_seconds``: here, or elsewhere since its row
        was read. Raises StoreUnavailable.
        """
        if not self._is_idle_here(due.row.key):
            return False
        if not self.sessions.store.shared:
            return True
        now = await self.sessions.store.get(TABLE, due.row.key)
        return now is not None and now.version == due.row.version and (now.due or 0.0) <= due.put_off

    def _is_idle_here(self, key: str) -> bool:
        session = self.sessions.cache.get(key)
        if session is None:
            return True
        ttl = self.sessions.limits.idle_ttl or 0.0
        return not session.in_flight and self.sessions.clock() >= session.last_seen + ttl

    async def lay_to_rest(self, due: DueSession) -> None:
        """Turn an idle session into a tombstone, unless it was used meanwhile. Raises StoreUnavailable."""
        row, slots = due.row, self.sessions.slots
        if not await self.is_idle(due):
            return
        slot = None if slots is None else await slots.of(row.key)
        record = self.sessions.last_known(row)
        resting = replace(
            record,
            state=advance(record.state, Event.EXPIRED_IDLE),
            upstream=record.upstream._replace(id=None),
        )
        with contextlib.suppress(Conflict):
            due_then = self.sessions.due(resting)
            await self.sessions.store.put(TABLE, row.key, encode(resting), expected=row.version, due=due_then)
            self.sessions.cache.written(row.key)
            self.sessions.cache.drop(row.key)
            if slots is not None:
                await slots.give_back(row.key, slot)
            if self.sessions.on_event is not None:
                self.sessions.on_event(record.server, "idle")

    async def forget(self, row: Row) -> None:
        """Delete a session whose time is over and whose upstream session is closed, unless it was revived since ``row``
        was read. Raises StoreUnavailable.
        """
        with contextlib.suppress(Conflict):
            if await self.sessions.store.delete(TABLE, row.key, expected=row.version):
                self.sessions.cache.written(row.key)
                self.sessions.cache.drop(row.key)
                await self.sessions.tell_end(row.key)
