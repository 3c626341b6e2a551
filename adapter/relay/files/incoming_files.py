"""Files on their way into a scope: their bytes on disk, and the places where files come or go just now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import StorageFailed
from adapter.files.port import FileStore, Measure, Staging
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileContent, FileKind, FileRecord, Place
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

    def grow_again(self, size: int) -> None:
        """Count bytes again that are no file after all, whatever the limits."""
        self._ledger.restage(self.scope_id, size)
        self.size += size

    def shrink(self, size: int) -> None:
        self._ledger.unstage(self.scope_id, size)
        self.size -= size

    def release(self) -> None:
        """The bytes are gone, or an entry."""
        self.shrink(self.size)


_Directory = tuple[FileKind, str, str]
"""A place but for its name: nothing else lies there."""


class FilePlaces:
    """The places of files on disk: where they are put and removed, and where some are expected."""

    def __init__(self, files: FileStore, log: FilteringBoundLogger) -> None:
        self._files = files
        self._log = log
        self._expected: dict[_Directory, int] = {}

    def __repr__(self) -> str:
        return f"<FilePlaces: {len(self._expected)} files expected>"

    def is_expected(self, place: Place) -> bool:
        """Tell whether a file at that place is about to come or go here."""
        return place[:3] in self._expected

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

    async def put(self, staging: Staging, place: Place) -> None:
        """Give a finished staging its name. Raises StorageFull, StorageFailed."""
        await self._files.place(staging, place)

    async def remove(self, *places: Place) -> None:
        """Remove bytes that no row knows; where the disk refuses, the sweep is left to try again."""
        if not places:
            return
        try:
            await self._files.remove(*places)
        except StorageFailed as error:
            self._log.warning("a file could not be removed; the sweep will try again", why=str(error))

    async def remove_scope(self, scope_id: str) -> None:
        """Remove all bytes of a scope; where the disk refuses, the sweep is left to try again."""
        try:
            await self._files.remove_scope(scope_id)
        except StorageFailed as error:
            self._log.warning(
                "what a scope left could not be removed; the sweep will try again", why=str(error)
            )
