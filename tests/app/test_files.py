"""The parts that move files, of several replicas: the cleanup that each does, and that which one does for all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from adapter.app.build import App, build
from adapter.relay.files.rounds import TABLE as ROUNDS
from adapter.relay.files.signed_urls import TABLE as NONCES
from adapter.relay.files.storage_total import TABLE as FILES
from adapter.rules.access.principals import Scope, principal_scope
from adapter.rules.files.file_records import FileRecord
from adapter.settings.root import Settings
from tests.state.shared import SharedMemory

SCOPE = principal_scope(b"secret", "anonymous")
OTHER = principal_scope(b"secret", "ops")


@contextlib.asynccontextmanager
async def replica(memory: SharedMemory, root: Path) -> AsyncIterator[App]:
    entry = {
        "id": "raw",
        "mount_path": "/mcp",
        "upstream": {"url": "http://127.0.0.1:9/mcp"},
        "adapters": [{"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"}],
    }
    settings = {
        "core": {"port": 0, "upstream_ping": {"enabled": False}},
        "storage": {"root": str(root), "lock_mode": "none"},
        "servers": [entry],
    }
    app = build(Settings.model_validate(settings), store=memory.replica())
    await app.store.open()
    await app.files.open()
    try:
        yield app
    finally:
        await app.files.close()
        await app.store.close()


async def uploaded(app: App, scope: Scope) -> FileRecord:
    batch = await app.files.registry.begin(scope, "raw", 1)
    try:
        batch.add("0.bin", None)
        await batch.write(b"x")
        await batch.end_file()
        [record] = await batch.keep((), None)
        return record
    finally:
        await batch.discard()


async def due(memory: SharedMemory, record: FileRecord) -> float:
    row = await memory.rows.get(FILES, record.key)
    assert row is not None and row.due is not None
    return row.due


async def test_each_replica_does_its_own_work_and_one_that_of_all(tmp_path: Path) -> None:
    """While one has the lease, another still writes down what was used there, and forgets what was not."""
    memory = SharedMemory()
    async with replica(memory, tmp_path) as one, replica(memory, tmp_path) as two:
        await one.cleanup.run_once()
        records = [await uploaded(one, SCOPE), await uploaded(two, OTHER)]
        for app, record in zip((one, two), records, strict=True):
            await app.files.registry.write_last_access()
            before = await due(memory, record)
            assert await app.files.registry.find(record.scope, record.kind, record.id) is not None
            await memory.rows.put(NONCES, "spent", b"", due=1.0)
            await memory.rows.put(ROUNDS, "scope/unreadable", b"", due=1.0)
            await app.cleanup.run_once()
            assert await due(memory, record) > before
            left = await memory.rows.count(NONCES), await memory.rows.count(ROUNDS)
            assert left == ((0, 0) if app is one else (1, 1))
        assert two.files.registry.total == 1
        for _ in range(2):
            await two.cleanup.run_once()
        assert two.files.registry.total == 0
        assert (await memory.rows.count(NONCES), await memory.rows.count(FILES)) == (1, 2)
