"""Changes of a scope's files: files are added all or none; when one is removed, its row goes before its bytes; and one
that is in use stays.

Changes of one scope happen one after another here, so room that was found a moment ago is still there. Where replicas
share the store, the change that another one made first makes ours fail: then the scope is read again, and what is to go
is chosen again. The rows of files that are removed to make room change in one step with the rows of the new files: if
the process is killed at any moment, it leaves at worst files without a row, and the sweep removes those.

The head of a scope says which replica uses which of its files. To remove one, another replica writes the head too, and
fails if a use was written in between. A use is written once and stays for a moment when it is over, so that calls that
use a file again and again write little.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from adapter.errors import AdapterError, FileGone, StorageFailed, StoreUnavailable
from adapter.files.port import Measure, StagedFile
from adapter.relay.background import nothing, run_to_completion
from adapter.relay.files.scope_cache import ScopeCache, ScopeFiles
from adapter.relay.files.storage_total import StagedBytes
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileContent, FileKind, FileRecord, Place
from adapter.rules.files.media_types import media_type
from adapter.state.port import Conflict

T = TypeVar("T")

TRIES = 20
"""How often a change is tried while other replicas are first."""

AT_ONCE = 50
"""Scopes that are looked after at the same time."""

REMOVED_AT_ONCE = 100
"""Files that are removed in one go."""

REMOVERS = 4
"""Threads that remove the files of one scope: each removal waits for the file system's journal, and shares its writes.
Other threads are left to those who move files meanwhile.
"""

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.2
"""Seconds of a pause before a change is tried again, at most."""


Spend = Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
"""Burns what may be used once, and returns what takes that back; raises when somebody else was first."""


class NewFile(NamedTuple):
    """A file that a scope is to hold: the server it came to or from, and the name and type that its sender gave it.

    ``exposed``: it is listed as a resource. ``batch``: see FileRecord.
    """

    server: str
    filename: str
    measure: Measure
    declared_type: str | None = None
    exposed: bool = True
    batch: str | None = None

    def record(self, scope: Scope, place: Place, created: float) -> FileRecord:
        """The record of the file at that place; ``created`` in Unix seconds."""
        measure = self.measure
        content = FileContent(
            media_type(self.filename, measure.head, self.declared_type),
            measure.size,
            measure.sha256,
            measure.modified,
        )
        return FileRecord(
            place, scope.owner, self.server, self.filename, content, created, self.exposed, self.batch
        )


class IncomingFile(NamedTuple):
    """A file that is to be held. ``staging`` None: its bytes lie at the record's place already, where whoever brings
    it expects it.
    """

    record: FileRecord
    staging: StagedFile | None


class _Taken(NamedTuple):
    arrivals: Sequence[IncomingFile]
    unspend: Callable[[], Awaitable[None]] | None


Release = Callable[[], None]

Choice = Callable[[ScopeFiles], Sequence[FileRecord]]
"""Names the files that go, of a scope as it is just then."""


class FileTransactions:
    """Adds and removes files, and keeps those in use: nothing else changes what is known in the ``cache``."""

    on_evicted: Callable[[FileRecord], None]
    """Is told of each file that goes to make room."""

    def __init__(self, cache: ScopeCache) -> None:
        self.cache, self.on_evicted = cache, nothing
        self.storage, self.log = cache.storage, cache.log

    # --- in ---------------------------------------------------------------------------------------------------

    async def take_in(
        self,
        arrivals: Sequence[IncomingFile],
        staged: StagedBytes,
        spend: Spend | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Hold files of one scope and kind from now on: all of them, or none and nothing has changed.

        ``staged`` counts their bytes; what of it is left afterwards is the caller's to release, and so are the
        stagings when this raises. Raises QuotaReached, StorageFull, StorageFailed, StoreUnavailable, and what
        ``spend`` and, when it is these files' turn, ``check`` raise.
        """
        async with self.cache.lock(arrivals[0].record.scope):
            if check is not None:
                check()
            await run_to_completion(self._take_in(arrivals, staged, spend), self._give_back)

    async def _take_in(
        self, arrivals: Sequence[IncomingFile], staged: StagedBytes, spend: Spend | None
    ) -> _Taken:
        scope_id = arrivals[0].record.scope
        await self._put_out_over(scope_id)
        moving = [(record.place, staging) for record, staging in arrivals if staging is not None]
        if spend is not None or moving:
            await self._victims(arrivals, staged)  # refuses before anything is spent or moved
        unspend = await spend() if spend else None
        placed: list[Place] = []
        try:
            for place, staging in moving:
                placed.append(place)
                await self.cache.files.place(staging, place)
            await self._in_turn(scope_id, partial(self._write_down, arrivals, staged))
        except BaseException:
            await self.remove_bytes(*placed)
            await self._take_back(unspend)
            raise
        return _Taken(arrivals, unspend)

    async def _write_down(
        self, arrivals: Sequence[IncomingFile], staged: StagedBytes, scope: ScopeFiles
    ) -> None:
        # Asked again: in the meantime somebody may have begun to use one of them.
        victims = await self._victims(arrivals, staged)
        await self._exchange(scope, victims, [arrival.record for arrival in arrivals], staged)
        for victim in victims:
            self.on_evicted(victim)

    async def _in_turn(self, scope_id: str, change: Callable[[ScopeFiles], Awaitable[T]]) -> T:
        """Do a change of a scope whose lock the caller has; where another replica was first, again with the scope as it
        is then. Raises StoreUnavailable where others are first all the time, and what the change raises.
        """
        for number in range(TRIES):
            try:
                if self.cache.is_shared:
                    await self.storage.leases.confirm()
                return await change(await self.cache.confirm(scope_id))
            except Conflict:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**number)
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - spreads replicas, hides nothing
        raise StoreUnavailable("Other replicas change the files of this session all the time; try again.")

    async def _exchange(
        self,
        scope: ScopeFiles,
        going: Sequence[FileRecord],
        coming: Sequence[FileRecord] = (),
        staged: StagedBytes | None = None,
    ) -> None:
        """Hold some files no longer and others from now on. What goes takes its room until its bytes are gone."""
        came = self.cache.clock()  # as the rows have it
        hidden = [(record, self.cache.hide(scope, record)) for record in going]
        leaving = sum(record.content.size for record in going)
        self.storage.leaving += leaving
        try:
            await self.cache.commit(scope, coming, going)
        except BaseException:
            self.storage.leaving -= leaving
            for record, last_access in hidden:
                self.cache.show(scope, record, last_access)
            raise
        for record in coming:
            self.storage.charge(record.content.size)
            self.cache.show(scope, record, came)
        if staged is not None:
            staged.shrink(sum(record.content.size for record in coming))
        if going:
            # Some at a time: each change of threads costs more than the removal of a file, and the loop is others' too.
            parts = (going[at : at + REMOVED_AT_ONCE] for at in range(0, len(going), REMOVED_AT_ONCE))
            await asyncio.gather(*(self._remove(parts) for _ in range(REMOVERS)))

    async def _remove(self, parts: Iterator[Sequence[FileRecord]]) -> None:
        for some in parts:
            for record in some:
                self.cache.on_gone(record)
            await self.remove_bytes(*(record.place for record in some))
            size = sum(record.content.size for record in some)
            self.storage.leaving -= size
            self.storage.charge(-size)

    async def remove_bytes(self, *places: Place) -> None:
        """Remove bytes that no row knows; where the disk refuses, the sweep is left to try again."""
        try:
            if places:
                await self.cache.files.remove(*places)
        except AdapterError as error:
            self.log.warning("a file could not be removed; the sweep will try again", why=str(error))

    def _victims(self, arrivals: Sequence[IncomingFile], staged: StagedBytes) -> Awaitable[list[FileRecord]]:
        first = arrivals[0].record
        new = [arrival.record.content.size for arrival in arrivals]
        return self._room_for(first.scope, first.kind, new, staged.size)

    async def _room_for(
        self, scope_id: str, kind: FileKind, new: Sequence[int], staged: int
    ) -> list[FileRecord]:
        """The files that go for new ones of these sizes. The caller has the lock of the scope."""
        storage = self.storage
        if storage.lacking(sum(new), staged) > 0:
            await storage.refresh()
        found: list[FileRecord] = []
        # Where some would go, again: others may have used them since, or have begun to.
        for look in (self.cache.confirm, self.cache.read):
            scope = await look(scope_id)
            lacking = storage.lacking(sum(new), staged)
            found = scope.room_for(storage.limits, kind, new, lacking, self.cache.spared(scope))
            if not found or not self.cache.is_shared:
                break
        return found

    async def _give_back(self, taken: _Taken) -> None:
        """Whoever brought these files went away before being told that they are held."""
        records = [arrival.record for arrival in taken.arrivals]
        try:
            await self._put_out(
                records[0].scope, lambda scope: [each for each in records if each.key in scope.records]
            )
        except StoreUnavailable:
            self.log.warning("files that nobody knows of stay until they expire, because the store failed")
        await self._take_back(taken.unspend)

    async def _take_back(self, unspend: Callable[[], Awaitable[None]] | None) -> None:
        if unspend is not None:
            try:
                await unspend()
            except StoreUnavailable:
                self.log.warning("a credential stays spent, because the state store failed")

    # --- out --------------------------------------------------------------------------------------------------

    async def put_out(self, scope_id: str, choose: Choice) -> None:
        """Hold those files of a scope no longer that ``choose`` names when it is their turn.

        Raises StoreUnavailable; then they are held still.
        """
        async with self.cache.lock(scope_id):
            await run_to_completion(self._put_out(scope_id, choose))

    async def put_out_over(self, scope_id: str) -> None:
        """Hold nothing of a scope whose time is over. Raises StoreUnavailable."""
        async with self.cache.lock(scope_id):
            await run_to_completion(self._put_out_over(scope_id))

    async def _put_out_over(self, scope_id: str) -> None:
        is_over, over = self.cache.is_over, self.cache.over(await self.cache.confirm(scope_id))
        if over and self.cache.is_shared:
            await self.cache.read(scope_id)  # others may have used them since
        if over:
            await self._put_out(
                scope_id, lambda scope: [each for each in over if each.key in scope.records and is_over(each)]
            )

    async def expire(self) -> None:
        """Hold nothing longer whose time is over, whosever it is. Raises StoreUnavailable."""
        done: set[str] = set()
        while scopes := await self.cache.overdue() - done:
            done |= scopes
            for first in range(0, len(scopes), AT_ONCE):
                some = sorted(scopes)[first : first + AT_ONCE]
                await asyncio.gather(*map(self.put_out_over, some))

    async def make_room(self, scope_id: str, kind: FileKind, size: int, staged: int) -> None:
        """Let files of a scope go, as the policy has it, so that ``size`` bytes of a kind may come to it, ``staged``
        of which are counted already.

        Raises QuotaReached and StorageFull where it would not help, before anything goes; StoreUnavailable.
        """

        async def make(scope: ScopeFiles) -> None:
            if records := await self._room_for(scope_id, kind, [size], staged):
                await self._exchange(scope, records)

        async with self.cache.lock(scope_id):
            await run_to_completion(self._in_turn(scope_id, make))

    async def put_out_scope(self, scope_id: str) -> None:
        """Hold nothing of a scope, and leave nothing of it on disk. Raises StoreUnavailable."""
        async with self.cache.lock(scope_id):
            await run_to_completion(self._put_out_scope(scope_id))

    async def _put_out_scope(self, scope_id: str) -> None:
        def everything(scope: ScopeFiles) -> Sequence[FileRecord]:
            scope.ended = True
            return list(scope.records.values())

        if not self.cache.is_empty(scope_id):
            await self._put_out(scope_id, everything)
            scope = self.cache.scopes.get(scope_id)
            if scope is not None and self.cache.is_idle(scope):
                self.cache.scopes.pop(scope_id)
        try:
            await self.cache.files.remove_scope(scope_id)
        except StorageFailed as error:
            self.log.warning(
                "what a scope left could not be removed; the sweep will try again", why=str(error)
            )

    async def _put_out(self, scope_id: str, choose: Choice) -> None:
        """Remove what is chosen. The caller has the lock of the scope."""

        async def chosen(scope: ScopeFiles) -> None:
            if records := choose(scope):
                await self._exchange(scope, records)

        await self._in_turn(scope_id, chosen)

    # --- in use -----------------------------------------------------------------------------------------------

    async def hold(self, record: FileRecord) -> Release:
        """Keep a file from eviction and expiry, in all replicas, until the function returned is called. Raises
        FileGone, StoreUnavailable."""
        scope = await self.cache.know(record.scope)
        release = self.cache.hold(record)
        if not self.cache.is_shared:
            return release
        if record.key not in scope.announced or not self.storage.leases.is_current:
            try:
                await run_to_completion(self._announce(scope.id, record))
            except BaseException:
                release()
                raise

        def end() -> None:
            release()
            scope.lingering.add(record.key)

        return end

    async def announce_uses(self) -> None:
        """Let other replicas know which files are in use no longer, and find out what came of writes that failed.

        Raises StoreUnavailable, StorageFailed.
        """
        for scope in list(self.cache.scopes.values()):
            scope.lingering.clear()
            if scope.doubts:
                await self.cache.know(scope.id)
            if scope.announced != self.cache.in_use(scope):
                await self._announce(scope.id)

    async def _announce(self, scope_id: str, record: FileRecord | None = None) -> None:
        """Write down which files of a scope are in use here. Raises FileGone if ``record`` is gone."""

        async def write(scope: ScopeFiles) -> None:
            if record is not None and record.key not in scope.records:
                raise FileGone()
            if scope.announced != self.cache.in_use(scope) | scope.lingering:
                await self.cache.commit(scope)

        async with self.cache.lock(scope_id):
            await self._in_turn(scope_id, write)
