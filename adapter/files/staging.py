"""Files on their way in: gathered into batches that are hashed and written in one hop to a thread.

And on their way out: read by position, in pieces that are worth such a hop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import AdapterError, StorageFailed
from adapter.files.areas import FoundFile
from adapter.files.disk import Descriptor, Disk, SideWork, begin_write_back
from adapter.files.port import ContentSource, Measure

PIECE = 1024 * 1024

READ_WHEN_OPENED = 128 * 1024
"""Bytes up to which a file is read in the hop that opens it: another one would cost more than the reading."""


class FileOnDisk:
    """An OpenFile, opened in a thread. Several tasks may read it at once; a read under way when it is closed ends in
    peace."""

    def __init__(self, found: FoundFile, disk: Disk) -> None:
        self._descriptor = found.descriptor
        self._size = found.status.st_size
        self._disk = disk
        self._content = self._read(0, self._size) if self._size <= READ_WHEN_OPENED else None

    def __repr__(self) -> str:
        return f"<FileOnDisk: {self._size} bytes, {self._descriptor!r}>"

    @property
    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        if self._content is not None:
            return self._content[offset : offset + length]
        return await self._disk.do(self._read, offset, length)

    async def whole(self) -> bytes:
        return await self.read(0, self._size)

    async def pieces(self, offset: int, length: int) -> AsyncIterator[bytes]:
        end = offset + length
        while offset < end:
            piece = await self.read(offset, min(PIECE, end - offset))
            if not piece:
                raise StorageFailed("The file became shorter while it was read.")
            yield piece
            offset += len(piece)

    async def send(self, receiver: int, offset: int, length: int) -> int:
        sent = await self._disk.do(self._send, receiver, offset, length)
        if sent is None:
            raise ConnectionError("nobody is there to receive the file")
        return sent

    def close(self) -> None:
        self._descriptor.close()

    def _read(self, offset: int, length: int) -> bytes:
        with self._descriptor as number:
            first = os.pread(number, length, offset)
            if len(first) == length or not first:
                return first
            # Linux reads at most 2 GiB at once, and a signal may cut a read short.
            parts = [first]
            done = len(first)
            while done < length and (part := os.pread(number, length - done, offset + done)):
                parts.append(part)
                done += len(part)
            return b"".join(parts)

    def _send(self, receiver: int, offset: int, length: int) -> int | None:
        """As ``send``, and None where the receiver has gone: that is no failure of the disk."""
        with self._descriptor as number:
            try:
                sent = os.sendfile(receiver, number, offset, length)
            except BlockingIOError:
                return 0
            except ConnectionError:
                return None
        if not sent:
            raise StorageFailed("The file became shorter while it was sent.")
        return sent


BATCH = 1024 * 1024
"""Bytes for which one hop costs nothing that shows beside hashing and writing them."""

WORTH_KEEPING = 16 * 1024
"""Bytes from which on a chunk is kept as it came: copying it would cost more than writing one piece more."""

BLOCK = BATCH // 2
"""Bytes that a thread takes at a time. Larger blocks save little more, and each thread keeps the memory of one."""

LEAST_BLOCK = BATCH // 8

TURNS = 16 * BATCH
"""Bytes that threads take for all files before everyone who waits for a thread had a turn; 20 ms of work."""

LEAST_TURN = 256 * 1024

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Processors that this process may use. Two for each file that is read ahead: one reads while the other hashes and
writes."""

AT_ONCE = 512
"""Pieces that one call writes; Linux takes twice as many."""

WRITE_BACK = 8 * BATCH
"""Bytes that are written before the system is asked to bring them to the disk. Else it would begin with the sync, for
which the sender waits: a fifth of an upload's time."""

HEAD = 512
"""Bytes of a file's beginning that are kept to tell its type from."""


class Buffers:
    """How much each file may gather, so that all of them together stay within ``total`` bytes."""

    SMALLEST = 16 * 1024
    """What a file may gather at the least; hundreds at once have a little more than the total then."""

    def __init__(self, total: int = 6 * BATCH) -> None:
        self.total = total
        self.files = 0
        self.held = 0

    @property
    def turn(self) -> int:
        """Bytes that a thread takes for one file before it is another's turn."""
        return max(LEAST_TURN, TURNS // max(1, self.files))

    @property
    def batch(self) -> int:
        # What is held counts besides the share, because those that began alone have more than theirs for a while.
        share = self.total // max(1, self.files)
        return max(self.SMALLEST, min(BATCH, share, self.total - self.held))


def _read(source: ContentSource, size: int, most: int) -> Generator[memoryview, None, None]:
    """Yield at most ``most`` bytes in blocks of at most ``size``; each is valid until the next is asked for."""
    block = bytearray(size)
    with memoryview(block) as view:
        while count := source.read(block, most):
            most -= count
            yield view[:count]


def _read_ahead(source: ContentSource, size: int, most: int, disk: Disk) -> Generator[memoryview, None, None]:
    """As ``_read``; another thread reads the next block meanwhile."""
    block, other = bytearray(size), bytearray(size)
    coming = SideWork(partial(source.read, block, most))
    try:
        while count := coming.result():
            most -= count
            coming = disk.begin_beside(partial(source.read, other, most))
            with memoryview(block) as view:
                yield view[:count]
            block, other = other, block
    finally:
        coming.drop()


@dataclass(eq=False, repr=False)
class LocalStagedFile:
    """A StagedFile in a file called ``name`` of the store's own staging directory, made with its first bytes.

    A small file comes to the disk in one hop, with ``finish``; of a larger one, ``write`` waits for each batch. A write
    that failed or was broken off leaves a hole; ``finish`` then raises StorageFailed.
    """

    name: str
    disk: Disk
    buffers: Buffers
    create: Callable[[str], Descriptor]
    remove: Callable[[str], None]
    measure: Measure = field(init=False)

    def __post_init__(self) -> None:
        self.finished = False
        self._descriptor: Descriptor | None = None
        self._hash = hashlib.sha256()
        self._head = b""
        self._taken = 0
        self._written = 0
        self._on_the_way = 0
        self._gathered: list[bytes | bytearray] = []
        self._gathered_size = 0
        self._gathering = True
        self._there = False
        self.buffers.files += 1

    @property
    def size(self) -> int:
        return self._taken

    async def write(self, chunk: bytes) -> None:
        self._taken += len(chunk)
        self._gather(chunk)
        if self._gathered_size >= self.buffers.batch:
            await self._write_gathered()

    async def fill(self, source: ContentSource, most: int) -> int:
        await self._write_gathered()
        return await self.disk.do(self._take_from, source, min(most, self.buffers.turn))

    def _gather(self, chunk: bytes) -> None:
        self._gathered_size += len(chunk)
        self.buffers.held += len(chunk)
        if len(chunk) >= WORTH_KEEPING:
            self._gathered.append(chunk)
            return
        # Crumbs are joined: as objects of their own they would take many times their size.
        if not self._gathered or not isinstance(self._gathered[-1], bytearray):
            self._gathered.append(bytearray())
        self._gathered[-1] += chunk

    async def finish(self) -> Measure:
        size, rest = self._take_gathered()
        try:
            modified = await self.disk.do(self._seal, rest)
        finally:
            self.buffers.held -= size
            self._stop_gathering()
        self.finished = True
        self.measure = Measure(self._written, self._hash.hexdigest(), self._head, modified)
        return self.measure

    async def discard(self) -> None:
        self._stop_gathering()
        self.buffers.held -= self._take_gathered()[0]
        if self._descriptor is not None:
            self._descriptor.close()
        if self._there:
            self._there = False
            with contextlib.suppress(AdapterError):
                await self.disk.do(self.remove, self.name)

    def placed(self) -> None:
        """It has a name of its own now; there is nothing left to discard."""
        self._there = False

    async def _write_gathered(self) -> None:
        if self._gathered:
            size, batch = self._take_gathered()
            try:
                await self.disk.do(self._append, batch)
            finally:
                self.buffers.held -= size

    def _take_gathered(self) -> tuple[int, list[bytes | bytearray]]:
        gathered = self._gathered_size, self._gathered
        self._gathered_size, self._gathered = 0, []
        return gathered

    def _take_from(self, source: ContentSource, most: int) -> int:
        # Where many take turns, their blocks are to stay in the processor's cache together.
        size = min(BLOCK, max(LEAST_BLOCK, most // 4), most)
        # While one block is hashed and written the next is read, if a processor is free for that.
        ahead = 2 * self.buffers.files <= PROCESSORS
        blocks = _read_ahead(source, size, most, self.disk) if ahead else _read(source, size, most)
        done = 0
        with self._file() as number, contextlib.closing(blocks):
            for block in blocks:
                done += len(block)
                self._taken += len(block)
                self._measure(block)
                self._write_out(number, [block])
        return done

    def _file(self) -> Descriptor:
        """Its descriptor, in the one thread that is at work on it; the file is made with the first bytes."""
        if self._descriptor is None:
            self._there = True
            self._descriptor = self.create(self.name)
        return self._descriptor

    def _append(self, batch: list[bytes | bytearray]) -> None:
        for piece in batch:
            self._measure(piece)
        with self._file() as number:
            for begin in range(0, len(batch), AT_ONCE):
                self._write_out(number, batch[begin : begin + AT_ONCE])

    def _measure(self, piece: bytes | bytearray | memoryview) -> None:
        self._hash.update(piece)
        if len(self._head) < HEAD:
            self._head += bytes(piece[: HEAD - len(self._head)])

    def _write_out(self, number: int, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write pieces one behind the other, in one call where the system takes them at once."""
        while pieces:
            done = os.writev(number, pieces)
            self._written += done
            self._write_back(number)
            whole = 0
            while whole < len(pieces) and done >= len(pieces[whole]):
                done -= len(pieces[whole])
                whole += 1
            pieces = pieces[whole:]
            if done:
                pieces = [memoryview(pieces[0])[done:], *pieces[1:]]

    def _write_back(self, number: int) -> None:
        """Let the system begin with what will be synced, unless so many files are written that others use the time
        that the sync of one takes."""
        begun, whole = self._on_the_way, self._written // WRITE_BACK * WRITE_BACK
        if whole > begun and self.buffers.files <= PROCESSORS:
            self._on_the_way = whole
            begin_write_back(number, begun, whole - begun)

    def _seal(self, rest: list[bytes | bytearray]) -> int:
        self._append(rest)
        if self._written != self._taken:
            raise StorageFailed("The file was not written completely.")
        file = self._file()
        with file as number:
            os.fsync(number)
            modified = os.fstat(number).st_mtime_ns
        # A batch of a thousand files must not hold a thousand descriptors until it is kept.
        file.close()
        return modified

    def _stop_gathering(self) -> None:
        if self._gathering:
            self._gathering = False
            self.buffers.files -= 1
