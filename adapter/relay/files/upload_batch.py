"""Uploads of one scope: the queue that batches wait in, and one batch while it is read.

A batch is kept whole or not at all; its limits hold while it is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapter.errors import FileTooLarge, QuotaReached, SessionUnknown, StorageFull, UploadRefused
from adapter.files.port import ContentSource, StagedFile
from adapter.relay.background import nothing, run_to_completion
from adapter.relay.files.file_transactions import FileTransactions, IncomingFile, NewFile, Spend
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from adapter.rules.files.filenames import stored_name
from adapter.rules.files.quota import Limits
from adapter.settings.storage import Uploads

FILL = 16 * 1024 * 1024
"""Bytes for which one hop to a thread costs nothing that shows."""

LEAST_FILL = 64 * 1024

_RETRY_AFTER = 5.0


@dataclass(slots=True, eq=False)
class _Door:
    """One scope's: the bytes that are on their way in, how many batches wait, and whose turn of these it is."""

    inside: int = 0
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    left: asyncio.Event = field(default_factory=asyncio.Event)


class UploadQueue:
    """``capacity``: bytes that may be on their way into one scope, None for any number. ``wait`` in seconds.

    Without it, batches that each fit would fill the disk together, or be refused for the sake of others that
    fail in the end.
    """

    def __init__(self, capacity: int | None, wait: float) -> None:
        self._capacity = capacity
        self._wait = wait
        self._doors: dict[str, _Door] = {}
        self.on_wait: Callable[[float, bool], None] = nothing
        """Is told how many seconds a batch waited, and True if it came in."""

    def __repr__(self) -> str:
        waiting = sum(door.waiting for door in self._doors.values())
        return f"<UploadQueue: {len(self._doors)} scopes, {waiting} waiting>"

    async def enter(self, scope_id: str, bound: int | None) -> Callable[[], None]:
        """Come in with at most ``bound`` bytes (None: as many as the scope may hold); the function returned
        says that they are in, or gone. Raises QuotaReached after waiting in vain.
        """
        if self._capacity is None:
            return lambda: None
        size = self._capacity if bound is None else min(bound, self._capacity)
        door = self._doors.setdefault(scope_id, _Door())
        if door.waiting or door.inside + size > self._capacity:
            await self._wait_for_room(scope_id, door, self._capacity - size)
        door.inside += size
        inside = True

        def leave() -> None:
            nonlocal inside
            if inside:
                inside = False
                door.inside -= size
                door.left.set()
                self._close(scope_id, door)

        return leave

    async def _wait_for_room(self, scope_id: str, door: _Door, most: int) -> None:
        """Wait until it is one's turn, and at most so many bytes are inside."""
        loop, entered = asyncio.get_running_loop(), False
        began = loop.time()
        door.waiting += 1
        try:
            async with asyncio.timeout(self._wait), door.turn:
                while door.inside > most:
                    door.left.clear()
                    await door.left.wait()
            entered = True
        except TimeoutError:
            raise QuotaReached(
                "Together with other running uploads, this upload would exceed "
                "sessions.max_total_session_size; try again when they are finished.",
                data={"limit": self._capacity, "setting": "sessions.max_total_session_size"},
                retry_after=_RETRY_AFTER,
            ) from None
        finally:
            door.waiting -= 1
            if not entered:
                self._close(scope_id, door)
            self.on_wait(loop.time() - began, entered)

    def _close(self, scope_id: str, door: _Door) -> None:
        if not (door.waiting or door.inside) and self._doors.get(scope_id) is door:
            del self._doors[scope_id]


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The limits of the files that scopes hold.

    ``artifact_ttl`` is seconds since the last access; None: the file lives as long as its scope. ``sweep_grace``: age
    in seconds from which a file without a record is removed; None: such a file is never removed.
    """

    quota: Limits
    uploads: Uploads
    artifact_ttl: float | None
    sweep_grace: float | None


@dataclass(eq=False, repr=False)
class UploadBatch:
    """``add``, ``write`` and ``end_file`` for each file, then ``keep``; ``discard`` in any case, when all is over.

    What was written and not kept is gone with ``discard``, also when its caller is cancelled. Once a method has
    raised, ``discard`` is all that is left to do.
    """

    transactions: FileTransactions
    scope: Scope
    server: str
    limits: FileLimits
    bound: int | None
    name: str | None
    """That of the offer by which the batch comes, if any."""
    leave: Callable[[], None]

    def __post_init__(self) -> None:
        self.staged = self.transactions.storage.stage()
        self._arrived: list[IncomingFile] = []
        self._coming: tuple[str, str | None, StagedFile] | None = None
        self._size = 0
        self._over = False
        self._cut_off = False
        self.announced = self.bound
        """Bytes that will come as far as its sender has said, for which other files of the scope may go; None: unknown.
        """

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self.staged.size

    def add(self, filename: str, declared_type: str | None) -> None:
        """A file begins, called ``filename`` by its sender. Raises FileTooLarge for one file too many,
        SessionUnknown when its scope has ended meanwhile.
        """
        assert self._coming is None, "one file ends before the next begins"
        self._check_scope()
        if len(self._arrived) >= (most := self.limits.uploads.max_files):
            raise FileTooLarge(
                f"One upload may have {most} files (uploads.max_files); send the other "
                "files in another upload.",
                data={"limit": most, "setting": "uploads.max_files"},
            )
        self._coming = filename, declared_type, self.transactions.cache.files.stage()
        self._size = 0

    async def write(self, chunk: bytes) -> None:
        """More of the file; waits for a slow disk. Raises FileTooLarge, QuotaReached, StorageFull,
        StorageFailed, StoreUnavailable, SessionUnknown, and UploadRefused for more than was announced.
        """
        assert self._coming is not None, "a file begins before its bytes come"
        self._check_scope()
        self._check_size(len(chunk))
        try:
            self.staged.grow(len(chunk))
        except StorageFull:
            await self._make_room(len(chunk))
            self.staged.grow(len(chunk))
        self._size += len(chunk)
        await self._coming[2].write(chunk)

    async def fill(self, source: ContentSource, most: int) -> int | None:
        """Take more of the file, at most ``most`` bytes, from where a thread reads it: how many bytes these were.

        None where the limits leave little room: ``write`` makes some, or says why there is none. Raises StorageFull,
        StorageFailed, SessionUnknown.
        """
        assert self._coming is not None, "a file begins before its bytes come"
        self._check_scope()
        room = self._reserve(most)
        if not room:
            return None
        taken = await self._coming[2].fill(source, room)
        self.staged.shrink(room - taken)
        self._size += taken
        return taken

    def _reserve(self, most: int) -> int:
        """Count bytes that may come, at most ``most``; 0 where these would be few."""
        limits = self.limits
        room = min(FILL, limits.uploads.max_file_bytes - self._size)
        for limit in (limits.quota.scope_bytes, self.bound):
            if limit is not None:
                room = min(room, limit - self.staged.size)
        if room < LEAST_FILL:
            return 0
        room = min(room, most)
        try:
            self.staged.grow(room)
        except StorageFull:
            return 0
        return room

    async def _make_room(self, more: int) -> None:
        """Make room for more bytes if all files together leave none: learn what other replicas have removed, remove
        expired files, then others of the scope itself.
        """
        if await self.transactions.storage.has_room(more):
            return
        await self.transactions.expire()
        if self.announced is None:
            return  # it may turn out never to fit, and would have pushed out everything by then
        batch_bytes = self.limits.quota.scope_bytes
        whole = self.announced if batch_bytes is None else min(self.announced, batch_bytes)
        with contextlib.suppress(QuotaReached, StorageFull):
            await self.transactions.make_room(self.scope.id, FileKind.UPLOAD, whole, self.staged.size)

    def _check_size(self, more: int) -> None:
        limits, most = self.limits, self.limits.uploads.max_file_bytes
        if self._size + more > most:
            raise FileTooLarge(
                f"The file is larger than the {most} bytes that uploads.max_file_bytes allows.",
                data={"limit": most, "setting": "uploads.max_file_bytes"},
            )
        if limits.quota.scope_bytes is not None and self.staged.size + more > limits.quota.scope_bytes:
            raise QuotaReached(
                f"The files are larger than the {limits.quota.scope_bytes} bytes that "
                "sessions.max_total_session_size allows.",
                data={"limit": limits.quota.scope_bytes, "setting": "sessions.max_total_session_size"},
            )
        if self.bound is not None and self.staged.size + more > self.bound:
            raise UploadRefused("The upload is larger than its Content-Length.")

    async def end_file(self) -> None:
        """The file is whole. Raises StorageFull, StorageFailed."""
        assert self._coming is not None, "a file begins before it ends"
        filename, declared_type, staging = self._coming
        measure = await staging.finish()
        place = Place(FileKind.UPLOAD, self.scope.id, secrets.token_hex(16), stored_name(filename))
        file = NewFile(self.server, filename, measure, declared_type, batch=self.name)
        record = file.record(self.scope, place, self.transactions.cache.clock())
        self._arrived.append(IncomingFile(record, staging))
        self._coming = None

    async def keep(self, digests: Sequence[str], spend: Spend | None) -> list[FileRecord]:
        """Hold all files from now on, in the order they came; on any failure none, and nothing is spent.

        ``digests`` are SHA-256 in hex, one for each file, or none at all. ``spend`` burns the batch's credential;
        what it returned is called when the batch fails after all. Raises UploadRefused, SessionUnknown,
        QuotaReached, StorageFull, StorageFailed, StoreUnavailable, and what ``spend`` raises.
        """
        assert self._coming is None, "the last file ends before all are kept"
        assert not self._over, "a batch is kept once, and not after it was discarded"
        self._check_digests(digests)
        self._check_scope()
        arrivals = self._arrived
        await self.transactions.take_in(arrivals, self.staged, spend, self._check_scope)
        self._arrived = []
        self._end()
        return [arrival.record for arrival in arrivals]

    def _check_digests(self, digests: Sequence[str]) -> None:
        if not self._arrived:
            raise UploadRefused("The upload has no file: send each file in a part named file.")
        if not digests:
            return
        if len(digests) != len(self._arrived):
            raise UploadRefused(
                f"There are {len(self._arrived)} files and {len(digests)} digests: send one sha256 for each file,"
                " in the same order."
            )
        for number, (said, arrived) in enumerate(zip(digests, self._arrived, strict=True), 1):
            found = arrived.record.content.sha256.lower().encode()
            if not hmac.compare_digest(said.strip().lower().encode("utf-8", "surrogatepass"), found):
                raise UploadRefused(f"The SHA-256 of file {number} does not match the announced one.")

    def _check_scope(self) -> None:
        if self._cut_off:
            raise SessionUnknown()

    def cut_off(self, scope_id: str) -> None:
        """A scope has ended: nothing comes into it any more."""
        self._cut_off = self._cut_off or scope_id == self.scope.id

    async def discard(self) -> None:
        """Remove what was not kept. Harmless after ``keep`` and when done twice."""
        if not self._over:
            await run_to_completion(self._discard())

    async def _discard(self) -> None:
        try:
            if self._coming is not None:
                await self._coming[2].discard()
            for _, staging in self._arrived:
                if staging is not None:
                    await staging.discard()
        finally:
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self.staged.shrink(self.staged.size)
            self.leave()
