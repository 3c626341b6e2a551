"""The files of the scopes that are in use here, as this process knows them: records, last use of each, and holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from adapter.errors import FileGone
from adapter.rules.files.file_records import FileKind, FileRecord, Place, record_key
from adapter.rules.files.quota import HeldFiles, Limits
from adapter.state.port import ABSENT, STALE, RowReads


@dataclass(slots=True, eq=False)
class ScopeFiles(HeldFiles):
    """The files of one scope.

    ``version`` is that of the scope's head when it was last read or written, ``epoch`` the index's own when it was last
    confirmed. ``holders`` are the keys that other replicas use, ``announced`` those that this one is known to use, and
    ``lingering`` those that it goes on to announce for a while though nobody uses them. ``doubts`` are keys of which a
    failed write leaves open if they have a row. ``used``: since unused scopes were last dropped. ``ended``: its owner
    does not come back.
    """

    id: str
    dues: list[tuple[float, str]] = field(default_factory=list, init=False)
    held: Counter[str] = field(default_factory=Counter, init=False)
    version: int = field(default=ABSENT, init=False)
    epoch: int = field(default=STALE, init=False)
    holders: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    announced: frozenset[str] = field(default=frozenset(), init=False)
    lingering: set[str] = field(default_factory=set, init=False)
    doubts: set[str] = field(default_factory=set, init=False)
    used: bool = field(default=True, init=False)
    ended: bool = field(default=False, init=False)


@dataclass(eq=False)
class FileIndex(RowReads):
    """All that is known here of files. Only FileTransactions and ScopeCache add and remove; using and finding is
    everybody's, for a scope that the cache has read.

    ``ttls`` are seconds since the last access, None: as long as the scope. ``clock`` gives Unix time. ``is_dead`` tells
    of another replica that it has ended.

    ``spare`` is what may still come to all scopes together, in bytes, None for any amount; of that ``staged`` are on
    their way. ``leaving`` are those of files whose rows are gone and whose bytes are not. Only some scopes need to be
    known here: what is loaded or closed changes nothing about it.
    """

    limits: Limits
    ttls: Mapping[FileKind, float | None]
    clock: Callable[[], float]
    is_dead: Callable[[str], bool]

    def __post_init__(self) -> None:
        super().__init__()
        self.spare = self.limits.total_bytes
        self.staged = 0
        self.leaving = 0
        self.scopes: dict[str, ScopeFiles] = {}
        self._used: dict[str, FileRecord] = {}

    def __repr__(self) -> str:
        held = sum(len(scope.held) for scope in self.scopes.values())
        counts = f"{self.files} files, {self.total} bytes, {self.staged} more staged"
        return f"<FileIndex: {len(self.scopes)} scopes, {held} files held, {counts}>"

    @property
    def files(self) -> int:
        """The number of files that are known here."""
        return sum(len(scope.records) for scope in self.scopes.values())

    @property
    def total(self) -> int:
        """Bytes of the files that are known here."""
        return sum(scope.size for scope in self.scopes.values())

    # --- scopes -----------------------------------------------------------------------------------------------

    def is_fresh(self, scope_id: str) -> bool:
        """Tell whether the scope can be used without a look at the store, and note that it is used."""
        scope = self.scopes.get(scope_id)
        if scope is None or scope.epoch != self.epoch:
            return False
        scope.used = True
        return True

    def open_scope(self, scope_id: str) -> ScopeFiles:
        """The scope, which is known from now on."""
        return self.scopes.setdefault(scope_id, ScopeFiles(scope_id))

    # --- coming and going -------------------------------------------------------------------------------------

    def lacking(self, size: int, staged: int = 0) -> int:
        """Bytes that all files together leave too few for ``size`` more, ``staged`` of which are staged already; 0 or
        less if there is room."""
        return 0 if self.spare is None else self.staged - staged + size - self.spare

    def charge(self, size: int) -> None:
        """Count bytes that have come, or have gone if there are less than none."""
        if self.spare is not None:
            self.spare -= size

    def add(self, record: FileRecord, came: float) -> None:
        """Let a file take its room, and be found."""
        self.charge(record.content.size)
        self.show(record, came)

    def load(self, record: FileRecord, due: float | None, *, charged: bool) -> None:
        """Know of a file that has a row with that due time. Its room is taken already, unless it is ``charged``."""
        scope, last_access = self.scopes[record.scope], self.last_access(record, due)
        if record.key in scope.records:
            scope.touch(record.key, last_access)
            self._expect_end(record)
        elif charged:
            self.add(record, last_access)
        else:
            self.show(record, last_access)

    def show(self, record: FileRecord, last_access: float) -> None:
        """Let a file be found whose room is taken."""
        self.scopes[record.scope].put(record, last_access)
        self._expect_end(record)

    def hide(self, record: FileRecord) -> float:
        """Let a file be found no more, though its bytes take their room until they are gone; when it was used last."""
        scope = self.scopes[record.scope]
        last_access = scope.take(record)
        if not scope.records:
            scope.dues.clear()
        return last_access

    # --- finding ----------------------------------------------------------------------------------------------

    def get(self, key: str) -> FileRecord | None:
        """Also one whose time is over."""
        scope = self.scopes.get(key.partition("/")[0])
        return None if scope is None else scope.records.get(key)

    def find(self, scope_id: str, kind: FileKind, file_id: str) -> FileRecord | None:
        record = self.get(record_key(scope_id, kind, file_id))
        return None if record is None or self.is_over(record) else record

    def all_of(self, scope_id: str) -> list[FileRecord]:
        """Everything the scope holds, in the order it came; also what is over."""
        scope = self.scopes.get(scope_id)
        return [] if scope is None else list(scope.records.values())

    def alive(self, scope_id: str, kind: FileKind) -> Iterator[FileRecord]:
        """The records of a kind that can be found, in the order they came."""
        return (
            record for record in self.all_of(scope_id) if record.kind is kind and not self.is_over(record)
        )

    def over(self, scope_id: str) -> list[FileRecord]:
        """Files of the scope whose time is over and that nobody holds, the first to end first."""
        scope, now = self.scopes.get(scope_id), self.clock()
        ended: dict[str, FileRecord] = {}
        found: list[FileRecord] = []
        # A heap, because this is asked at every newcomer: who holds thousands of files must not wait for each.
        while scope is not None and scope.dues and scope.dues[0][0] <= now:
            record = scope.records.get(heappop(scope.dues)[1])
            if record is not None and record.key not in ended:
                ended[record.key] = record
                if self.is_over(record):
                    found.append(record)
        # Those that were used since are due later now; the others until whoever asked has put them out.
        for record in ended.values():
            self._expect_end(record)
        return found

    def _expect_end(self, record: FileRecord) -> None:
        """Have ``over`` look at the file when its time is over as things are; it may have been used until then."""
        due = self.expires_at(record)
        if due is not None:
            heappush(self.scopes[record.scope].dues, (due, record.key))

    def knows(self, place: Place) -> bool:
        record = self.get(record_key(place.scope, place.kind, place.id))
        return record is not None and record.place == place

    # --- using ------------------------------------------------------------------------------------------------

    def touch(self, record: FileRecord) -> None:
        """The file is used now: its time begins anew."""
        self._use(record, self.clock())

    def keep(self, record: FileRecord, seconds: float) -> None:
        """Let the file's time end so many seconds from now, if that is later than it would."""
        ttl = self.ttls[record.kind]
        if ttl is not None:
            self._use(record, self.clock() + seconds - ttl)

    def _use(self, record: FileRecord, at: float) -> None:
        if (scope := self.scopes.get(record.scope)) is not None:
            scope.touch(record.key, at)
        self._used[record.key] = record

    def hold(self, record: FileRecord) -> Callable[[], None]:
        """Keep a file from eviction and expiry here until the function returned is called. Raises FileGone."""
        scope = self.scopes.get(record.scope)
        if scope is None or record.key not in scope.records:
            raise FileGone()
        scope.held[record.key] += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self.touch(record)  # it was in use until now
                scope.held[record.key] -= 1
                if not scope.held[record.key]:
                    del scope.held[record.key]

        return release

    def spared(self, scope_id: str) -> Container[str]:
        """Keys of files in use, here or in other replicas."""
        scope = self.scopes.get(scope_id)
        if scope is None or not scope.holders:
            return () if scope is None else scope.held
        return set(scope.held).union(*(keys for _, keys in self.living(scope)))

    def living(self, scope: ScopeFiles) -> Iterator[tuple[str, frozenset[str]]]:
        """The other replicas that use files of the scope and have not ended, with the keys of these files."""
        return ((replica, keys) for replica, keys in scope.holders.items() if not self.is_dead(replica))

    def is_idle(self, scope: ScopeFiles) -> bool:
        """Tell whether nothing is lost when the scope is closed."""
        if scope.held or scope.lingering or scope.announced or scope.doubts:
            return False
        return self._used.keys().isdisjoint(scope.records)

    @property
    def now(self) -> float:
        """Unix time in seconds."""
        return self.clock()

    # --- time -------------------------------------------------------------------------------------------------

    def expires_at(self, record: FileRecord) -> float | None:
        """When its time is over if nobody uses it again (Unix seconds); None: never."""
        ttl = self.ttls[record.kind]
        if ttl is None:
            return None
        scope = self.scopes.get(record.scope)
        used = None if scope is None else scope.last_access.get(record.key)
        return (self.clock() if used is None else used) + ttl

    def last_access(self, record: FileRecord, due: float | None) -> float:
        """When a file was last used, out of its row's due time."""
        ttl = self.ttls[record.kind]
        last_access = record.created if ttl is None or due is None else due - ttl
        return min(last_access, self.clock())  # the setting may have been another

    def take_used(self) -> dict[str, FileRecord]:
        """The files used since the last call, and those in use, that are still there, by key."""
        used, self._used = self._used, {}
        for scope in self.scopes.values():
            for key in scope.held.keys() & scope.records.keys():
                scope.touch(key, self.clock())
                used[key] = scope.records[key]
        return {key: record for key, record in used.items() if self.get(key) is not None}

    def give_used(self, used: Mapping[str, FileRecord]) -> None:
        """They were taken in vain."""
        self._used.update(used)

    def is_over(self, record: FileRecord) -> bool:
        """Tell whether the file's time is over, and nobody uses it."""
        due = self.expires_at(record)
        if due is None or due > self.clock():
            return False
        return record.key not in self.spared(record.scope)


@dataclass(eq=False, slots=True)
class StagedBytes:
    """Bytes of one newcomer that are on disk before it is found. ``size`` of them are counted."""

    index: FileIndex
    scope_id: str
    size: int = field(default=0, init=False)

    def grow(self, size: int) -> None:
        """Raises StorageFull, counting nothing."""
        if size and self.index.lacking(size) > 0:
            raise self.index.limits.storage_full
        self.index.staged += size
        self.size += size

    def shrink(self, size: int) -> None:
        """These bytes are gone, or counted as those of a file."""
        self.index.staged -= size
        self.size -= size
