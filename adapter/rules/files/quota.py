"""The amount that is kept, and the files that go when there is no more room. Pure: the caller moves the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adapter.errors import QuotaReached, StorageFull
from adapter.rules.files.file_records import FileKind

Policy = Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"]

_FIRST_TO_GO: dict[Policy, FileKind] = {
    "lru_uploads_then_artifacts": FileKind.UPLOAD,
    "lru_artifacts_then_uploads": FileKind.ARTIFACT,
}


class Entry(NamedTuple):
    """One file that is kept. ``key`` is its record's, ``size`` is in bytes, ``last_access`` in Unix seconds."""

    key: str
    scope: str
    kind: FileKind
    size: int
    last_access: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of one scope, bytes of all files together, artifacts of one scope; None sets no limit.

    ``policy`` says which kind of a scope's files makes room first; of one kind the longest unused goes first.
    """

    scope_bytes: int | None = None
    total_bytes: int | None = None
    artifacts: int | None = None
    policy: Policy = "lru_uploads_then_artifacts"


class Ledger:
    """The files that are kept for each scope. A file counts once: as staged bytes until it is an entry, then as that.

    A caller keeps every limit if it evicts the entries that ``room_for`` names before it adds the new file.

    Only some scopes need to be known here. ``spare`` is what may still come to all scopes together, staged bytes
    included, in bytes; None for any amount. Entries that are loaded or forgotten change nothing about it. ``charged``
    is the sum of all bytes that came here, less those that went.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.spare = limits.total_bytes
        self.charged = 0
        self._scopes: dict[str, dict[str, Entry]] = {}
        self._scope_of: dict[str, str] = {}
        self._used: Counter[str] = Counter()
        self._counts: Counter[tuple[str, FileKind]] = Counter()
        self._total = 0
        self._staged: Counter[str] = Counter()
        self._all_staged = 0

    def __repr__(self) -> str:
        return f"<Ledger: {len(self._scope_of)} files, {self._total} bytes, {self._all_staged} more staged>"

    # --- what is there ----------------------------------------------------------------------------------------

    @property
    def files(self) -> int:
        """The number of files that are counted."""
        return len(self._scope_of)

    @property
    def total(self) -> int:
        """Bytes of all entries."""
        return self._total

    @property
    def staged(self) -> int:
        """Bytes that are on their way into all scopes."""
        return self._all_staged

    def used(self, scope: str) -> int:
        """Bytes of the scope's entries."""
        return self._used.get(scope, 0)

    def count(self, scope: str, kind: FileKind) -> int:
        """Return the number of entries of this kind that the scope has."""
        return self._counts.get((scope, kind), 0)

    def entry(self, key: str) -> Entry | None:
        scope = self._scope_of.get(key)
        return None if scope is None else self._scopes[scope][key]

    # --- what happens to it -----------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Count a file that comes. One that is counted already counts as it is now."""
        self.remove(entry.key)
        self.load(entry)
        self._charge(entry.size)

    def remove(self, key: str) -> None:
        """Count a file that goes no more. Harmless when it is not counted."""
        entry = self.forget(key)
        if entry is not None:
            self._charge(-entry.size)

    def _charge(self, size: int) -> None:
        self.charged += size
        if self.spare is not None:
            self.spare -= size

    def load(self, entry: Entry) -> None:
        """Know of a file that is kept already, and is not known yet."""
        self._scopes.setdefault(entry.scope, {})[entry.key] = entry
        self._scope_of[entry.key] = entry.scope
        self._used[entry.scope] += entry.size
        self._counts[entry.scope, entry.kind] += 1
        self._total += entry.size

    def forget(self, key: str) -> Entry | None:
        """Know no longer of a file that is kept, or was removed by somebody else."""
        scope = self._scope_of.pop(key, None)
        if scope is None:
            return None
        entries = self._scopes[scope]
        entry = entries.pop(key)
        self._used[scope] -= entry.size
        self._counts[scope, entry.kind] -= 1
        self._total -= entry.size
        if not entries:
            del self._scopes[scope], self._used[scope]
            for kind in FileKind:
                self._counts.pop((scope, kind), None)
        return entry

    def touch(self, key: str, now: float) -> None:
        """The file was used at ``now``. A clock that went back does not make it older; unknown keys are none."""
        entry = self.entry(key)
        if entry is not None and now > entry.last_access:
            self._scopes[entry.scope][key] = entry._replace(last_access=now)

    def stage(self, scope: str, size: int) -> None:
        """Count bytes that go to disk ahead of their entry. Raises StorageFull, counting nothing, above the total;
        ``room_for`` says what may go for them.
        """
        if self.spare is not None and self._all_staged + size > self.spare:
            raise _storage_full(self.limits.total_bytes)
        self.restage(scope, size)

    def restage(self, scope: str, size: int) -> None:
        """Count bytes again that are no entry after all, whatever the limits."""
        self._staged[scope] += size
        self._all_staged += size

    def unstage(self, scope: str, size: int) -> None:
        """These staged bytes are an entry now, or gone. Raises ValueError for more than the scope has staged."""
        if size > self._staged[scope]:
            raise ValueError("unstaged more than was staged")
        self._staged[scope] -= size
        self._all_staged -= size
        if not self._staged[scope]:
            del self._staged[scope]

    # --- room -------------------------------------------------------------------------------------------------

    def lacking(self, size: int, staged: int) -> int:
        """Bytes that all files together leave too few for ``size`` more, ``staged`` of which are counted already; 0 or
        less if there is room."""
        return 0 if self.spare is None else self._all_staged - staged + size - self.spare

    def room_for(
        self, scope: str, kind: FileKind, sizes: Sequence[int], staged: int, spared: Container[str] = ()
    ) -> tuple[str, ...]:
        """Keys of the scope's own files to evict, in order, so that files of these sizes fit; mostly none.

        ``staged`` is how many of their bytes are counted as staged already, so that none counts twice. ``spared`` are
        files in use, which stay. Raises QuotaReached for files that do not fit the scope, StorageFull for files that do
        not fit with everybody else's; then nothing is to be evicted.
        """
        limits, new = self.limits, sum(sizes)
        self._check_count(scope, kind, len(sizes))
        beyond_scope, beyond_total = 0, self.lacking(new, staged)
        if limits.scope_bytes is not None:
            if new > limits.scope_bytes:
                raise QuotaReached(
                    "The files are larger than the limit for all files of one session: "
                    f"sessions.max_total_session_size is {limits.scope_bytes} bytes."
                )
            beyond_scope = self.used(scope) + new - limits.scope_bytes
        needed = max(beyond_scope, beyond_total)
        if needed <= 0:
            return ()
        evictable = self._evictable(scope, spared)
        free = sum(entry.size for entry in evictable)
        if free < beyond_scope:
            raise QuotaReached(
                "The session's files in use leave no space: sessions.max_total_session_size is "
                f"{limits.scope_bytes} bytes. Try again when they are released."
            )
        if free < beyond_total:
            raise _storage_full(limits.total_bytes)
        return tuple(_first(evictable, needed))

    def _check_count(self, scope: str, kind: FileKind, new: int) -> None:
        most = self.limits.artifacts
        if kind is FileKind.ARTIFACT and most is not None and self.count(scope, kind) + new > most:
            raise QuotaReached(
                f"The session already has {most} artifacts: artifacts.max_per_session is reached."
            )

    def _evictable(self, scope: str, spared: Container[str]) -> list[Entry]:
        """The scope's entries that free something and are not spared, the first to go first."""
        first = _FIRST_TO_GO[self.limits.policy]
        entries = self._scopes.get(scope, {}).values()
        return sorted(
            (entry for entry in entries if entry.size and entry.key not in spared),
            key=lambda entry: (entry.kind is not first, entry.last_access),
        )


def _first(entries: Sequence[Entry], needed: int) -> Iterator[str]:
    for entry in entries:
        if needed <= 0:
            return
        yield entry.key
        needed -= entry.size


def _storage_full(limit: int | None) -> StorageFull:
    return StorageFull(
        f"There is no space for the file: storage.max_size is {limit} bytes for all files together."
    )
