"""The files that a scope holds, and those that go when there is no more room. Pure: the caller moves the files."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adapter.errors import QuotaReached, StorageFull
from adapter.rules.files.file_records import FileKind, FileRecord

Policy = Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"]

_FIRST_TO_GO: dict[Policy, FileKind] = {
    "lru_uploads_then_artifacts": FileKind.UPLOAD,
    "lru_artifacts_then_uploads": FileKind.ARTIFACT,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of one scope, bytes of all files together, artifacts of one scope; None sets no limit.

    ``policy`` says which kind of a scope's files makes room first; of one kind the longest unused goes first.
    """

    scope_bytes: int | None = None
    total_bytes: int | None = None
    artifacts: int | None = None
    policy: Policy = "lru_uploads_then_artifacts"

    @property
    def storage_full(self) -> StorageFull:
        """The failure where all files together leave no room."""
        return StorageFull(
            f"There is no space for the file: storage.max_size is {self.total_bytes} bytes for all files together."
        )


@dataclass(slots=True, eq=False)
class HeldFiles:
    """The files of one scope, in the order they came, and when each was used last (Unix seconds), by their keys.

    ``size`` is that of all of them in bytes, ``artifacts`` the number of those. A caller keeps every limit if it takes
    out the files that ``room_for`` names before it puts the new ones in.
    """

    records: dict[str, FileRecord] = field(default_factory=dict, init=False)
    last_access: dict[str, float] = field(default_factory=dict, init=False)
    size: int = field(default=0, init=False)
    artifacts: int = field(default=0, init=False)

    def put(self, record: FileRecord, last_access: float) -> None:
        """Hold a file that is not held yet."""
        self.records[record.key] = record
        self.last_access[record.key] = last_access
        self.size += record.content.size
        self.artifacts += record.kind is FileKind.ARTIFACT

    def take(self, record: FileRecord) -> float:
        """Hold a file no more that is held; when it was used last."""
        del self.records[record.key]
        self.size -= record.content.size
        self.artifacts -= record.kind is FileKind.ARTIFACT
        return self.last_access.pop(record.key)

    def touch(self, key: str, now: float) -> None:
        """The file was used at ``now``. A clock that went back does not make it older; unknown keys are none."""
        if now > self.last_access.get(key, now):
            self.last_access[key] = now

    def room_for(
        self,
        limits: Limits,
        kind: FileKind,
        sizes: Sequence[int],
        lacking: int = 0,
        spared: Container[str] = (),
    ) -> list[FileRecord]:
        """The files to evict, in order, so that new ones of these sizes fit; mostly none.

        ``lacking`` bytes are too few for the new ones in all files together, 0 or less if there is room. ``spared`` are
        files in use, which stay. Raises QuotaReached for files that do not fit the scope, StorageFull for files that do
        not fit with everybody else's; then nothing is to be evicted.
        """
        new, most = sum(sizes), limits.artifacts
        if kind is FileKind.ARTIFACT and most is not None and self.artifacts + len(sizes) > most:
            raise QuotaReached(
                f"The session already has {most} artifacts: artifacts.max_per_session is reached."
            )
        beyond_scope = 0
        if limits.scope_bytes is not None:
            if new > limits.scope_bytes:
                raise QuotaReached(
                    "The files are larger than the limit for all files of one session: "
                    f"sessions.max_total_session_size is {limits.scope_bytes} bytes."
                )
            beyond_scope = self.size + new - limits.scope_bytes
        needed = max(beyond_scope, lacking)
        if needed <= 0:
            return []
        evictable = self._evictable(limits.policy, spared)
        free = sum(record.content.size for record in evictable)
        if free < beyond_scope:
            raise QuotaReached(
                "The session's files in use leave no space: sessions.max_total_session_size is "
                f"{limits.scope_bytes} bytes. Try again when they are released."
            )
        if free < lacking:
            raise limits.storage_full
        return list(_first(evictable, needed))

    def _evictable(self, policy: Policy, spared: Container[str]) -> list[FileRecord]:
        """The files that free something and are not spared, the first to go first."""
        first = _FIRST_TO_GO[policy]
        return sorted(
            (record for record in self.records.values() if record.content.size and record.key not in spared),
            key=lambda record: (record.kind is not first, self.last_access[record.key]),
        )


def _first(records: Sequence[FileRecord], needed: int) -> Iterator[FileRecord]:
    for record in records:
        if needed <= 0:
            return
        yield record
        needed -= record.content.size
