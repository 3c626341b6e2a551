"""The files that scopes hold: found, read and kept from expiring; brought in by batches and by tools.

The rows in the state store are the truth. A scope's files are read when it is first used, and what is known of them is
confirmed when another replica may have changed them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, FileChanged, FileGone, StorageFailed, StorageFull, StoreUnavailable
from adapter.files.port import FileStore, OpenFile, StagedFile
from adapter.relay.background import run_to_completion
from adapter.relay.files.file_transactions import FileTransactions, IncomingFile, NewFile
from adapter.relay.files.scope_cache import ScopeCache, ScopeFiles
from adapter.relay.files.storage_total import LEASE, RENEWAL, TABLE, ReplicaLeases, StorageTotal
from adapter.relay.files.upload_batch import FileLimits, UploadBatch, UploadQueue
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place, record_in, record_key
from adapter.state.port import Row, Store, every_row
from adapter.wire.signed_urls import parse_artifact

Records: TypeAlias = list[FileRecord]

PAUSE = 1.0
"""Seconds after which other replicas learn that a file is in use no longer."""

CHANGED_KEPT = 86_400.0
"""Seconds for which a file stays that something else has changed: somebody may want what is in it."""

SOON = 3 * RENEWAL
"""Seconds before the time in its row at which the use of a file is written down at once, where replicas share it: the
cleanup of another one goes by that time."""


PAGES = 20
"""Pages of rows that are looked through in one round for scopes that are gone."""


class FileRegistry(FileTransactions):
    """The files of all scopes. ``clock`` gives Unix time in seconds, ``now`` seconds that never go back."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        limits: FileLimits,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        storage = StorageTotal(limits.quota, ReplicaLeases(store, secrets.token_hex(8), now))
        ttls = {FileKind.UPLOAD: limits.uploads.ttl_seconds, FileKind.ARTIFACT: limits.artifact_ttl}
        cache = ScopeCache(store, files, storage, ttls, clock, log, self._tell_gone)
        super().__init__(cache)
        self.know, self.expires_at, self.write_last_access = (
            cache.know,
            cache.expires_at,
            cache.write_last_access,
        )
        self._limits = limits
        self.changed: set[str] = set()
        """The keys of files of which it was found that something else has changed them."""
        self.on_gone: list[Callable[[FileRecord], None]] = []
        """Called with the record of each file that is held no longer."""
        self._closing = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._queue = UploadQueue(limits.quota.scope_bytes, limits.uploads.stall_timeout_seconds)
        self._batches: set[UploadBatch] = set()
        self.claims: list[Callable[[Place], Awaitable[bool]]] = []
        """Asked for a place that no record of a file knows."""
        self._looked_at = ""

    def __repr__(self) -> str:
        return f"<FileRegistry: {self.cache!r}>"

    def watch(self, evicted: Callable[[FileRecord], None], waited: Callable[[float, bool], None]) -> None:
        """Tell of each file that goes to make room, and of the seconds that each upload waited, True if it came in."""
        self.on_evicted, self._queue.on_wait = evicted, waited

    @property
    def files(self) -> int:
        """The number of files that are known here."""
        return sum(len(scope.records) for scope in self.cache.scopes.values())

    @property
    def total(self) -> int:
        """Bytes of all files that are known here."""
        return sum(scope.size for scope in self.cache.scopes.values())

    def used(self, scope_id: str) -> int:
        """Bytes of the files that the scope holds, as they are known here: ``list`` and ``find`` come first."""
        scope = self.cache.scopes.get(scope_id)
        return 0 if scope is None else scope.size

    # --- start and stop ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises StorageFailed, StoreUnavailable."""
        await self.cache.files.open()
        await self.storage.open()
        await self.cache.open()
        if self.cache.is_shared:
            self._tending = asyncio.get_running_loop().create_task(self._tend())

    async def close(self) -> None:
        """Write down when files were last used, and let go of the disk. Raises StoreUnavailable."""
        self.cache.close()
        self._closing.set()
        if self._tending is not None:
            await self._tending
        try:
            await self.write_last_access()
            await self.announce_uses()
            await self.storage.close()
        finally:
            await self.cache.files.close()

    async def _tend(self) -> None:
        for number in count(1):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._closing.wait()
                    return
            await self.tell_replicas(everything=number % round(RENEWAL / PAUSE) == 0)

    async def tell_replicas(self, *, everything: bool) -> None:
        """Let other replicas know what is used here no longer, with ``everything`` also what is; logs what is late."""
        for word in self._words() if everything else self._words()[:1]:
            try:
                await word()
            except (StoreUnavailable, StorageFailed) as error:
                self.log.warning("what other replicas are to know of files is late", why=error.code)
            except Exception:
                self.log.exception("what other replicas are to know of files is late")

    def _words(self) -> list[Callable[[], Awaitable[object]]]:
        """What other replicas are to know: the first of it soon. Each is told though another one fails: who does not
        renew its lease and its bytes counts as ended."""
        return [self.announce_uses, self.storage.tend, self.cache.files.renew, self.write_last_access]

    # --- finding and using ------------------------------------------------------------------------------------

    async def find(self, scope_id: str, kind: FileKind, file_id: str) -> FileRecord | None:
        """The scope's file of that id, used now; None for one that expired, was evicted or never was.

        Raises StoreUnavailable, StorageFailed.
        """
        key = record_key(scope_id, kind, file_id)
        record = (await self.know(scope_id)).records.get(key)
        if self.cache.is_shared:
            record = await self._found_elsewhere(scope_id, key, record)
        if record is None or self.cache.is_over(record):
            return None
        self.cache.touch(record)
        return record

    async def find_artifact(self, scope_id: str, uri: str, scheme: str) -> FileRecord | None:
        """The scope's artifact of that URI, as ``find`` does; none for a URI with another name than the file's."""
        handle = parse_artifact(uri, scheme)
        if handle is None or handle.scope != scope_id:
            return None
        record = await self.find(scope_id, FileKind.ARTIFACT, handle.id)
        return record if record is not None and record.filename == handle.name else None

    async def _found_elsewhere(self, scope_id: str, key: str, record: FileRecord | None) -> FileRecord | None:
        """Find a file that another replica may have used since, and let its cleanup know that it is used here."""
        if record is None:
            # The word of a replica that has just made it may still be on its way, and its client is here already.
            self.cache.doubt(scope_id)
            if (record := (await self.know(scope_id)).records.get(key)) is None:
                return None
        due = self.expires_at(record)
        if due is None or due - self.cache.clock() > SOON:
            return record
        if self.cache.is_over(record):
            record = (await self.read_again(scope_id)).records.get(key)
            if record is None or self.cache.is_over(record):
                return None
        self.cache.touch(record)
        await self.write_last_access()
        return record

    async def read_again(self, scope_id: str) -> ScopeFiles:
        """Read the files of a scope though they are known, with what waits for them. Raises StoreUnavailable."""
        async with self.cache.lock(scope_id):
            return await self.cache.read(scope_id)

    async def list(self, scope_id: str, kind: FileKind) -> Records:
        """The records of a kind that the scope holds, oldest first. None of them counts as used.

        Raises StoreUnavailable, StorageFailed.
        """
        if self.cache.is_shared:
            self.cache.doubt(scope_id)
        scope, is_over = await self.know(scope_id), self.cache.is_over
        if self.cache.is_shared and any(map(is_over, scope.records.values())):
            scope = await self.read_again(scope_id)
        found = (each for each in scope.records.values() if each.kind is kind and not is_over(each))
        return sorted(found, key=lambda record: record.created)

    async def read(self, record: FileRecord) -> OpenFile:
        """Open a file, used now. Raises FileGone, FileChanged, StorageFailed; the record of one that is gone is
        dropped."""
        await self._check_known(record)
        self.cache.touch(record)
        content = record.content
        opened = await self.cache.files.open_file(record.place, (content.size, content.modified))
        if opened is None:
            raise await self._unfit(record)
        return opened

    async def whole(self, record: FileRecord) -> bytes:
        """All bytes of a file, used now. Raises as ``read`` does."""
        with contextlib.closing(await self.read(record)) as file:
            return await file.whole()

    async def confirm(self, record: FileRecord) -> None:
        """See that a file which was just found is there whole, for others to open. Raises as ``read`` does."""
        await self._check_known(record)
        content = record.content
        if not await self.cache.files.holds(record.place, (content.size, content.modified)):
            raise await self._unfit(record)

    async def lend(self, record: FileRecord, copy: str) -> None:
        """Copy a file that was just held, for a tool to work on. Raises as ``read`` does, and StorageFull."""
        content = record.content
        if not await self.cache.files.lend(record.place, copy, (content.size, content.modified)):
            raise await self._unfit(record)

    async def _check_known(self, record: FileRecord) -> None:
        if record.key not in (await self.know(record.scope)).records:
            raise FileGone()

    async def _unfit(self, record: FileRecord) -> AdapterError:
        """The failure for a file that is not as it was recorded. One that is there still is kept, but given to
        nobody."""
        if await self.cache.files.missing([record.place]):
            self.log.warning("a stored file is gone from the disk", server=record.server, file=record.key)
            await self.drop(record)
            return FileGone()
        if record.key not in self.changed:
            self.changed.add(record.key)
            self.cache.keep(record, CHANGED_KEPT)
            self.log.warning(
                "a stored file was changed by something other than the adapter; it is given to nobody, and kept for a "
                "day if there is room",
                server=record.server,
                file=record.key,
            )
        return FileChanged()

    async def keep(self, records: Records, seconds: float) -> None:
        """Let files live for so many seconds from now at least. Raises StoreUnavailable."""
        for record in records:
            self.cache.keep(record, seconds)
        await self.write_last_access()

    # --- in ---------------------------------------------------------------------------------------------------

    async def begin(
        self, scope: Scope, server: str, bound: int | None, name: str | None = None
    ) -> UploadBatch:
        """A batch of at most ``bound`` bytes (None: as many as the scope may hold), when its turn has come. ``name`` is
        that of an offer by which it comes.

        Batches of a scope come in together while they fit together, and in the order they asked. Raises
        QuotaReached, with the time to try again, after waiting in vain. The batch must be discarded in the end.
        """
        leave = await self._queue.enter(scope.id, bound)

        def over() -> None:
            leave()
            self._batches.discard(batch)

        batch = UploadBatch(self, scope, server, self._limits, bound, name, over)
        self._batches.add(batch)
        return batch

    async def keep_artifact(
        self, scope: Scope, place: Place, file: NewFile, staging: StagedFile | None
    ) -> FileRecord:
        """Keep a file that a tool produced. Evict only what it needs, and only when that helps.

        ``staging`` None: the file is at ``place`` already. On any failure it is removed, unless the store failed too so
        that its row stays. Raises QuotaReached, StorageFull, StorageFailed, StoreUnavailable.
        """
        record = file.record(scope, place, self.cache.clock())
        staged = self.storage.stage()
        try:
            try:
                staged.grow(file.measure.size)
            except StorageFull:
                if not await self.storage.has_room(file.measure.size):
                    await self.expire()
                    await self.make_room(scope.id, FileKind.ARTIFACT, file.measure.size, 0)
                staged.grow(file.measure.size)
            await self.take_in([IncomingFile(record, staging)], staged)
        except BaseException:
            if staging is not None:
                await run_to_completion(staging.discard())
            elif self.cache.get(record.key) is None:
                await run_to_completion(self.remove_bytes(place))
            raise
        finally:
            staged.shrink(staged.size)
        return record

    def _tell_gone(self, record: FileRecord) -> None:
        self.changed.discard(record.key)
        for callback in self.on_gone:
            callback(record)

    # --- out --------------------------------------------------------------------------------------------------

    async def drop(self, record: FileRecord) -> None:
        """Hold this file no longer, whoever uses it. Harmless when it is gone. Raises StoreUnavailable."""
        await self.put_out(record.scope, lambda scope: [record] if record.key in scope.records else [])

    async def drop_scope(
        self, scope_id: str, *, offered: bool = True, but: Collection[str] = frozenset()
    ) -> None:
        """The scope has ended: hold nothing of it, and let nothing in that is on its way. ``offered`` False: what comes
        by an offer may come, and what came in the batches ``but`` stays. Raises StoreUnavailable.
        """
        for batch in self._batches:
            if offered or batch.name is None:
                batch.cut_off(scope_id)
        if offered:
            await self.put_out_scope(scope_id)
        else:
            await self.put_out(
                scope_id, lambda scope: [each for each in scope.records.values() if each.batch not in but]
            )

    async def tidy_own(self) -> None:
        """Write down last accesses, and forget the scopes that are not used here. Raises StoreUnavailable."""
        await self.write_last_access()
        self.cache.drop_unused()

    async def tidy(self, gone: Callable[[Scope], Awaitable[bool]] | None = None) -> None:
        """Remove expired files, files of scopes that are ``gone``, and files that no record knows. One replica does
        that for all. Raises StoreUnavailable, StorageFailed.
        """
        await self.expire()
        if gone is not None:
            await self._drop_gone(gone)
        if self._limits.sweep_grace is not None:
            await self._sweep(self._limits.sweep_grace)

    async def tend(self) -> None:
        """Do at once what a replica does again and again for the others. Raises StoreUnavailable, StorageFailed."""
        for word in self._words():
            await word()

    # --- what nobody uses -------------------------------------------------------------------------------------

    async def _drop_gone(self, gone: Callable[[Scope], Awaitable[bool]]) -> None:
        """Remove the files of scopes that are ``gone``: so many pages of rows each time, and the next ones then.

        Raises StoreUnavailable.
        """
        for _ in range(PAGES):
            rows = await self.cache.store.scan(TABLE, after=self._looked_at)
            for scope in _owners(rows):
                if await gone(scope):
                    await self.drop_scope(scope.id)
            self._looked_at = rows[-1].key if rows else ""
            if not rows:
                break
        if self.cache.is_shared:
            await self.cache.forget_empty_heads()

    async def first_scopes(self, most: int) -> Sequence[Scope]:
        """Scopes that hold anything, at most so many. Raises StoreUnavailable."""
        found: dict[str, Scope] = {}
        after = ""
        while len(found) < most and (rows := await self.cache.store.scan(TABLE, after=after)):
            found |= {scope.id: scope for scope in _owners(rows)}
            # Behind all rows of the last scope.
            after = f"{rows[-1].key.partition('/')[0]}0"
        return list(found.values())[:most]

    async def _sweep(self, grace: float) -> None:
        """Remove files that no record knows, and that have not changed for ``grace`` seconds. Raises StorageFailed,
        StoreUnavailable.
        """
        before = self.cache.clock() - grace
        if self.cache.is_shared:
            # By the clock that tells how old files are; and what others are writing is renewed within a lease.
            before = await self.cache.files.renew() - max(grace, LEASE)
        swept = await self.cache.files.sweep(partial(self._is_known, {}), before)
        if swept:
            self.log.info("removed files that no record knows", files=swept)

    async def _is_known(self, read: dict[str, dict[str, bytes]], place: Place) -> bool:
        """Tell whether a record, or else a claim, knows a place. ``read`` has the rows of the last scope that was asked
        for."""
        # A file that comes or goes just now has bytes without a row: the next sweep will see.
        key = record_key(place.scope, place.kind, place.id)
        known = self.cache.get(key)
        if self.cache.is_changing(place.scope) or (known is not None and known.place == place):
            return True
        if place.scope not in read:  # one scope's files are asked for one after another
            read.clear()
            rows = every_row(self.cache.store, TABLE, place.scope)
            read[place.scope] = {row.key: row.value async for row in rows}
        value = read[place.scope].get(key)
        if value is not None and ((record := record_in(value)) is None or record.place == place):
            return True  # also by a row of another version: its file is somebody's
        for claim in self.claims:
            if await claim(place):
                return True
        return False


def _owners(rows: list[Row]) -> list[Scope]:
    """The scopes to which these rows belong."""
    found: dict[str, Scope] = {}
    for row in rows:
        scope_id = row.key.partition("/")[0]
        if scope_id not in found and (record := record_in(row.value)) is not None:
            found[scope_id] = Scope(scope_id, record.owner)
    return list(found.values())
