"""kill -9 to the adapter at any moment of uploads and captures: whole files with their records, or neither."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.rules.files.file_records import FileKind, FileRecord, decode
from adapter.state.sqlite import SqliteStore
from tests.e2e.files_server import drawing
from tests.e2e.filing import ADAPTERS, HELPER, MIB, content_of, sha256
from tests.e2e.json_session import JsonSession
from tests.e2e.processes import Adapter, Server, adapter

pytestmark = pytest.mark.e2e

KILLS = 8

ROOM, QUOTA = 18 * MIB, 12 * MIB
"""Bytes for everybody, and for each session."""

ENOUGH = 5 * MIB
"""Bytes between two kills, after which files are tiny; a session that has no room for as many more is ended before."""

SIZES = (10, 70_000, 400_000, 1_400_000)
SOON = 0.2
"""Seconds between two rounds of the cleanup, and the age at which it sweeps."""

LATEST_KILL = 0.3
"""Seconds that work goes on at most before the kill."""

SETTINGS: dict[str, Any] = {
    "core": {"cleanup_interval_seconds": SOON},
    "storage": {"max_size": ROOM, "orphan_sweeper_grace_seconds": SOON},
    "sessions": {"max_total_session_size": QUOTA},
    "uploads": {"max_file_bytes": 2 * ROOM, "ttl_seconds": None},
    "artifacts": {"ttl_seconds": None},
}

CUT_OFF = (aiohttp.ClientError, ConnectionError)
"""What whoever waited for an answer meets when the adapter is killed."""


@dataclass
class Session(JsonSession):
    """A session that knows what the adapter has ``promised``: the SHA-256 of each file by its handle or URI."""

    promised: dict[str, str] = field(default_factory=dict)

    async def upload_url(self) -> str:
        return str((await self.call(HELPER))["structuredContent"]["upload_url"])

    async def upload(self, *contents: bytes, url: str | None = None) -> int:
        """The status; what was taken in is promised."""
        form = aiohttp.FormData()
        for number, content in enumerate(contents):
            form.add_field("file", io.BytesIO(content), filename=f"{number}.bin")
        async with self.http.post(url or await self.upload_url(), data=form) as response:
            answer = await response.json()
        if response.status == 200:
            assert [each["sha256"] for each in answer["uploads"]] == [sha256(content) for content in contents]
            self.promised |= {each["upload_handle"]: each["sha256"] for each in answer["uploads"]}
        return response.status

    async def draw(self, seed: int, size: int) -> None:
        told = (await self.call("draw", seed=seed, size=size, filename=f"{seed}.bin", pause=0.005))["_meta"]
        assert told["artifact"]["sha256"] == sha256(drawing(seed, size))
        self.promised[told["artifact"]["artifact_uri"]] = told["artifact"]["sha256"]


@dataclass
class Work:
    """Uploads and captures that go on until the adapter is killed."""

    session: Session
    chance: random.Random
    left: int = ENOUGH
    killed: bool = False

    async def until(self, moment: float, kill: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Works for ``moment`` seconds, then kills. Nothing that was begun may fail by anything else."""
        async with asyncio.TaskGroup() as tasks:
            for step in (self._upload, self._upload, self._upload, self._draw, self._draw):
                tasks.create_task(self._go_on(step))
            await asyncio.sleep(moment)  # the moment is the point: nothing can be waited for
            self.killed = True
            await kill()

    async def _go_on(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            while True:
                await step()
        except CUT_OFF:
            if not self.killed:
                raise

    async def _upload(self) -> None:
        contents = [self.chance.randbytes(self._size()) for _ in range(self.chance.randint(1, 4))]
        assert await self.session.upload(*contents) == 200

    async def _draw(self) -> None:
        await self.session.draw(self.chance.randrange(2**32), self._size())

    def _size(self) -> int:
        size = min(self.chance.choice(SIZES), max(self.left, SIZES[0]))
        self.left -= size
        return size


@dataclass(frozen=True)
class Store:
    """The adapter's store, seen from outside."""

    root: Path

    async def records(self) -> dict[Path, FileRecord]:
        """The records a dead adapter left, by where their files belong; read from a copy, so that it is the adapter
        who meets what the kill left."""
        copy = self.root.parent / "copy"
        shutil.copytree(self.root / "state", copy)
        store = SqliteStore(copy / "adapter.sqlite3")
        await store.open()
        rows = await store.scan("files")
        await store.close()
        shutil.rmtree(copy)
        assert len(rows) < 500, "all on one page"
        return {self._path(record): record for record in (decode(row.value) for row in rows)}

    def files(self) -> set[Path]:
        """Every file, finished or not, but for the copies that tools were given."""
        areas = (self.root / name for name in ("uploads", "artifacts", "staging"))
        # Not rglob: what is removed while it looks is an error to it.
        found = (
            Path(directory, name) for area in areas for directory, _, names in os.walk(area) for name in names
        )
        return {path for path in found if path.is_file() and len(path.relative_to(self.root).parts) < 5}

    async def holds_only(self, known: set[Path]) -> None:
        """Returns when nothing but ``known`` is there; fails after a while."""
        deadline = time.monotonic() + 10
        while (found := self.files()) != known:
            assert time.monotonic() < deadline, (found - known, known - found)
            await asyncio.sleep(0.02)

    def _path(self, record: FileRecord) -> Path:
        area = "uploads" if record.kind is FileKind.UPLOAD else "artifacts"
        return self.root.joinpath(area, record.scope, record.id, record.place.name)


@contextlib.asynccontextmanager
async def another(http: aiohttp.ClientSession, url: str) -> AsyncIterator[Session]:
    """A session that ends with the block, and its files with it."""
    session = Session(http, url)
    await session.open()
    yield session
    await session.close()


async def test_a_kill_at_any_moment_leaves_whole_files_with_their_records_or_neither(tmp_path: Path) -> None:
    """After each kill every record has its whole file, all that was promised is there and reads back, what has no
    record is swept, and what fits beside it is exactly what should."""
    chance, left_over = random.Random(11), 0
    async with (
        Server("tests.e2e.files_server", tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS, **with_root(tmp_path / "data")) as front,
        aiohttp.ClientSession() as http,
    ):
        store, session = Store(tmp_path / "data"), Session(http, front.url)
        await session.open()
        for _ in range(KILLS):
            await Work(session, chance).until(chance.uniform(0, LATEST_KILL), front.kill)
            records = await store.records()
            left_over += len(store.files() - set(records))
            keeps_promises(session, records)
            await front.start()
            await store.holds_only(set(records))
            await reads_back(session, list(records.values()))
            used = sum(record.content.size for record in records.values())
            await fits_to_the_byte(http, front, ROOM - used)
            if used > QUOTA - ENOUGH - MIB:
                await makes_room_for_one_byte(session, store, QUOTA - used)
                await session.close()
                await store.holds_only(set())
                session = Session(http, front.url)
                await session.open()
    assert left_over > KILLS, "the kills met hardly anything under way"


def with_root(root: Path) -> dict[str, Any]:
    return {**SETTINGS, "storage": {"root": str(root), **SETTINGS["storage"]}}


def keeps_promises(session: Session, records: dict[Path, FileRecord]) -> None:
    """Each record has its whole file, and each promise its record."""
    for path, record in records.items():
        content = path.read_bytes()
        assert (len(content), sha256(content)) == (record.content.size, record.content.sha256)
    held = {record.id: record.content.sha256 for record in records.values()}
    for handle, digest in session.promised.items():
        assert held[handle.split("/")[4]] == digest


async def reads_back(session: Session, records: list[FileRecord]) -> None:
    """All that is recorded reads back byte by byte: artifacts as resources, uploads by a tool that is handed them."""
    listed = [each["uri"] for each in (await session.ask("resources/list"))["resources"]]
    artifacts = {uri.split("/")[4]: uri for uri in listed if uri.startswith("artifact:")}
    digests = {record.id: record.content.sha256 for record in records if record.kind is FileKind.ARTIFACT}
    assert artifacts.keys() == digests.keys()
    for file_id, uri in artifacts.items():
        (content,) = (await session.ask("resources/read", uri=uri))["contents"]
        assert sha256(content_of(content)) == digests[file_id]
    uploads = [record for record in records if record.kind is FileKind.UPLOAD]
    if uploads:
        handles = [f"upload://sessions/{record.scope}/{record.id}" for record in uploads]
        told = await session.call("digests", paths=handles)
        seen = [line.split()[0] for line in told["content"][0]["text"].splitlines()]
        assert seen == [record.content.sha256 for record in uploads]


async def fits_to_the_byte(http: aiohttp.ClientSession, front: Adapter, room: int) -> None:
    """Where others fill what room there is, a file of one byte too many is refused; without that byte it is taken."""
    half = room // 2
    async with another(http, front.url) as first, another(http, front.url) as second:
        assert await first.upload(bytes(half)) == 200
        url = await second.upload_url()
        assert await second.upload(bytes(room - half + 1), url=url) == 507
        assert await second.upload(bytes(room - half), url=url) == 200


async def makes_room_for_one_byte(session: Session, store: Store, room: int) -> None:
    """The session's own quota: what fits makes nothing go, and one byte more makes one file go."""
    before = store.files()
    assert await session.upload(bytes(room)) == 200
    full = store.files()
    assert full > before
    assert len(full) == len(before) + 1
    assert await session.upload(b"1") == 200
    assert len(full - store.files()) == 1
