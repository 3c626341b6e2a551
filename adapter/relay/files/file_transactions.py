"""Changes of a scope's files: files are added all or none; when one is removed, its row goes before its bytes.

Changes of one scope happen one after another, so room that was found a moment ago is still there. The rows of
files that are removed to make room change in one step with the rows of the new files: if the process is killed
at any moment, it leaves at worst files without a row, and the sweep removes those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from adapter.errors import StorageFailed, StoreUnavailable
from adapter.files.port import FileStore, Staging
from adapter.relay.background import run_to_completion
from adapter.relay.files.file_index import FileIndex
from adapter.rules.files.file_records import FileKind, FileRecord, Place, encode
from adapter.rules.files.quota import Ledger
from adapter.state.port import ABSENT, Delete, Put, Store

TABLE = "files"

Spend = Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
"""Burns what may be used once, and returns what takes that back; raises when somebody else was first."""


class IncomingFile(NamedTuple):
    """A file that is to be held. ``staging`` None: its bytes lie at the record's place already, where whoever brings
    it expects it.
    """

    record: FileRecord
    staging: Staging | None


class Staged:
    """Bytes of one newcomer that are on disk ahead of their entry. ``size`` of them are counted."""

    def __init__(self, ledger: Ledger, scope_id: str) -> None:
        self._ledger = ledger
        self.scope_id = scope_id
        self.size = 0

    def grow(self, size: int) -> None:
        """Raises StorageFull, counting nothing."""
        if size:
            self._ledger.stage(self.scope_id, size)
            self.size += size

    def shrink(self, size: int) -> None:
        self._ledger.unstage(self.scope_id, size)
        self.size -= size

    def release(self) -> None:
        """The bytes are gone, or an entry."""
        self.shrink(self.size)


class _Taken(NamedTuple):
    arrivals: Sequence[IncomingFile]
    unspend: Callable[[], Awaitable[None]] | None


_Directory = tuple[FileKind, str, str]
"""A place but for its name: nothing else lies there."""


def _gone(record: FileRecord) -> Delete:
    return Delete(TABLE, record.key)


class FileTransactions:
    """The one writer of file rows. ``gone`` is told of each file that is held no longer."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        index: FileIndex,
        log: FilteringBoundLogger,
        gone: Callable[[FileRecord], None],
    ) -> None:
        self._store = store
        self._files = files
        self._index = index
        self._log = log
        self._gone = gone
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._expected: dict[_Directory, int] = {}

    def __repr__(self) -> str:
        return (
            f"<FileTransactions: {len(self._changing)} scopes changing, {len(self._expected)} files expected>"
        )

    def knows(self, place: Place) -> bool:
        """Tell whether a file at that place is held, or about to come or go. Safe to ask from any thread."""
        return place[:3] in self._expected or self._index.knows(place)

    def expect(self, *places: Place) -> Callable[[], None]:
        """Let all files in the directories of these places be known though no record knows them, until the function
        returned is called: a tool may write its file under another name first.
        """
        waiting = list(places)
        for place in places:
            directory = place[:3]
            self._expected[directory] = self._expected.get(directory, 0) + 1

        def forget() -> None:
            while waiting:
                directory = waiting.pop()[:3]
                self._expected[directory] -= 1
                if not self._expected[directory]:
                    del self._expected[directory]

        return forget

    # --- in ---------------------------------------------------------------------------------------------------

    async def take_in(
        self,
        arrivals: Sequence[IncomingFile],
        staged: Staged,
        spend: Spend | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Hold files of one scope and kind from now on: all of them, or none and nothing has changed.

        ``staged`` counts their bytes; what of it is left afterwards is the caller's to release, and so are the
        stagings when this raises. Raises QuotaReached, StorageFull, StorageFailed, StoreUnavailable, and what
        ``spend`` and, when it is these files' turn, ``check`` raise.
        """
        async with self._change(arrivals[0].record.scope):
            if check is not None:
                check()
            await run_to_completion(self._take_in(arrivals, staged, spend), self._give_back)

    async def _take_in(self, arrivals: Sequence[IncomingFile], staged: Staged, spend: Spend | None) -> _Taken:
        scope_id = arrivals[0].record.scope
        await self._put_out(self._index.over(scope_id))
        moving = [(record.place, staging) for record, staging in arrivals if staging is not None]
        if spend is not None or moving:
            self._victims(arrivals, staged)  # refuses before anything is spent or moved
        unspend = await spend() if spend else None
        forget = self.expect(*(place for place, _ in moving))
        placed: list[Place] = []
        try:
            for place, staging in moving:
                placed.append(place)
                await self._files.place(staging, place)
            await self._write_down(arrivals, staged)
        except BaseException:
            for place in placed:
                await self.remove(place)
            await self._take_back(unspend)
            raise
        finally:
            forget()
        return _Taken(arrivals, unspend)

    async def _write_down(self, arrivals: Sequence[IncomingFile], staged: Staged) -> None:
        """Exchange victims for newcomers. The sum of all bytes counted is the same until the victims are gone."""
        # Asked again: in the meantime somebody may have begun to use one of them.
        victims = self._victims(arrivals, staged)
        records = [arrival.record for arrival in arrivals]
        leaving = [victim.place for victim in victims]
        forget = self.expect(*leaving)
        try:
            undo: list[Callable[[], None]] = []
            try:
                self._exchange(victims, records, staged, undo)
                await self._store.commit([*map(_gone, victims), *map(self._new, records)])
            except BaseException:
                for step in reversed(undo):
                    step()
                raise
            for record in records:
                self._index.show(record)
            for victim in victims:
                self._gone(victim)
                await self.remove(victim.place)
        finally:
            forget()

    def _new(self, record: FileRecord) -> Put:
        return Put(TABLE, record.key, encode(record), self._index.expires_at(record), expected=ABSENT)

    def _exchange(
        self,
        victims: Sequence[FileRecord],
        records: Sequence[FileRecord],
        staged: Staged,
        undo: list[Callable[[], None]],
    ) -> None:
        """``undo`` gets what takes it back, step by step and the last step first."""
        new, old = (sum(record.content.size for record in some) for some in (records, victims))
        undo.append(partial(staged.grow, new))
        staged.shrink(new)
        for victim in victims:
            entry = self._index.ledger.entry(victim.key)
            assert entry is not None, "a victim is what the ledger named"
            undo.append(partial(self._index.show, victim))
            undo.append(partial(self._index.ledger.add, entry))
            self._index.hide(victim)
            self._index.ledger.remove(victim.key)
        for record in records:
            undo.append(partial(self._index.ledger.remove, record.key))
            self._index.count(record)
        staged.grow(old)
        undo.append(partial(staged.shrink, old))

    def _victims(self, arrivals: Sequence[IncomingFile], staged: Staged) -> list[FileRecord]:
        first = arrivals[0].record
        sizes = [arrival.record.content.size for arrival in arrivals]
        return self._room_for(first.scope, first.kind, sizes, staged.size)

    def _room_for(self, scope_id: str, kind: FileKind, sizes: Sequence[int], staged: int) -> list[FileRecord]:
        keys = self._index.ledger.room_for(scope_id, kind, sizes, staged)
        return [record for key in keys if (record := self._index.get(key)) is not None]

    async def _give_back(self, taken: _Taken) -> None:
        """Whoever brought these files went away before being told that they are held."""
        try:
            await self._put_out([arrival.record for arrival in taken.arrivals])
        except StoreUnavailable:
            self._log.warning("files that nobody knows of stay until they expire, because the store failed")
        await self._take_back(taken.unspend)

    async def _take_back(self, unspend: Callable[[], Awaitable[None]] | None) -> None:
        if unspend is not None:
            try:
                await unspend()
            except StoreUnavailable:
                self._log.warning("a credential stays spent, because the state store failed")

    # --- out --------------------------------------------------------------------------------------------------

    async def put_out(self, scope_id: str, choose: Callable[[], Sequence[FileRecord]]) -> None:
        """Hold those files of a scope no longer that ``choose`` names when it is their turn.

        Raises StoreUnavailable; then they are held still.
        """

        async def chosen() -> None:
            # In one go with the choice: in between, somebody might begin to use one of them.
            await self._put_out(choose())

        async with self._change(scope_id):
            await run_to_completion(chosen())

    async def put_out_expired(self) -> None:
        """Hold nothing longer whose time is over, whosever it is. Raises StoreUnavailable."""

        async def put_out(scope_id: str) -> None:
            await self.put_out(scope_id, lambda: self._index.over(scope_id))

        over = [scope.id for scope in self._index.scopes() if self._index.over(scope.id)]
        await asyncio.gather(*map(put_out, over))

    async def make_room(self, scope_id: str, kind: FileKind, size: int, staged: int) -> None:
        """Let files of a scope go, as the policy has it, so that ``size`` bytes of a kind may come to it, ``staged``
        of which are counted already.

        Raises QuotaReached and StorageFull where it would not help, before anything goes; StoreUnavailable.
        """

        await self.put_out(scope_id, lambda: self._room_for(scope_id, kind, [size], staged))

    async def put_out_scope(self, scope_id: str) -> None:
        """Hold nothing of a scope, and leave nothing of it on disk. Raises StoreUnavailable."""
        async with self._change(scope_id):
            await run_to_completion(self._put_out_scope(scope_id))

    async def _put_out_scope(self, scope_id: str) -> None:
        await self._put_out(self._index.all_of(scope_id))
        try:
            await self._files.remove_scope(scope_id)
        except StorageFailed as error:
            self._log.warning(
                "what a scope left could not be removed; the sweep will try again", why=str(error)
            )

    async def _put_out(self, records: Sequence[FileRecord]) -> None:
        if not records:
            return
        forget = self.expect(*(record.place for record in records))
        for record in records:
            self._index.hide(record)
        try:
            await self._store.commit([*map(_gone, records)])
        except BaseException:
            for record in records:
                self._index.show(record)
            raise
        finally:
            forget()
        for record in records:
            self._gone(record)
            await self.remove(record.place)
            self._index.ledger.remove(record.key)

    async def remove(self, place: Place) -> None:
        """Remove bytes that no row knows; where the disk refuses, the sweep is left to try again."""
        try:
            await self._files.remove(place)
        except StorageFailed as error:
            self._log.warning("a file could not be removed; the sweep will try again", why=str(error))

    def _change(self, scope_id: str) -> asyncio.Lock:
        # Held by those who wait for it, so it lives exactly as long as somebody does.
        return self._changing.setdefault(scope_id, asyncio.Lock())
