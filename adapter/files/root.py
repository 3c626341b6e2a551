"""The store's root directory while it is in use: entered, locked against others, furnished with its areas."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import Literal, TypeAlias

from adapter.errors import StorageFailed
from adapter.files import areas
from adapter.files.disk import Disk, failure
from adapter.rules.files.file_records import AREAS

RootLock: TypeAlias = Literal["exclusive", "shared"]
"""A lock of one process alone, or one that replicas with the same state have together."""

LOCK_POLL = 0.1
"""Seconds between two tries for the lock."""

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Root:
    """``path`` is absolute and may be reached through links, which is its operator's business; what lies below it
    never is. ``staging`` are the components of this process's own staging directory.
    """

    def __init__(self, path: Path, disk: Disk, *, lock: RootLock | None, lock_wait: float) -> None:
        # Not resolve(): a tool in another container may know the root by this spelling only.
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - and not absolute(), which keeps ".."
        self.prefix = os.path.join(self.path, "")  # noqa: PTH118 - a Path has no slash at its end
        """What stands before the path of everything below it."""
        self.spellings = tuple(sorted({str(self.path), os.path.realpath(path)}, key=len, reverse=True))
        """How the path may be written, the longest first."""
        self.staging = (areas.STAGING, secrets.token_hex(16))
        self._disk = disk
        self._lock_kind = lock
        self._lock_wait = lock_wait
        self._base: int | None = None
        self._held: list[int] = []

    @property
    def is_open(self) -> bool:
        return self._base is not None

    @property
    def base(self) -> int:
        """The open directory. Raises StorageFailed before ``open`` and after ``close``."""
        if self._base is None:
            raise StorageFailed("The store of files is not open.")
        return self._base

    async def open(self) -> None:
        """Raises StorageFailed, also when another process keeps the lock for longer than ``lock_wait`` seconds."""
        try:
            await self._disk.do(self._enter)
            if self._lock_kind is not None:
                await self._lock(self._lock_kind, self._lock_wait)
            await self._disk.do(self._furnish)
        except BaseException:
            self._let_go()
            raise

    async def close(self) -> None:
        if self._base is not None:
            with contextlib.suppress(StorageFailed):
                await self._disk.do(self._clear_staging, self._base)
        self._let_go()

    def _enter(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._base = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageFailed(f"storage.root cannot be created or opened. {failure(error)}") from error
        self._held.append(self._base)

    async def _lock(self, kind: RootLock, wait: float) -> None:
        number = await self._disk.do(os.open, "lock", _LOCK, 0o600, dir_fd=self.base)
        self._held.append(number)
        # An earlier version made it for everybody, and whoever may open it may keep the adapter from starting.
        with contextlib.suppress(PermissionError):
            os.fchmod(number, 0o600)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait
        while not _locked(number, kind):
            if loop.time() >= give_up:
                raise StorageFailed(
                    "Another adapter uses storage.root: stop it, or set another storage.root. Only adapters "
                    "that share their state know the files of each other, so no storage.lock_mode allows two."
                )
            await asyncio.sleep(LOCK_POLL)

    def _furnish(self) -> None:
        for area in AREAS.values():
            with areas.entered(self.base, (area,), make=True):
                pass
        with areas.entered(self.base, self.staging, make=True) as directory:
            areas.claim(directory)
            self._held.append(os.dup(directory))

    def _clear_staging(self, base: int) -> None:
        area, process = self.staging
        with contextlib.suppress(OSError), areas.entered(base, (area,)) as directory:
            areas.remove_entry(directory, process)

    def _let_go(self) -> None:
        self._base = None
        while self._held:
            os.close(self._held.pop())


def _locked(number: int, kind: RootLock) -> bool:
    try:
        fcntl.flock(number, (fcntl.LOCK_EX if kind == "exclusive" else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if kind == "shared":
            return (
                True  # what replicas do to files, they do by their store; the lock only keeps strangers away
            )
        raise StorageFailed(
            "The file system of storage.root does not support locks: set storage.lock_mode to none, and "
            "make sure that no other adapter uses this root."
        ) from error
    return True
