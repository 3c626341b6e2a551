"""The cleanup with a server that hangs: it holds up neither other servers nor any other task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from adapter import log
from adapter.errors import StoreUnavailable, UpstreamSilent
from adapter.relay.cleanup import Cleanup, CleanupTask
from adapter.relay.server import Server, Timeouts
from adapter.relay.sessions import idle_sessions
from adapter.relay.sessions.idle_sessions import CLOSINGS
from adapter.relay.sessions.session_map import TABLE, SessionLimits
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
)
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from tests.relay.relaying import Relaying
from tests.scripted import ScriptedAnswer, ScriptedReply, ScriptedUpstream
from tests.waiting import until

IDLE = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)


@dataclass
class Closing:
    """An upstream that answers DELETE with ``status``, or hangs while ``hangs``."""

    hangs: bool = False
    status: int = 200
    asked: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        assert request.method == "DELETE"
        self.asked.append(header(request.headers, "mcp-session-id") or "")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0 if not self.hangs else read_timeout or 3600)
        self.at_once -= 1
        if self.hangs:
            raise UpstreamSilent(f"The upstream server sent nothing for {read_timeout} s.")
        return ScriptedReply(ScriptedAnswer(self.status))

    async def close(self) -> None:
        """Nothing to do."""


@dataclass
class Keeping:
    """The cleanup of two servers: ``hanging`` and ``well``."""

    relaying: Relaying = field(default_factory=lambda: Relaying(ScriptedUpstream(), limits=IDLE))
    hanging: Closing = field(default_factory=lambda: Closing(hangs=True))
    well: Closing = field(default_factory=Closing)
    background: int = 0

    def __post_init__(self) -> None:
        timeouts = Timeouts(1.0, 1.0)
        servers = {
            "hanging": Server("hanging", "/h", self.hanging, timeouts=timeouts),
            "well": Server("well", "/w", self.well, timeouts=timeouts),
        }
        relaying, logger = self.relaying, log.get_logger("test")
        idle = replace(relaying.idle, servers=servers)
        self.cleanup = Cleanup(
            60.0,
            (
                CleanupTask("sessions", idle.tend),
                CleanupTask("fails", self.fail),
                CleanupTask("counts", self.count),
            ),
            logger,
        )

    async def count(self) -> None:
        """A task that counts how often it is done."""
        self.background += 1

    async def fail(self) -> None:
        """A task that fails."""
        raise StoreUnavailable

    async def open(self, server: str, count: int) -> None:
        """Sessions that idle away when the clock goes on."""
        relaying = self.relaying
        for number in range(count):
            await relaying.sessions.create(
                SessionRecord(
                    server=server,
                    principal="anonymous",
                    handshake=Handshake(b"{}"),
                    upstream=UpstreamSession(f"{server}-{number}", "2025-11-25"),
                    state=SessionState.OPEN,
                    times=SessionTimes(relaying.clock(), relaying.clock()),
                )
            )


@pytest.fixture
def keeping() -> Keeping:
    return Keeping()


async def test_others_are_tended_while_one_server_hangs(keeping: Keeping) -> None:
    """The other server's sessions rest, and background tasks are done, before the first one's time-out is over."""
    await keeping.open("hanging", 20)
    await keeping.open("well", 20)
    keeping.relaying.clock.now += 11
    keeping.hanging.hangs = True
    round_ = asyncio.create_task(keeping.cleanup.run_once())
    await until(lambda: not (keeping.relaying.sessions.active > 20 or not keeping.background))
    assert not round_.done() and len(keeping.well.asked) == 20
    await round_
    assert keeping.relaying.sessions.active == 20


async def test_server_that_does_not_answer_is_asked_no_more_in_that_round(keeping: Keeping) -> None:
    """A few of its sessions find out for all; the next round is asked again, and then all are closed."""
    await keeping.open("hanging", 20)
    keeping.relaying.clock.now += 11
    await keeping.cleanup.run_once()
    assert len(keeping.hanging.asked) == CLOSINGS
    await keeping.cleanup.run_once()
    assert len(keeping.hanging.asked) == CLOSINGS
    keeping.hanging.hangs = False
    keeping.relaying.clock.now += 61
    await keeping.cleanup.run_once()
    assert len(set(keeping.hanging.asked)) == 20 and keeping.relaying.sessions.active == 0


async def test_few_sessions_of_one_server_are_closed_at_once(keeping: Keeping) -> None:
    """However many end together."""
    await keeping.open("well", 100)
    keeping.relaying.clock.now += 11
    await keeping.cleanup.run_once()
    assert len(keeping.well.asked) == 100 and 0 < keeping.well.most_at_once <= CLOSINGS


async def test_many_sessions_of_a_hanging_server_stand_in_no_others_way(keeping: Keeping) -> None:
    """More than one look at the store brings, and all due before the other server's."""
    await keeping.open("hanging", 600)
    keeping.relaying.clock.now += 1
    await keeping.open("well", 5)
    keeping.relaying.clock.now += 11
    for _ in range(2):
        await keeping.cleanup.run_once()
    assert len(keeping.well.asked) == 5


async def test_server_that_answers_with_an_error_keeps_its_sessions_due(keeping: Keeping) -> None:
    """It may close them later; each is asked about once in a round."""
    await keeping.open("well", 10)
    keeping.relaying.clock.now += 11
    keeping.well.status = 503
    await keeping.cleanup.run_once()
    assert len(keeping.well.asked) == 10 and keeping.relaying.sessions.active == 10
    keeping.well.status = 404
    keeping.relaying.clock.now += 61
    await keeping.cleanup.run_once()
    assert keeping.relaying.sessions.active == 0


async def test_round_that_is_under_way_is_left_when_the_adapter_stops(keeping: Keeping) -> None:
    """Nothing of it goes on behind the cleanup's end."""
    await keeping.open("hanging", 3)
    keeping.relaying.clock.now += 11
    keeping.cleanup.interval = 0.01
    running = asyncio.create_task(keeping.cleanup.run())
    await until(lambda: keeping.hanging.asked)
    running.cancel()
    await asyncio.wait([running])
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


class FailingStore(MemoryStore):
    """Fails once to write a row, when it is told to; ``late`` holds back writes that come later."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.late = asyncio.Event()

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        if self.fails:
            self.fails = False
            raise StoreUnavailable("The disk is full.")
        await self.late.wait()
        return await super().put(table, key, value, expected=expected, due=due)


async def test_nothing_of_a_round_goes_on_when_its_part_has_failed() -> None:
    """The sessions that were being closed beside the one that failed are done first, and no others are begun."""
    store = FailingStore()
    store.late.set()
    keeping = Keeping(Relaying(ScriptedUpstream(), limits=IDLE, store=store))
    await keeping.open("well", 20)
    keeping.relaying.clock.now += 11
    store.late.clear()
    store.fails = True
    round_ = asyncio.create_task(keeping.cleanup.run_once())
    await until(lambda: not (len(keeping.well.asked) < CLOSINGS or store.fails))
    await asyncio.sleep(0.01)
    assert not round_.done()
    store.late.set()
    await round_
    assert len(keeping.well.asked) == CLOSINGS and keeping.relaying.sessions.active == 20 - CLOSINGS + 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_sessions_that_cannot_be_read_stand_in_no_others_way() -> None:
    """Those of another version, say; however many they are, others are tended in the next round at the latest."""
    keeping = Keeping()
    for number in range(600):
        await keeping.relaying.store.put(TABLE, f"odd-{number}", b"?", due=keeping.relaying.clock() - 1)
    await keeping.open("well", 5)
    keeping.relaying.clock.now += 11
    for _ in range(2):
        await keeping.cleanup.run_once()
    assert len(keeping.well.asked) == 5 and keeping.relaying.sessions.active == 0
    assert await keeping.relaying.store.count(TABLE) == 605


async def test_more_than_may_wait_are_closed_in_one_round_all_the_same(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left for later where no other server has work."""
    monkeypatch.setattr(idle_sessions, "MOST_WAITING", 100)
    await keeping.open("well", 1600)
    keeping.relaying.clock.now += 11
    await keeping.cleanup.run_once()
    assert len(keeping.well.asked) == 1600


async def test_sessions_with_nothing_to_close_leave_others_their_turns(keeping: Keeping) -> None:
    """Nothing is waited for at a server, and other tasks go on all the same."""
    for _ in range(2000):
        await keeping.relaying.open(state=SessionState.REVOKED)
    keeping.relaying.clock.now += 101
    round_ = asyncio.create_task(keeping.cleanup.run_once())
    turns = 0
    while not round_.done():
        await asyncio.sleep(0)
        turns += 1
    assert await keeping.relaying.store.count(TABLE) == 0 and turns > 100
