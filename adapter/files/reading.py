"""Files on their way out: read by position, in pieces that are worth a hop to a thread."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import aiofiles

from adapter.errors import StorageFailed
from adapter.files.areas import FoundFile
from adapter.files.disk import Disk

PIECE = 1024 * 1024


class FileOnDisk:
    """An OpenFile. Several tasks may read it at once, its whole one after another; a read under way when it is closed
    ends in peace."""

    def __init__(self, found: FoundFile, disk: Disk) -> None:
        self._descriptor = found.descriptor
        self._size = found.status.st_size
        self._disk = disk

    def __repr__(self) -> str:
        return f"<FileOnDisk: {self._size} bytes, {self._descriptor!r}>"

    @property
    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        return await self._disk.do(self._read, offset, length)

    async def whole(self) -> bytes:
        return await self._disk.finish(self._whole)

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

    async def _whole(self, threads: ThreadPoolExecutor) -> bytes:
        with self._descriptor as number:
            async with aiofiles.open(number, "rb", closefd=False, executor=threads) as file:
                await file.seek(0)
                return await file.read(self._size)

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
