"""Everything at once and at random: whatever fails and whoever leaves, the invariants of the registry hold."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from adapter.errors import AdapterError, StorageFailed, StorageFull, StoreUnavailable
from adapter.relay.files.head_writer import TABLE
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileRecord, decode
from tests.relay.filing import ALICE, BOB, Filing, all_open

QUOTA = 1000
TOTAL = 1500


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
        step = draw.choice(("stage", "write", "finish", "place", "rows", "touch"))
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
    filing = Filing(scope_bytes=QUOTA, total_bytes=TOTAL, artifacts=5)
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
    await filing.registry.tidy()
    held = {record.key for record in await filing.held(ALICE) + await filing.held(BOB)}
    await filing.restart()
    assert {record.key for record in await filing.held(ALICE) + await filing.held(BOB)} == held
    assert await filing.agrees()
