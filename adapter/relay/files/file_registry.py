"""The files that scopes hold: found, read and kept from expiring; brought in by batches and by tools.

One process at a time writes to a root, which the file store's lock sees to; so what is held is known here in
memory, and rows are read once, at the start.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from adapter.errors import FileGone, StorageFull
from adapter.files.port import FileStore, Measure, OpenFile, Staging
from adapter.relay.background import run_to_completion
from adapter.relay.files.file_index import FileIndex
from adapter.relay.files.file_transactions import TABLE, FileTransactions, IncomingFile, Staged
from adapter.relay.files.upload_batch import BatchLimits, UploadBatch, UploadQueue
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileContent, FileKind, FileRecord, Place, decode
from adapter.rules.files.filenames import stored_name
from adapter.rules.files.media_types import media_type
from adapter.rules.files.quota import Ledger, Limits
from adapter.state.port import Row, Store

Records: TypeAlias = list[FileRecord]


class NewFile(NamedTuple):
    """A file that a scope is to hold: the server it came to or from, and the name and type that its sender gave it.

    ``exposed``: it is listed as a resource.
    """

    server: str
    filename: str
    measure: Measure
    declared_type: str | None = None
    exposed: bool = True


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The limits of the files that scopes hold.

    ``upload_ttl`` and ``artifact_ttl`` are seconds since the last access; None: the file lives as long as its scope.
    ``queue_wait``: seconds that a batch waits for other batches of its scope. ``sweep_grace``: age in seconds from
    which a file without a record is removed; None: such a file is never removed.
    """

    quota: Limits
    batch: BatchLimits
    upload_ttl: float | None
    artifact_ttl: float | None
    queue_wait: float
    sweep_grace: float | None


class FileRegistry:
    """The files of all scopes. ``clock`` gives Unix time in seconds."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        limits: FileLimits,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._files = files
        self._limits = limits
        self._ledger = Ledger(limits.quota)
        ttls = {FileKind.UPLOAD: limits.upload_ttl, FileKind.ARTIFACT: limits.artifact_ttl}
        self._index = FileIndex(self._ledger, ttls, clock)
        self.on_gone: list[Callable[[FileRecord], None]] = []
        """Called with the record of each file that is held no longer."""
        self._transactions = FileTransactions(store, files, self._index, log, self._tell_gone)
        self._queue = UploadQueue(limits.quota.scope_bytes, limits.queue_wait)
        self._batches: dict[str, set[UploadBatch]] = {}
        self._clock = clock
        self._log = log

    def __repr__(self) -> str:
        return f"<FileRegistry: {self._ledger!r}>"

    @property
    def total(self) -> int:
        """Bytes of all files that are held."""
        return self._ledger.total

    def used(self, scope_id: str) -> int:
        """Bytes of the files that the scope holds."""
        return self._ledger.used(scope_id)

    def scopes(self) -> list[Scope]:
        """The scopes that hold anything."""
        return self._index.scopes()

    # --- start and stop ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Know again what an earlier process held, and forget rows whose file is not there whole.

        Raises StorageFailed, StoreUnavailable.
        """
        await self._files.open()
        after = ""
        while rows := await self._store.scan(TABLE, after=after):
            await self._load(rows)
            after = rows[-1].key

    async def _load(self, rows: list[Row]) -> None:
        records: dict[Place, tuple[Row, FileRecord]] = {}
        for row in rows:
            try:
                record = decode(row.value)
            except ValueError:  # one that another version wrote harms no other
                self._log.warning("a file record cannot be read and is passed over")
            else:
                records[record.place] = row, record
        missing = await self._files.missing(
            [(place, record.content.size) for place, (_, record) in records.items()]
        )
        if missing:
            self._log.warning("files of earlier records are gone", files=len(missing))
            gone = [records.pop(place)[0].key for place in missing]
            await asyncio.gather(*(self._store.delete(TABLE, key) for key in gone))
        for row, record in sorted(records.values(), key=lambda pair: pair[1].created):
            self._index.count(record, self._index.last_access(record, row.due))
            self._index.show(record)

    async def close(self) -> None:
        """Write down when files were last used, and let go of the disk. Raises StoreUnavailable."""
        try:
            await self._write_last_access()
        finally:
            await self._files.close()

    # --- finding and using ------------------------------------------------------------------------------------

    async def find(self, scope_id: str, kind: FileKind, file_id: str) -> FileRecord | None:
        """The scope's file of that id, used now; None for one that expired, was evicted or never was."""
        record = self._index.find(scope_id, kind, file_id)
        if record is not None:
            self._index.touch(record)
        return record

    def list(self, scope_id: str, kind: FileKind) -> Records:
        """The records of a kind that the scope holds, oldest first. None of them counts as used."""
        return sorted(self._index.alive(scope_id, kind), key=lambda record: record.created)

    def hold(self, record: FileRecord) -> Callable[[], None]:
        """Keep a file from eviction and expiry until the function returned is called. Raises FileGone."""
        return self._index.hold(record)

    def hold_key(self, key: str) -> Callable[[], None]:
        """As ``hold``, by the key of the file's record."""
        record = self._index.get(key)
        if record is None:
            raise FileGone()
        return self._index.hold(record)

    async def read(self, record: FileRecord) -> OpenFile:
        """Open a file, used now. Raises FileGone, StorageFailed; a record whose file is gone is dropped."""
        if self._index.get(record.key) is None:
            raise FileGone()
        self._index.touch(record)
        opened = await self._files.open_file(
            record.place, size=record.content.size, modified=record.content.modified
        )
        if opened is None:
            await self.drop(record)
            raise FileGone()
        return opened

    async def confirm(self, record: FileRecord) -> None:
        """See that a file which was just found is there whole, for others to open. Raises as ``read`` does."""
        if self._index.get(record.key) is None:
            raise FileGone()
        if not await self._files.holds(
            record.place, size=record.content.size, modified=record.content.modified
        ):
            await self.drop(record)
            raise FileGone()

    def expires_at(self, record: FileRecord) -> float | None:
        """When the file expires if nobody uses it again, in Unix seconds; None: with its scope."""
        return self._index.expires_at(record)

    # --- in ---------------------------------------------------------------------------------------------------

    async def begin(self, scope: Scope, server: str, bound: int | None) -> UploadBatch:
        """A batch of at most ``bound`` bytes (None: as many as the scope may hold), when its turn has come.

        Batches of a scope come in together while they fit together, and in the order they asked. Raises
        QuotaReached, with the time to try again, after waiting in vain. The batch must be discarded in the end.
        """
        leave = await self._queue.enter(scope.id, bound)
        batches = self._batches.setdefault(scope.id, set())

        def record(filename: str, declared_type: str | None, measure: Measure) -> FileRecord:
            file_id, stored = secrets.token_hex(16), stored_name(filename)
            place = Place(FileKind.UPLOAD, scope.id, file_id, stored)
            return self._record(scope, place, NewFile(server, filename, measure, declared_type))

        def over() -> None:
            leave()
            batches.discard(batch)
            if not batches and self._batches.get(scope.id) is batches:
                del self._batches[scope.id]

        batch = UploadBatch(
            self._transactions,
            self._files,
            Staged(self._ledger, scope.id),
            self._limits.batch,
            bound=bound,
            record=record,
            leave=over,
        )
        batches.add(batch)
        return batch

    def expect(self, place: Place) -> Callable[[], None]:
        """Keep the sweep from the directory of a place that a tool was told to write to, until the function returned is
        called."""
        return self._transactions.expect(place)

    async def keep_artifact(
        self, scope: Scope, place: Place, file: NewFile, staging: Staging | None
    ) -> FileRecord:
        """Keep a file that a tool produced. Evict only what it needs, and only when that helps.

        ``staging`` None: the file is at ``place`` already. On any failure it is removed. Raises QuotaReached,
        StorageFull, StorageFailed, StoreUnavailable.
        """
        record = self._record(scope, place, file)
        staged = Staged(self._ledger, scope.id)
        forget = self._transactions.expect(place)
        try:
            try:
                staged.grow(file.measure.size)
            except StorageFull:
                await self._transactions.put_out_expired()
                await self._transactions.make_room(scope.id, FileKind.ARTIFACT, file.measure.size, 0)
                staged.grow(file.measure.size)
            await self._transactions.take_in([IncomingFile(record, staging)], staged)
        except BaseException:
            await run_to_completion(
                self._transactions.remove(place) if staging is None else staging.discard()
            )
            raise
        finally:
            forget()
            staged.release()
        return record

    def _record(self, scope: Scope, place: Place, file: NewFile) -> FileRecord:
        measure = file.measure
        content = FileContent(
            media_type(file.filename, measure.head, file.declared_type),
            measure.size,
            measure.sha256,
            measure.modified,
        )
        return FileRecord(
            place, scope.owner, file.server, file.filename, content, self._clock(), file.exposed
        )

    def _tell_gone(self, record: FileRecord) -> None:
        for callback in self.on_gone:
            callback(record)

    # --- out --------------------------------------------------------------------------------------------------

    async def drop(self, record: FileRecord) -> None:
        """Hold this file no longer, whoever uses it. Harmless when it is gone. Raises StoreUnavailable."""
        await self._transactions.put_out(
            record.scope, lambda: [record] if self._index.get(record.key) is not None else []
        )

    async def drop_scope(self, scope_id: str) -> None:
        """The scope has ended: hold nothing of it, and let nothing in that is on its way. Raises StoreUnavailable."""
        for batch in self._batches.get(scope_id, set()):
            batch.cut_off()
        await self._transactions.put_out_scope(scope_id)

    async def expire(self) -> None:
        """Drop files whose time is over. Raises StoreUnavailable."""
        await self._transactions.put_out_expired()

    async def tidy(self, gone: Callable[[Scope], Awaitable[bool]] | None = None) -> None:
        """Write down last accesses, and remove expired files, files of scopes that are ``gone``, and files that no
        record knows. Raises StoreUnavailable, StorageFailed.
        """
        await self._write_last_access()
        await self.expire()
        if gone is not None:
            for scope in self._index.scopes():
                if await gone(scope):
                    await self.drop_scope(scope.id)
        if self._limits.sweep_grace is not None:
            swept = await self._files.sweep(
                self._transactions.knows, self._clock() - self._limits.sweep_grace
            )
            if swept:
                self._log.info("removed files that no record knows", files=swept)

    async def _write_last_access(self) -> None:
        used = self._index.take_used()
        dues = {key: due for key, record in used.items() if (due := self.expires_at(record)) is not None}
        try:
            await self._store.touch(TABLE, dues)
        except BaseException:
            self._index.give_used(used)
            raise
