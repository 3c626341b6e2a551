"""Files on their way into a scope, and their bytes on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapter.files.port import Measure, StagedFile
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileContent, FileRecord, Place
from adapter.rules.files.media_types import media_type
from adapter.rules.files.quota import Ledger

Spend = Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
"""Burns what may be used once, and returns what takes that back; raises when somebody else was first."""


class NewFile(NamedTuple):
    """A file that a scope is to hold: the server it came to or from, and the name and type that its sender gave it.

    ``exposed``: it is listed as a resource.
    """

    server: str
    filename: str
    measure: Measure
    declared_type: str | None = None
    exposed: bool = True

    def record(self, scope: Scope, place: Place, created: float) -> FileRecord:
        """The record of the file at that place; ``created`` in Unix seconds."""
        measure = self.measure
        content = FileContent(
            media_type(self.filename, measure.head, self.declared_type),
            measure.size,
            measure.sha256,
            measure.modified,
        )
        return FileRecord(place, scope.owner, self.server, self.filename, content, created, self.exposed)


class IncomingFile(NamedTuple):
    """A file that is to be held. ``staging`` None: its bytes lie at the record's place already, where whoever brings
    it expects it.
    """

    record: FileRecord
    staging: StagedFile | None


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

    def swap(self, come: int, going: int) -> None:
        """So many bytes are entries now, and those of entries that have gone are on disk for a while, whatever the
        limits."""
        self.shrink(come)
        self._ledger.restage(self.scope_id, going)
        self.size += going

    def release(self) -> None:
        """The bytes are gone, or an entry."""
        self.shrink(self.size)
