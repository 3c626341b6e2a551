"""Everything at once and at random: whatever fails and whoever leaves, the invariants of the registry hold."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from adapter.errors import AdapterError, StorageFailed, StorageFull, StoreUnavailable
from adapter.relay.files.storage_total import COUNT_EVERY, RENEWAL, TABLE
from adapter.rules.access.principals import Scope, session_scope
from adapter.rules.files.file_records import FileKind, FileRecord, decode
from tests.relay.filing import ALICE, BOB, Filing, all_open, replicas, view

QUOTA = 1000
TOTAL = 1500
ARTIFACTS = 5


class Visitor:
    """Does one thing after another with the registry, each drawn from a seed; may be cancelled anywhere."""

    def __init__(self, filing: Filing, told: list[FileRecord], seed: int) -> None:
        self.filing = filing
        self.told = told
        self.random = random.Random(seed)

    async def visit(self, times: int) -> None:
        for _ in range(times):
            act = self.random.choice(
                (self.upload, self.upload, self.upload, self.artifact, self.use, self.tend)
            )
            task = asyncio.ensure_future(act(self.random.choice((ALICE, ALICE, BOB))))
            if self.random.random() < 0.3:
                for _ in range(self.random.randrange(30)):
                    await asyncio.sleep(0)
                task.cancel()
            with contextlib.suppress(AdapterError, asyncio.CancelledError):
                await task

    async def upload(self, scope: Scope) -> None:
        sizes = [self.random.randrange(400) for _ in range(self.random.randrange(1, 4))]
        self.told += await self.filing.upload(*(b"x" * size for size in sizes), scope=scope)

    async def artifact(self, scope: Scope) -> None:
        content, file_id = b"a" * self.random.randrange(500), f"{self.random.getrandbits(128):032x}"
        self.told.append(await self.filing.artifact(content, file_id=file_id, scope=scope))

    async def use(self, scope: Scope) -> None:
        # Files that somebody was told of: those whose sender goes away meanwhile are taken back, used or not.
        if records := [record for record in await self.filing.held(scope) if record in self.told]:
            record = self.random.choice(records)
            release = await self.filing.registry.hold(record)
            try:
                for _ in range(self.random.randrange(10)):
                    await asyncio.sleep(0)
                    assert record in await self.filing.held(scope), "a held file went"
            finally:
                release()

    async def tend(self, scope: Scope) -> None:
        self.filing.clock.now += self.random.randrange(60)
        await self.filing.registry.tidy_own()
        await self.filing.registry.tidy()
        if records := await self.filing.held(scope):
            await self.filing.registry.read(self.random.choice(records))


async def watch(filing: Filing) -> None:
    """Fails at the first instant at which something is too much."""
    while True:
        for scope in (ALICE, BOB):
            assert filing.registry.used(scope.id) <= QUOTA
        rows = [decode(row.value) for row in await filing.store.scan(TABLE)]
        for scope in (ALICE, BOB):
            assert sum(record.content.size for record in rows if record.scope == scope.id) <= QUOTA
        assert {record.place for record in rows} <= set(filing.files.placed), "a row without its file"
        staged = sum(staging.size for staging in filing.files.stagings)
        assert filing.registry.total + staged <= TOTAL
        assert sum(record.content.size for record in rows) + staged <= TOTAL
        await asyncio.sleep(0)


async def break_things(filing: Filing, seed: int) -> None:
    """Lets one step after another fail for a while."""
    draw = random.Random(seed)
    while True:
        step = draw.choice(("write", "finish", "place", "rows", "touch"))
        failure = draw.choice((StorageFull(), StorageFailed(), StoreUnavailable()))
        filing.steps.fail(step, failure)
        try:
            for _ in range(draw.randrange(5)):
                await asyncio.sleep(0)
        finally:
            filing.steps.heal(step)
        for _ in range(draw.randrange(60)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_invariants_hold_whatever_happens(seed: int) -> None:
    """No quota is exceeded at any instant, no row is without its file, no file that is held goes, and in the end
    rows, files and bytes counted are one set with nothing reserved – for this process and for the next."""
    filing = Filing(scope_bytes=QUOTA, total_bytes=TOTAL, artifacts=ARTIFACTS)
    watching = asyncio.ensure_future(watch(filing))
    breaking = asyncio.ensure_future(break_things(filing, seed))
    told: list[FileRecord] = []
    await asyncio.gather(*(Visitor(filing, told, seed * 100 + number).visit(25) for number in range(8)))
    breaking.cancel()
    await asyncio.wait([breaking])
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert await filing.agrees()
    assert await all_open(filing) and await all_open(filing, BOB)
    await filing.registry.tidy_own()
    await filing.registry.tidy()
    held = {record.key for record in await filing.held(ALICE) + await filing.held(BOB)}
    await filing.restart()
    assert {record.key for record in await filing.held(ALICE) + await filing.held(BOB)} == held
    assert await filing.agrees()


class ReplicaVisitor(Visitor):
    """As a visitor of one process, and does what a replica does again and again."""

    async def tend(self, scope: Scope) -> None:
        await self.filing.registry.tend()
        await super().tend(scope)


async def watch_rows(filing: Filing) -> None:
    """Fails at the first instant at which all replicas together have too much, or have what is not there."""
    while True:
        rows = [decode(row.value) for row in await filing.shared_rows()]
        for scope in (ALICE, BOB):
            mine = [record for record in rows if record.scope == scope.id]
            assert sum(record.content.size for record in mine) <= QUOTA
            assert sum(record.kind is FileKind.ARTIFACT for record in mine) <= ARTIFACTS
        await asyncio.sleep(0)


async def break_connections(some: list[Filing], seed: int) -> None:
    """Cuts one replica after another off, makes it deaf, or lets a write only seem to fail."""
    draw = random.Random(seed)
    while True:
        store = view(draw.choice(some))
        match draw.randrange(3):
            case 0:
                store.down = True
            case 1:
                store.deaf = True
            case _:
                store.swallows = 1
        try:
            for _ in range(draw.randrange(8)):
                await asyncio.sleep(0)
        finally:  # a replica that went on deaf would rightly know nothing of what the others then do
            store.down = store.deaf = False
            store.unsure()
        for _ in range(draw.randrange(80)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_invariants_hold_whatever_replicas_do(seed: int) -> None:
    """As for one process, over three: however late a replica hears of the others, and whatever it is told of its own
    writes."""
    limits = {"scope_bytes": QUOTA, "total_bytes": TOTAL, "artifacts": ARTIFACTS}
    async with replicas(3, **limits) as some:
        watching = asyncio.ensure_future(watch_rows(some[0]))
        breaking = asyncio.ensure_future(break_connections(some, seed))
        told: list[FileRecord] = []
        visitors = [ReplicaVisitor(some[number % 3], told, seed * 100 + number) for number in range(9)]
        await asyncio.gather(*(visitor.visit(20) for visitor in visitors))
        breaking.cancel()
        await asyncio.wait([breaking])
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        for each in some:
            view(each).swallows = 0
            view(each).unsure()
        for _ in range(200):
            for each in some:
                each.now.now += RENEWAL / 3
                await each.registry.tend()
        some[0].now.now += 301  # what somebody has left behind is old enough to be swept
        for each in some:
            await each.registry.tend()
            await each.registry.tidy_own()
            await each.registry.tidy()
        for each in some:
            assert await each.agrees()
            assert await all_open(each) and await all_open(each, BOB)
        some[0].now.now += COUNT_EVERY
        for _ in range(10):
            for each in some:
                each.now.now += RENEWAL / 3
                await each.registry.tend()
        records = [*await some[0].held(ALICE), *await some[0].held(BOB)]
        free = TOTAL - sum(record.content.size for record in records)
        for letter, size in ("c", min(free, QUOTA)), ("d", max(0, free - QUOTA)):
            await some[0].begin(b"x" * size, scope=session_scope(b"secret", letter * 64))
        with pytest.raises(StorageFull):
            await some[0].begin(b"x", scope=session_scope(b"secret", "e" * 64))
