"""The files of the scopes that are in use here, as this process knows them: records, last use of each, and holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from adapter.errors import FileGone
from adapter.rules.files.file_records import FileKind, FileRecord, Place, record_key
from adapter.rules.files.quota import Entry, Ledger
from adapter.state.port import ABSENT

STALE = -1
"""The epoch of a scope that is to be confirmed before it is used."""


@dataclass(slots=True, eq=False)
class ScopeFiles:
    """The files of one scope, in the order they came.

    ``version`` is that of the scope's head when it was last read or written, ``epoch`` the index's own when it was last
    confirmed. ``holders`` are the keys that other replicas use, ``announced`` those that this one is known to use, and
    ``lingering`` those that it goes on to announce for a while though nobody uses them. ``doubts`` are keys of which a
    failed write leaves open if they have a row. ``used``: since unused scopes were last dropped. ``ended``: its owner
    does not come back.
    """

    id: str
    records: dict[str, FileRecord] = field(default_factory=dict, init=False)
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


class FileIndex:
    """Records in memory over a ledger. Only FileTransactions and ScopeCache add and remove; using and finding is
    everybody's, for a scope that the cache has read.

    ``ttls`` are seconds since the last access, None: as long as the scope. ``clock`` gives Unix time. ``is_dead`` tells
    of another replica that it has ended.
    """

    def __init__(
        self,
        ledger: Ledger,
        ttls: Mapping[FileKind, float | None],
        clock: Callable[[], float],
        is_dead: Callable[[str], bool],
    ) -> None:
        self.ledger = ledger
        self.epoch = 0
        self._ttls = ttls
        self._clock = clock
        self._is_dead = is_dead
        self.scopes: dict[str, ScopeFiles] = {}
        self._used: dict[str, FileRecord] = {}

    def __repr__(self) -> str:
        held = sum(len(scope.held) for scope in self.scopes.values())
        return f"<FileIndex: {len(self.scopes)} scopes, {held} files held, {self.ledger!r}>"

    # --- scopes -----------------------------------------------------------------------------------------------

    def scope(self, scope_id: str) -> ScopeFiles | None:
        """The scope as it is known, None for one that is not."""
        return self.scopes.get(scope_id)

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

    def close_scope(self, scope: ScopeFiles) -> None:
        """Know no longer of a scope in which nothing is held."""
        for key in scope.records:
            self.ledger.forget(key)
        self.scopes.pop(scope.id, None)

    # --- coming and going -------------------------------------------------------------------------------------

    def add(self, record: FileRecord) -> None:
        """Let a file that comes now take its room, and be found."""
        self.ledger.add(self._entry(record, self._clock()))
        self.show(record)

    def load(self, record: FileRecord, due: float | None, *, charged: bool) -> None:
        """Know of a file that has a row with that due time. Its room is taken already, unless it is ``charged``."""
        entry = self._entry(record, self.last_access(record, due))
        known = self.ledger.entry(record.key)
        if known is not None:
            self.ledger.touch(record.key, entry.last_access)
        else:
            (self.ledger.add if charged else self.ledger.load)(entry)
        self.show(record)

    def _entry(self, record: FileRecord, last_access: float) -> Entry:
        return Entry(record.key, record.scope, record.kind, record.content.size, last_access)

    def show(self, record: FileRecord) -> None:
        """Let a file that is counted be found."""
        self.scopes[record.scope].records[record.key] = record
        self._expect_end(record)

    def hide(self, record: FileRecord) -> None:
        """Let a file be found no more, though it takes its room still."""
        scope = self.scopes.get(record.scope)
        if scope is not None and scope.records.pop(record.key, None) is not None and not scope.records:
            scope.dues.clear()

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
        scope, now = self.scopes.get(scope_id), self._clock()
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
        self.ledger.touch(record.key, self._clock())
        self._used[record.key] = record

    def keep(self, record: FileRecord, seconds: float) -> None:
        """Let the file's time end so many seconds from now, if that is later than it would."""
        ttl = self._ttls[record.kind]
        if ttl is not None:
            self.ledger.touch(record.key, self._clock() + seconds - ttl)
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
        return ((replica, keys) for replica, keys in scope.holders.items() if not self._is_dead(replica))

    def is_idle(self, scope: ScopeFiles) -> bool:
        """Tell whether nothing is lost when the scope is closed."""
        if scope.held or scope.lingering or scope.announced or scope.doubts:
            return False
        return self._used.keys().isdisjoint(scope.records)

    @property
    def now(self) -> float:
        """Unix time in seconds."""
        return self._clock()

    # --- time -------------------------------------------------------------------------------------------------

    def expires_at(self, record: FileRecord) -> float | None:
        """When its time is over if nobody uses it again (Unix seconds); None: never."""
        ttl = self._ttls[record.kind]
        if ttl is None:
            return None
        entry = self.ledger.entry(record.key)
        return (self._clock() if entry is None else entry.last_access) + ttl

    def last_access(self, record: FileRecord, due: float | None) -> float:
        """When a file was last used, out of its row's due time."""
        ttl = self._ttls[record.kind]
        last_access = record.created if ttl is None or due is None else due - ttl
        return min(last_access, self._clock())  # the setting may have been another

    def take_used(self) -> dict[str, FileRecord]:
        """The files used since the last call, and those in use, that are still there, by key."""
        used, self._used = self._used, {}
        for record in self._held():
            self.ledger.touch(record.key, self._clock())
            used[record.key] = record
        return {key: record for key, record in used.items() if self.get(key) is not None}

    def _held(self) -> Iterator[FileRecord]:
        for scope in self.scopes.values():
            for key in scope.held:
                if (record := scope.records.get(key)) is not None:
                    yield record

    def give_used(self, used: Mapping[str, FileRecord]) -> None:
        """They were taken in vain."""
        self._used.update(used)

    def is_over(self, record: FileRecord) -> bool:
        """Tell whether the file's time is over, and nobody uses it."""
        due = self.expires_at(record)
        if due is None or due > self._clock():
            return False
        return record.key not in self.spared(record.scope)
