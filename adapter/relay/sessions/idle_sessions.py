"""The cleanup's part for sessions: idle ones rest, and ended ones are closed upstream.

A round is as long as its work. Each server has a queue of its own, and few sessions of it are closed at the same time;
no server waits for another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
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
                    await self._sessions.cache.crowded.wait()
            # A round that failed is made up for by the next one: nothing is forgotten that is not written.
            with contextlib.suppress(StoreUnavailable):
                await self.write()
                for write in self.others:
                    await write()
            await self._sessions.cache.forget_unused(self._sessions.clock())
            # Where too many are in use, nobody gains by looking for others at once.
            await asyncio.sleep(SHORTEST_ROUND)

    async def write(self) -> None:
        """Write the times of the sessions used since the last call. Raises StoreUnavailable."""
        # A tombstone keeps its time until it is revived.
        used = [
            session
            for session in self._sessions.cache.open.values()
            if (session.touched or session.in_flight) and not session.asleep
        ]
        for start in range(0, len(used), PAGE):
            await self._write(used[start : start + PAGE])
            # A store in memory makes nobody wait.
            await asyncio.sleep(0)

    async def _write(self, used: list[Session]) -> None:
        dues = {session.key: due for session in used if (due := self._due(session)) is not None}
        for session in used:
            session.touched = False
        if not dues:
            return
        try:
            await self._store.touch(TABLE, dues)
        except BaseException:
            for session in used:
                session.touched = True
            raise

    def _due(self, session: Session) -> float | None:
        ttl = self._sessions.limits.idle_of(session.idle)
        if ttl is None:
            return None
        if session.in_flight and self._store.shared:
            # It is in use for as long as its requests take, which no other process can see.
            return self._sessions.clock() + max(ttl, 2 * self.interval)
        return session.last_seen + ttl


SHORTEST = 1.0
"""Seconds by which a session is put off at least, so that a round never looks at the same ones without a pause."""

CLOSINGS = 4
"""Sessions of one server that are closed at the same time."""

MOST_WAITING = 10_000
"""Sessions of one server that wait to be closed. While other servers have work too, others of it are left for later."""

ROOM_WAIT = 5.0
"""Seconds for which the only server with work is waited for, where it has as many sessions waiting as may."""

UNREADABLE_REST = 3600.0
"""Seconds after which the cleanup looks again at sessions that this version cannot read."""


class DueSession(NamedTuple):
    """A session whose time has come: its ``row`` and the id of its server. ``put_off``: Unix seconds until which it
    stands in no other's way.

    Thousands wait to be tended, so the record is read from the row again when it is this one's turn.
    """

    row: Row
    server: str
    put_off: float


class Overdue(NamedTuple):
    """Sessions whose time has come; ``unreadable`` are the keys of those that this version cannot read."""

    found: list[DueSession]
    unreadable: list[str]


@dataclass(slots=True)
class ServerClosings:
    """The sessions of one server that wait to be tended in one round, by their keys.

    ``tend`` returns False if the server does not answer; then the others are left for the next round, and also where it
    fails.
    """

    tend: Callable[[DueSession], Awaitable[bool]]
    waiting: dict[str, DueSession] = field(default_factory=dict)
    answers: bool = True
    workers: list[asyncio.Task[None]] = field(default_factory=list)
    room: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def busy(self) -> list[asyncio.Task[None]]:
        """The workers that are not done."""
        return [worker for worker in self.workers if not worker.done()]

    @property
    def is_full(self) -> bool:
        """True while as many sessions wait as may."""
        return len(self.waiting) >= MOST_WAITING

    async def wait_for_room(self) -> None:
        """Wait until half of the sessions that may wait do, or for some seconds: a slow server holds up no others."""
        self.room.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_WAIT):
                await self.room.wait()

    def add(self, due: DueSession) -> None:
        """Have a session tended, once for one that is found again while it waits."""
        if self.answers:
            self.waiting[due.row.key] = due
            if len(self.busy) < CLOSINGS:
                self.workers = [*self.busy, asyncio.get_running_loop().create_task(self._work())]

    def stop(self) -> None:
        """Leave what has not begun for the next round."""
        self.answers = False
        self.waiting.clear()
        self.room.set()

    async def _work(self) -> None:
        while self.waiting:
            due = self.waiting.pop(next(iter(self.waiting)))
            answered = False
            try:
                answered = await self.tend(due)
            finally:
                if not answered:
                    self.stop()
            if len(self.waiting) <= MOST_WAITING // 2:
                self.room.set()
            # Where nothing is waited for at the server or the store, others would never have a turn.
            await asyncio.sleep(0)


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
        round_: dict[str, ServerClosings] = {}
        try:
            while await self._page(round_) or await _some_work(round_, self.again):
                pass
        except asyncio.CancelledError:
            for worker in _busy(round_):
                worker.cancel()
            raise
        finally:
            for closings in round_.values():
                closings.stop()
            # Wait for all of them also where one fails: none may go on after the store was closed.
            workers = [worker for closings in round_.values() for worker in closings.workers]
            await asyncio.gather(*workers, return_exceptions=True)

    async def _page(self, round_: dict[str, ServerClosings]) -> bool:
        """Queue the sessions that have been due for longest; False if there are none."""
        overdue = await self.overdue(self.again)
        if overdue.unreadable:
            self.log.warning(
                "sessions cannot be read and are passed over",
                count=len(overdue.unreadable),
                setting="state_persistence",
            )
            rest = self.sessions.clock() + UNREADABLE_REST
            await self.sessions.store.touch(TABLE, dict.fromkeys(overdue.unreadable, rest))
        for due in overdue.found:
            closings = round_.setdefault(due.server, ServerClosings(self._tend))
            if closings.is_full and len(_busy(round_)) == len(closings.busy):
                await closings.wait_for_room()
            if not closings.is_full:
                closings.add(due)
        # A store in memory makes nobody wait, and a page takes some milliseconds.
        await asyncio.sleep(0)
        return bool(overdue.found or overdue.unreadable)

    async def _tend(self, due: DueSession) -> bool:
        """Lay an idle session to rest, or forget one that has ended. False if the upstream does not answer."""
        record = decode(due.row.value)
        is_open = record.state is SessionState.OPEN
        if is_open and not await self.is_idle(due):
            return True
        # Closed first: if the client comes back in between, the upstream's 404 renews its session.
        try:
            closed = await self._close_upstream(record)
        except AdapterError as error:
            self.log.info("upstream sessions are still to be closed", server=record.server, why=error.code)
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

    async def overdue(self, put_off: float = 0.0) -> Overdue:
        """The sessions that have been due for longest, which is a page of them; they are put off by so many seconds,
        so that the next page has others. Raises StoreUnavailable.
        """
        overdue = Overdue([], [])
        now = self.sessions.clock()
        dues: dict[str, float] = {}
        for row in await self.sessions.store.overdue(TABLE, now):
            try:
                record = decode(row.value)
            except ValueError:  # one that another version wrote harms no other
                overdue.unreadable.append(row.key)
                continue
            dues[row.key] = now + self._delay(record, put_off)
            overdue.found.append(DueSession(row, record.server, dues[row.key]))
        if put_off:
            await self.sessions.store.touch(TABLE, dues)
        return overdue

    def _delay(self, record: SessionRecord, put_off: float) -> float:
        """The seconds by which a session is put off.

        Half of the time that a session may idle at most: any use that is not written yet moves it further, so its row
        still tells if it was used.
        """
        ttl = self.sessions.limits.idle_of(record.times.idle)
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
        ttl = self.sessions.limits.idle_of(session.idle) or 0.0
        return not session.in_flight and self.sessions.clock() >= session.last_seen + ttl

    async def lay_to_rest(self, due: DueSession) -> None:
        """Turn an idle session into a tombstone, or delete one that is over by its own limit, unless it was used
        meanwhile. Raises StoreUnavailable.
        """
        row, sessions, store = due.row, self.sessions, self.sessions.store
        if not await self.is_idle(due):
            return
        slot = None if sessions.slots is None else await sessions.slots.of(row.key)
        record = sessions.last_known(row)
        rests = sessions.limits.rests(record.times.idle)
        resting = replace(
            record,
            state=advance(record.state, Event.EXPIRED_IDLE),
            upstream=record.upstream._replace(id=None),
        )
        with contextlib.suppress(Conflict):
            if rests:
                due_then = sessions.due(resting)
                await store.put(TABLE, row.key, encode(resting), expected=row.version, due=due_then)
            else:
                await store.delete(TABLE, row.key, expected=row.version)
            sessions.cache.changed(row.key)
            sessions.cache.drop(row.key)
            if sessions.slots is not None:
                await sessions.slots.give_back(row.key, slot)
            if sessions.on_event is not None:
                sessions.on_event(due.server, "idle" if rests else "ended")
            if not rests:
                await sessions.tell_end(row.key)

    async def forget(self, row: Row) -> None:
        """Delete a session whose time is over and whose upstream session is closed, unless it was revived since ``row``
        was read. Raises StoreUnavailable.
        """
        with contextlib.suppress(Conflict):
            if await self.sessions.store.delete(TABLE, row.key, expected=row.version):
                self.sessions.cache.changed(row.key)
                self.sessions.cache.drop(row.key)
                await self.sessions.tell_end(row.key)


def _busy(round_: dict[str, ServerClosings]) -> list[asyncio.Task[None]]:
    return [worker for closings in round_.values() for worker in closings.busy]


async def _some_work(round_: dict[str, ServerClosings], most: float) -> bool:
    """Wait until some worker is done, or for ``most`` seconds: sessions of other servers become due while one of them
    does not answer. False if there is no work. Raises what a worker raises.
    """
    busy = _busy(round_)
    if busy:
        timeout = None if math.isinf(most) else most
        await asyncio.wait(busy, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for closings in round_.values():
        for worker in closings.workers:
            if worker.done():
                worker.result()
    return bool(busy)
