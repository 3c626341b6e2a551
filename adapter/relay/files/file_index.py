"""The files held now, as this process knows them: records, last use of each, and who keeps which in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush

from adapter.errors import FileGone
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place, record_key
from adapter.rules.files.quota import Entry, Ledger


class FileIndex:
    """Records in memory over a ledger. Only FileTransactions adds and removes; using and finding is everybody's.

    ``ttls`` are seconds since the last access, None: as long as the scope. ``clock`` gives Unix time.
    """

    def __init__(
        self, ledger: Ledger, ttls: Mapping[FileKind, float | None], clock: Callable[[], float]
    ) -> None:
        self.ledger = ledger
        self._ttls = ttls
        self._clock = clock
        self._scopes: dict[str, dict[str, FileRecord]] = {}
        self._holds: Counter[str] = Counter()
        self._used: dict[str, FileRecord] = {}
        self._dues: dict[str, list[tuple[float, str]]] = {}

    def __repr__(self) -> str:
        return f"<FileIndex: {len(self._scopes)} scopes, {self.ledger!r}>"

    # --- coming and going -------------------------------------------------------------------------------------

    def count(self, record: FileRecord, last_access: float | None = None) -> None:
        """Let a file that nobody can find yet take its room."""
        last_access = self._clock() if last_access is None else last_access
        self.ledger.add(Entry(record.key, record.scope, record.kind, record.content.size, last_access))

    def show(self, record: FileRecord) -> None:
        """Let a file that is counted be found."""
        self._scopes.setdefault(record.scope, {})[record.key] = record
        self._expect_end(record)

    def hide(self, record: FileRecord) -> None:
        """Let a file be found no more, though it takes its room still."""
        records = self._scopes.get(record.scope, {})
        records.pop(record.key, None)
        if not records:
            self._scopes.pop(record.scope, None)
            self._dues.pop(record.scope, None)

    # --- finding ----------------------------------------------------------------------------------------------

    def get(self, key: str) -> FileRecord | None:
        """Also one whose time is over."""
        return self._scopes.get(key.partition("/")[0], {}).get(key)

    def find(self, scope_id: str, kind: FileKind, file_id: str) -> FileRecord | None:
        record = self.get(record_key(scope_id, kind, file_id))
        return None if record is None or self._is_over(record) else record

    def all_of(self, scope_id: str) -> list[FileRecord]:
        """Everything the scope holds, in the order it came; also what is over."""
        return list(self._scopes.get(scope_id, {}).values())

    def alive(self, scope_id: str, kind: FileKind) -> Iterator[FileRecord]:
        """The records of a kind that can be found, in the order they came."""
        return (
            record for record in self.all_of(scope_id) if record.kind is kind and not self._is_over(record)
        )

    def over(self, scope_id: str) -> list[FileRecord]:
        """Files of the scope whose time is over and that nobody holds, the first to end first."""
        dues, now = self._dues.get(scope_id, []), self._clock()
        ended: dict[str, FileRecord] = {}
        found: list[FileRecord] = []
        # A heap, because this is asked at every newcomer: who holds thousands of files must not wait for each.
        while dues and dues[0][0] <= now:
            record = self.get(heappop(dues)[1])
            if record is not None and record.key not in ended:
                ended[record.key] = record
                if self._is_over(record):
                    found.append(record)
        # Those that were used since are due later now; the others until whoever asked has put them out.
        for record in ended.values():
            self._expect_end(record)
        return found

    def _expect_end(self, record: FileRecord) -> None:
        """Have ``over`` look at the file when its time is over as things are; it may have been used until then."""
        due = self.expires_at(record)
        if due is not None:
            heappush(self._dues.setdefault(record.scope, []), (due, record.key))

    def scopes(self) -> list[Scope]:
        """The scopes that hold anything."""
        firsts = (next(iter(records.values())) for records in self._scopes.values())
        return [Scope(record.scope, record.owner) for record in firsts]

    def knows(self, place: Place) -> bool:
        record = self.get(record_key(place.scope, place.kind, place.id))
        return record is not None and record.place == place

    # --- using ------------------------------------------------------------------------------------------------

    def touch(self, record: FileRecord) -> None:
        """The file is used now: its time begins anew."""
        self.ledger.touch(record.key, self._clock())
        self._used[record.key] = record

    def hold(self, record: FileRecord) -> Callable[[], None]:
        """Keep a file from eviction and expiry until the function returned is called. Raises FileGone."""
        if self.get(record.key) is None:
            raise FileGone()
        self.ledger.hold(record.key)
        self._holds[record.key] += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self.touch(record)  # it was in use until now
                self.ledger.release(record.key)
                self._holds[record.key] -= 1
                if not self._holds[record.key]:
                    del self._holds[record.key]

        return release

    # --- time -------------------------------------------------------------------------------------------------

    def expires_at(self, record: FileRecord) -> float | None:
        """When its time is over if nobody uses it again (Unix seconds); None: never."""
        ttl = self._ttls[record.kind]
        if ttl is None:
            return None
        entry = self.ledger.entry(record.key)
        return (self._clock() if entry is None else entry.last_access) + ttl

    def last_access(self, record: FileRecord, due: float | None) -> float:
        """When a file of an earlier process was last used, out of its row's due time."""
        ttl = self._ttls[record.kind]
        last_access = record.created if ttl is None or due is None else due - ttl
        return min(last_access, self._clock())  # the setting may have been another

    def take_used(self) -> dict[str, FileRecord]:
        """The files used since the last call that are still there, by key."""
        used, self._used = self._used, {}
        return {key: record for key, record in used.items() if self.get(key) is not None}

    def give_used(self, used: Mapping[str, FileRecord]) -> None:
        """They were taken in vain."""
        self._used.update(used)

    def _is_over(self, record: FileRecord) -> bool:
        due = self.expires_at(record)
        return due is not None and due <= self._clock() and record.key not in self._holds
