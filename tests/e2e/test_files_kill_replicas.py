"""kill -9 to one of two replicas in the middle of uploads and captures, while the other one goes on."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from adapter.files.shelf import Shelf
from adapter.rules.files.file_records import AREAS, FileRecord, Place, decode
from adapter.state.sqlite import SqliteStore
from tests.e2e.sharing_replica import AMPLE, QUOTA, TIGHT, TOTAL

pytestmark = pytest.mark.e2e

KILLS = 12


class Replica:
    """A process, and what it has said that it keeps."""

    def __init__(self, root: Path, told: set[tuple[str, ...]]) -> None:
        self._root = root
        self._told = told

    async def start(self, seed: int) -> None:
        command = (sys.executable, "-m", "tests.e2e.sharing_replica", str(self._root), str(seed))
        self._process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        assert line == b"open\n", line
        self._reading = asyncio.ensure_future(self._read(self._process.stdout))

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            if line.endswith(b"\n"):
                self._told.add(tuple(line.decode().split()[1:]))

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


async def records_of(store: SqliteStore, scope_id: str) -> list[FileRecord]:
    found: list[FileRecord] = []
    after = ""
    while rows := await store.scan("files", group=scope_id, after=after):
        found += [decode(row.value) for row in rows]
        after = rows[-1].key
        if len(rows) < 500:  # a second look would see what came since the first
            break
    return found


def size_of(records: Iterable[FileRecord]) -> int:
    return sum(record.content.size for record in records)


async def watch(store: SqliteStore) -> None:
    """Fails at the first look at which a limit is exceeded."""
    while True:
        tight, ample = await records_of(store, TIGHT.id), await records_of(store, AMPLE.id)
        assert size_of(tight) <= QUOTA
        assert size_of(tight) + size_of(ample) <= TOTAL
        await asyncio.sleep(0.01)


async def test_killed_replica_leaves_whole_files_and_what_others_sweep(tmp_path: Path) -> None:
    """All that was said to be kept is there, no quota was ever exceeded, and nothing stays that no record knows."""
    chance = random.Random(5)
    told: set[tuple[str, ...]] = set()
    both = [Replica(tmp_path, told), Replica(tmp_path, told)]
    for number, each in enumerate(both):
        await each.start(number)
    store = SqliteStore(tmp_path / "state" / "adapter.sqlite3")
    await store.open()
    watching = asyncio.ensure_future(watch(store))
    try:
        for number in range(KILLS):
            await asyncio.sleep(
                chance.uniform(0.02, 0.3)
            )  # the moment is the point: nothing can be waited for
            victim = chance.choice(both)
            await victim.kill()
            await victim.start(100 + number)
            assert not watching.done(), watching.exception()
    finally:
        for each in both:
            await each.kill()
        watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    await everything_is_whole(tmp_path, store, told)
    await store.close()


async def everything_is_whole(root: Path, store: SqliteStore, told: set[tuple[str, ...]]) -> None:
    ample, tight = await records_of(store, AMPLE.id), await records_of(store, TIGHT.id)
    for record in [*ample, *tight]:
        content = path_of(root, record.place).read_bytes()
        assert hashlib.sha256(content).hexdigest() == record.content.sha256
    kept = {(record.scope, record.id, record.content.sha256) for record in ample}
    promised = {each for each in told if each[0] == AMPLE.id}
    assert promised <= kept and len(promised) > KILLS
    known = {path_of(root, record.place) for record in [*ample, *tight]}

    async def is_known(place: Place) -> bool:
        return path_of(root, place) in known

    shelf = Shelf(root, lock="shared")
    await shelf.open()
    await shelf.sweep(is_known, time.time() + 3600)
    areas = [*AREAS.values(), "staging"]
    assert {path for area in areas for path in (root / area).rglob("*") if path.is_file()} == known
    await shelf.close()


def path_of(root: Path, place: Place) -> Path:
    return root.joinpath(AREAS[place.kind], place.scope, place.id, place.name)
