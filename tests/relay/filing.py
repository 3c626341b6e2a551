"""A file registry on its own: a disk and a store in memory that fail or wait when told, and scopes that fill them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter import log
from adapter.errors import StoreUnavailable
from adapter.files.port import CaptureLimit, ContentSource, Measure, SizeAndTime, StagedFile
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.file_transactions import NewFile, Spend
from adapter.relay.files.storage_total import TABLE
from adapter.relay.files.upload_batch import FileLimits, UploadBatch
from adapter.rules.access.principals import Scope, session_scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from adapter.rules.files.quota import Limits, Policy
from adapter.settings.storage import Uploads
from adapter.state.port import Change, Row, Store
from adapter.state.sqlite import MemoryStore
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory

ALICE = session_scope(b"secret", "a" * 64)
BOB = session_scope(b"secret", "b" * 64)


class Steps:
    """Where a test makes things fail or wait, by the name of the step."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self._failing: dict[str, tuple[int, Exception]] = {}
        self._gates: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}

    def fail(self, step: str, failure: Exception, *, after: int = 0) -> None:
        """The step fails from now on, once it has gone well ``after`` times more."""
        self._failing[step] = self.taken[step] + after, failure

    def heal(self, step: str) -> None:
        del self._failing[step]

    def gate(self, step: str) -> tuple[asyncio.Event, asyncio.Event]:
        """The step waits from now on: the first event says that it is there, the second lets it go on."""
        self._gates[step] = asyncio.Event(), asyncio.Event()
        return self._gates[step]

    async def take(self, step: str) -> None:
        self.taken[step] += 1
        if step in self._gates:
            there, go_on = self._gates[step]
            there.set()
            await go_on.wait()
        await asyncio.sleep(0)
        if step in self._failing and self.taken[step] > self._failing[step][0]:
            raise self._failing[step][1]


class SteppedStore(MemoryStore):
    """Its writes of many rows are the step ``rows``, touching is ``touch``."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        await self._steps.take("rows")
        return await super().commit(changes)

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await self._steps.take("touch")
        await super().touch(table, dues)


class MemoryStaging:
    measure: Measure

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self.data = b""
        files.stagings.add(self)

    @property
    def size(self) -> int:
        return len(self.data)

    async def write(self, chunk: bytes) -> None:
        await self._files.steps.take("write")
        self.data += chunk

    async def fill(self, source: ContentSource, most: int) -> int:
        await self._files.steps.take("fill")
        block = bytearray(most)
        count = source.read(block, most)
        self.data += block[:count]
        return count

    async def finish(self) -> Measure:
        await self._files.steps.take("finish")
        self.measure = measured(self.data)
        return self.measure

    async def discard(self) -> None:
        await self._files.steps.take("discard")
        self._files.stagings.discard(self)


class MemoryOpenFile:
    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    async def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    async def whole(self) -> bytes:
        return self._data

    async def pieces(self, offset: int, length: int) -> AsyncIterator[bytes]:
        yield self._data[offset : offset + length]

    async def send(self, receiver: int, offset: int, length: int) -> int:
        return os.write(receiver, self._data[offset : offset + length])

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryFiles:
    """A FileStore without a disk. Its steps are write, finish, place, discard and remove.

    ``clock`` tells how old files are, and whoever puts one down notes it in ``made``; without it all are old.
    """

    roots = ("/store",)

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.placed: dict[Place, bytes] = {}
        self.stagings: set[MemoryStaging] = set()
        self.clock: Clock | None = None
        self.made: dict[Place, float] = {}
        self.allocated: set[Place] = set()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Keeps the files, as a disk does."""

    def stage(self) -> MemoryStaging:
        return MemoryStaging(self)

    async def place(self, staging: StagedFile, place: Place) -> None:
        await self.steps.take("place")
        assert isinstance(staging, MemoryStaging)
        self.stagings.remove(staging)
        self.put(place, staging.data)

    def put(self, place: Place, data: bytes) -> None:
        self.placed[place] = data
        self.made[place] = float("-inf") if self.clock is None else self.clock()

    async def allocate(self, place: Place) -> str:
        self.allocated.add(place)
        return self.path_of(place)

    def abandon(self, place: Place) -> None:
        self.allocated.discard(place)

    async def adopt(self, place: Place, limit: CaptureLimit | None) -> Measure | None:
        data = self.placed.get(place)
        if data is not None and limit is not None:
            limit.check(len(data))
        return None if data is None else measured(data)

    async def take(
        self, path: str, scope: str, since: float, limit: CaptureLimit | None
    ) -> StagedFile | None:
        return None

    async def open_file(self, place: Place, recorded: SizeAndTime) -> MemoryOpenFile | None:
        data = self.placed.get(place)
        return None if data is None else MemoryOpenFile(data)

    async def holds(self, place: Place, recorded: SizeAndTime) -> bool:
        return await self.open_file(place, recorded) is not None

    async def lend(self, place: Place, copy: str, recorded: SizeAndTime) -> bool:
        return place in self.placed

    def give_back(self, place: Place, copy: str) -> None:
        """Nothing is copied here."""

    async def take_copy(self, place: Place, copy: str, limit: CaptureLimit | None) -> StagedFile | None:
        return None

    def path_of(self, place: Place, copy: str | None = None) -> str:
        inner = () if copy is None else (copy,)
        return "/".join(("/store", place.kind.value, *place[1:3], *inner, place.name))

    async def remove(self, *places: Place) -> None:
        await self.steps.take("remove")
        for place in places:
            self.placed.pop(place, None)

    async def remove_scope(self, scope: str) -> None:
        for place in [place for place in self.placed if place.scope == scope]:
            del self.placed[place]

    async def renew(self) -> float:
        return 0.0 if self.clock is None else self.clock()

    async def sweep(self, known: Callable[[Place], Awaitable[bool]], before: float) -> int:
        free = [place for place in self.placed if place not in self.allocated]
        old = [place for place in free if self.made.get(place, float("-inf")) < before]
        unknown = [place for place in old if not await known(place)]
        for place in unknown:
            self.placed.pop(place, None)
        return len(unknown)

    async def missing(self, places: list[Place]) -> list[Place]:
        return [place for place in places if place not in self.placed]


def measured(data: bytes) -> Measure:
    return Measure(len(data), hashlib.sha256(data).hexdigest(), data[:512], 0)


@dataclass
class Filing:
    """One adapter process and its files, ``restart`` is the next one on the same disk and store; with ``shared`` one of
    several replicas that have ``disk`` in common.
    """

    scope_bytes: int | None = 1000
    total_bytes: int | None = None
    artifacts: int | None = None
    policy: Policy = "lru_uploads_then_artifacts"
    upload_ttl: float | None = 100.0
    artifact_ttl: float | None = 100.0
    max_file_bytes: int = 1000
    max_files: int = 100
    queue_wait: float = 30.0
    sweep_grace: float | None = 300.0
    clock: Clock = field(default_factory=Clock)
    steps: Steps = field(default_factory=Steps)
    shared: SharedMemory | None = None
    disk: MemoryFiles | None = None
    now: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store: Store = SteppedStore(self.steps) if self.shared is None else self.shared.replica()
        self.files = self.disk or MemoryFiles(self.steps)
        self.registry = self._registry()

    def _registry(self) -> FileRegistry:
        limits = FileLimits(
            Limits(self.scope_bytes, self.total_bytes, self.artifacts, self.policy),
            Uploads(
                max_file_bytes=self.max_file_bytes,
                max_files=self.max_files,
                ttl_seconds=self.upload_ttl,
                stall_timeout_seconds=self.queue_wait,
            ),
            self.artifact_ttl,
            self.sweep_grace,
        )
        return FileRegistry(self.store, self.files, limits, self.clock, log.get_logger("test"), self.now)

    async def restart(self) -> None:
        """The process is killed and the next one starts: what was staged is nobody's any more."""
        self.files.stagings.clear()
        self.registry = self._registry()
        await self.registry.open()
        for scope in (ALICE, BOB):
            await self.registry.know(scope.id)

    async def begin(self, *contents: bytes, scope: Scope = ALICE) -> UploadBatch:
        """A batch whose files, ``0.bin`` and so on, have wholly arrived."""
        batch = await self.registry.begin(scope, "one", sum(map(len, contents)))
        try:
            for number, content in enumerate(contents):
                batch.add(f"{number}.bin", None)
                await batch.write(content)
                await batch.end_file()
        except BaseException:
            await batch.discard()
            raise
        return batch

    async def upload(
        self, *contents: bytes, scope: Scope = ALICE, spend: Spend | None = None
    ) -> list[FileRecord]:
        """A whole batch, and its end as the route sees to it."""
        batch = await self.begin(*contents, scope=scope)
        try:
            return await batch.keep((), spend)
        finally:
            await batch.discard()

    async def artifact(self, content: bytes, *, file_id: str = "f" * 32, scope: Scope = ALICE) -> FileRecord:
        """What a tool wrote at the place it was told."""
        place = Place(FileKind.ARTIFACT, scope.id, file_id, "out.bin")
        await self.files.allocate(place)
        self.files.put(place, content)
        file = NewFile("one", "out.bin", measured(content))
        try:
            return await self.registry.keep_artifact(scope, place, file, None)
        finally:
            self.files.abandon(place)

    async def is_found(self, record: FileRecord) -> bool:
        return await self.registry.find(record.scope, record.kind, record.id) is not None

    async def held(self, scope: Scope = ALICE) -> list[FileRecord]:
        return [record for kind in FileKind for record in await self.registry.list(scope.id, kind)]

    async def shared_rows(self) -> list[Row]:
        """The rows of all files, past what makes a replica's own store fail."""
        assert self.shared is not None
        return await self.shared.rows.scan(TABLE, limit=10_000)

    async def agrees(self) -> bool:
        """Whether rows, files and bytes counted are the same set, and nothing is staged or reserved."""
        for scope in (ALICE, BOB):
            await self.registry.know(scope.id)
        rows = {row.key for row in await self.store.scan(TABLE, limit=10_000)}
        files = {f"{place.scope}/{place.kind.value}/{place.id}" for place in self.files.placed}
        counted = sum(map(len, self.files.placed.values()))
        return (
            rows == files
            and self.registry.total == counted
            and not self.files.stagings
            and " 0 more staged" in repr(self.registry)
            and " 0 files held" in repr(self.registry)
        )


async def all_open(filing: Filing, scope: Scope = ALICE) -> bool:
    """Whether a batch as large as the whole quota is let in at once: nothing holds a place in the queue."""
    batch = await asyncio.wait_for(filing.registry.begin(scope, "one", None), 20)
    await batch.discard()
    return True


@contextlib.asynccontextmanager
async def replicas(number: int, **limits: Any) -> AsyncIterator[list[Filing]]:
    """So many replicas on one store and one disk, with one clock for all that is compared with rows."""
    shared, clock, steps, now = SharedMemory(), Clock(), Steps(), Clock()
    disk = MemoryFiles(steps)
    disk.clock = now
    all_of_them = [
        Filing(shared=shared, disk=disk, clock=clock, steps=steps, now=now, **limits) for _ in range(number)
    ]
    for each in all_of_them:
        await each.registry.open()
    try:
        yield all_of_them
    finally:
        for each in all_of_them:
            with contextlib.suppress(StoreUnavailable):
                await each.registry.close()


def view(filing: Filing) -> ReplicaStore:
    """The store of a replica, to make it fail or go deaf."""
    assert isinstance(filing.store, ReplicaStore)
    return filing.store
