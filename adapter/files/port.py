"""What the relay sees of the disk: files are staged, placed, opened, removed; a path never leaves this room
but where a tool is to be given one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adapter.errors import FileTooLarge, StorageFailed
from adapter.rules.files.file_records import Place


@dataclass(frozen=True, slots=True)
class Measure:
    """The measure of a whole file: ``size`` in bytes, ``sha256`` in hex, ``head`` its first bytes (at
    most 512), ``modified`` in nanoseconds since the epoch.
    """

    size: int
    sha256: str
    head: bytes
    modified: int


class CaptureLimit(NamedTuple):
    """Most bytes that a tool's file may have, and the setting that says so; the seconds that reading it may take, as
    ``core.defaults.tool_call_timeout_seconds`` has them, None for any number.
    """

    size: int
    setting: str
    patience: float | None = None

    def check(self, size: int, seconds: float = 0.0) -> None:
        """Raise FileTooLarge for more bytes, StorageFailed for more time."""
        if size > self.size:
            raise FileTooLarge(
                f"The tool's file is larger than the {self.size} bytes that {self.setting} allows.",
                data={"limit": self.size, "setting": self.setting},
            )
        if self.patience is not None and seconds > self.patience:
            raise StorageFailed(
                f"Reading the tool's file took longer than the {self.patience:g} s that "
                "core.defaults.tool_call_timeout_seconds allows."
            )


class ContentSource(Protocol):
    """Gives bytes for a file to a thread that asks for them."""

    def read(self, block: bytearray, most: int) -> int:
        """Put at most ``most`` bytes at the beginning of ``block``: how many, 0 when there are none now."""


class StagedFile(Protocol):
    """A file that is being written under a temporary name and does not exist for anybody yet.

    Whoever got one ends it with ``FileStore.place`` or ``discard``; a killed process leaves it to the sweep.
    ``measure`` is that of the whole file, once it is finished.
    """

    measure: Measure

    @property
    def size(self) -> int:
        """Bytes written so far."""

    async def write(self, chunk: bytes) -> None:
        """Take bytes in; waits while the disk is slower than they come. Raises StorageFull, StorageFailed."""

    async def fill(self, source: ContentSource, most: int) -> int:
        """Take at most ``most`` bytes from ``source``, in a thread, while it has any; how many these were.

        It may have more all the same: where many files are written, each has its turn.

        Raises as ``write``.
        """

    async def finish(self) -> Measure:
        """The last bytes are in: flush, sync, measure. Raises StorageFull, StorageFailed."""

    async def discard(self) -> None:
        """Remove it; harmless after ``place`` and when done twice. Never raises."""


class OpenFile(Protocol):
    """A file opened for reading; it stays readable when it is removed meanwhile."""

    @property
    def size(self) -> int: ...

    async def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer only at the end. Raises StorageFailed."""

    async def whole(self) -> bytes:
        """All bytes that it had when it was opened. Raises StorageFailed."""

    def pieces(self, offset: int, length: int) -> AsyncIterator[bytes]:
        """``length`` bytes from ``offset`` in pieces fit for sending. Raises StorageFailed where they end early."""

    async def send(self, receiver: int, offset: int, length: int) -> int:
        """Let the kernel copy at most ``length`` bytes from ``offset`` to a socket that does not block; ``receiver``
        is its descriptor. How many it took, 0 where it takes none now. Raises ConnectionError when nobody is at its
        other end, StorageFailed where the file ends before.
        """

    def close(self) -> None: ...


SizeAndTime = tuple[int, int]
"""``size`` and ``modified`` of a Measure, by which a file is known again."""


class FileStore(Protocol):
    """The adapter's files under one root. Every method raises StorageFailed when the disk fails otherwise than
    it says."""

    async def open(self) -> None:
        """Create what is missing below the root. Raises StorageFailed, with the setting to look at."""

    async def close(self) -> None: ...

    def stage(self) -> StagedFile:
        """Begin a file. Nothing of it is on the disk before its bytes are."""

    async def place(self, staging: StagedFile, place: Place) -> None:
        """Give a finished staging its name, which survives the process. Raises StorageFull.

        After the machine's own crash the file may be gone, as may be the record that comes after it; where it is
        there, it is whole.
        """

    async def allocate(self, place: Place) -> str:
        """Make the directory of a file that a tool shall write; the absolute path to tell it."""

    def abandon(self, place: Place) -> None:
        """Nobody waits for an allocated place any more: what may still come there is the sweep's, unless a record
        knows it. Harmless for a place that was placed at or removed.
        """

    async def adopt(self, place: Place, limit: CaptureLimit | None) -> Measure | None:
        """Measure and sync what a tool wrote at an allocated place; None if there is no such regular file of its own,
        or a link. Raises FileTooLarge above ``limit``, before more than that was read, and StorageFailed when its time
        is over. A caller that is cancelled stops the reading within 16 MiB.
        """

    async def take(
        self, path: str, scope: str, since: float, limit: CaptureLimit | None
    ) -> StagedFile | None:
        """Copy and finish a file that a tool named: one inside the scope's artifact area or an allowed root, no link
        on the way, regular, changed at or after ``since`` (Unix seconds). None for everything else. Raises
        FileTooLarge, StorageFull.
        """

    async def open_file(self, place: Place, recorded: SizeAndTime) -> OpenFile | None:
        """Open for reading; None if it is not there, or no longer the file that was recorded."""

    async def holds(self, place: Place, recorded: SizeAndTime) -> bool:
        """Tell whether ``open_file`` would find the file that was recorded there."""

    async def lend(self, place: Place, copy: str, recorded: SizeAndTime) -> bool:
        """Copy a file for a tool, which may do with the copy as it likes; False as ``holds``. Raises StorageFull.

        ``copy`` is a safe path component that names it. One that is there already stays as its tool has left it.
        """

    def give_back(self, place: Place, copy: str) -> None:
        """The call that a copy was made for is over: it may go when others have come, and goes with its file."""

    async def take_copy(self, place: Place, copy: str, limit: CaptureLimit | None) -> StagedFile | None:
        """Copy and finish what a tool has made of its copy. None, and raises, as ``take``."""

    def path_of(self, place: Place, copy: str | None = None) -> str:
        """The absolute path of a placed file, or of a copy of it, for a tool."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The spellings of the store's root in a text, the longest first; to withhold it."""

    async def remove(self, *places: Place) -> None:
        """Remove files and the directories that this leaves empty. Harmless for one that is not there. One that cannot
        be removed keeps none of the others.
        """

    async def remove_scope(self, scope: str) -> None:
        """Remove everything of a scope, allocated places too. Harmless when there is nothing."""

    async def renew(self) -> float:
        """Show other processes that what is being written here is in use: a sweep goes by the last change of its
        directory. Returns the time by the clock of the file system, in Unix seconds.
        """

    async def sweep(self, known: Callable[[Place], Awaitable[bool]], before: float) -> int:
        """Remove what nobody knows and what has not changed since ``before`` (Unix seconds); how many files.

        Also raises what ``known`` raises.
        """

    async def missing(self, places: list[Place]) -> list[Place]:
        """Find at which of these there is nothing at all."""
