"""One of several processes that keep files of the same scopes in one SQLite file and one root, until it is killed.

It says ``kept SCOPE ID SHA256`` for each file that it was told is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from pathlib import Path

from adapter import log
from adapter.errors import AdapterError
from adapter.files.shelf import Shelf
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.file_transactions import NewFile
from adapter.relay.files.upload_batch import FileLimits
from adapter.rules.access.principals import Scope, session_scope
from adapter.rules.files.file_records import FileKind, Place
from adapter.rules.files.quota import Limits
from adapter.state.sqlite import SqliteStore

AMPLE, TIGHT = session_scope(b"kill", "a" * 64), session_scope(b"kill", "b" * 64)
"""A scope whose files all stay, and one that is always full."""

QUOTA = 600_000
TOTAL = 400_000_000
SIZES = (10, 7_000, 40_000, 140_000)


def registry_over(files: Shelf, store: SqliteStore, quota: int | None) -> FileRegistry:
    """The registry of one replica. ``quota`` in bytes."""
    limits = FileLimits(
        Limits(scope_bytes=quota, total_bytes=TOTAL),
        1 << 20,
        10,
        upload_ttl=None,
        artifact_ttl=None,
        queue_wait=30.0,
        sweep_grace=1.0,
    )
    return FileRegistry(store, files, limits, time.time, log.get_logger("replica"))


async def upload(registry: FileRegistry, scope: Scope, chance: random.Random) -> None:
    batch = await registry.begin(scope, "one", None)
    try:
        for number in range(chance.randint(1, 3)):
            batch.add(f"{number}.bin", None)
            await batch.write(chance.randbytes(chance.choice(SIZES)))
            await batch.end_file()
        for record in await batch.keep((), None):
            print("kept", scope.id, record.id, record.content.sha256, flush=True)
    finally:
        await batch.discard()


async def capture(files: Shelf, registry: FileRegistry, scope: Scope, chance: random.Random) -> None:
    place = Place(FileKind.ARTIFACT, scope.id, os.urandom(16).hex(), "out.bin")
    try:
        Path(await files.allocate(place)).write_bytes(chance.randbytes(chance.choice(SIZES)))
        measure = await files.adopt(place, None)
        assert measure is not None
        record = await registry.keep_artifact(scope, place, NewFile("one", "out.bin", measure), None)
        (await registry.hold(record))()
        print("kept", scope.id, record.id, record.content.sha256, flush=True)
    finally:
        files.abandon(place)


async def work(registry: FileRegistry, files: Shelf, scope: Scope, chance: random.Random) -> None:
    while True:
        with contextlib.suppress(AdapterError):
            if chance.random() < 0.6:
                await upload(registry, scope, chance)
            else:
                await capture(files, registry, scope, chance)


async def main() -> None:
    root, chance = Path(sys.argv[1]), random.Random(sys.argv[2])
    store = SqliteStore(root / "state" / "adapter.sqlite3", shared=True)
    await store.open()
    async with asyncio.TaskGroup() as tasks:
        for scope, quota in ((AMPLE, None), (TIGHT, QUOTA)):
            files = Shelf(root, lock="shared")
            registry = registry_over(files, store, quota)
            await registry.open()
            tasks.create_task(work(registry, files, scope, chance))
        print("open", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
