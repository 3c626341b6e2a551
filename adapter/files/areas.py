"""Directories of the store, entered component by component and never through a link.

Everything here blocks and runs in a thread. Tools may write below the artifact area, so whatever is found there
is taken for hostile: each step opens one name below a directory that is open already, and what counts is what
was opened, not what a look beforehand had seen.

The store's root directory while it is in use: entered, locked against others, furnished with its areas.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from adapter.errors import StorageFailed
from adapter.files import areas
from adapter.files.disk import Descriptor, Disk, failure
from adapter.rules.files.file_records import AREAS, Place

STAGING = "staging"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for somebody to open its other end.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_ABSENT = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EMLINK,  # what BSD says for a link
    errno.ENXIO,  # a socket, or a device that is none
    errno.ENODEV,
    errno.EOPNOTSUPP,
    errno.ENAMETOOLONG,
)

_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)

_RACES = 16
"""How often a directory may be removed under our feet, as the last of its files goes, before that is a failure."""


class FoundFile(NamedTuple):
    """A regular file of its own, open for reading."""

    descriptor: Descriptor
    status: os.stat_result


@lru_cache(1024)
def directory_of(place: Place) -> tuple[str, str, str]:
    """The components below the root that lead to a place's directory. ValueError if one is none."""
    for part in (place.scope, place.id, place.name):
        check_component(part)
    return AREAS[place.kind], place.scope, place.id


def check_component(part: str) -> None:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise ValueError("not a path component")


@contextlib.contextmanager
def entered(base: int, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """The directory that ``parts`` lead to from ``base``, while the block runs.

    ``make`` creates what is missing, and puts a directory where a tool has left a link or a file instead; but an
    area that is one is its operator's doing, and stays. Raises OSError, for a link on the way too.
    """
    number = walk_making(base, parts) if make else walk(base, parts)
    try:
        yield number
    finally:
        os.close(number)


def walk(
    base: int, parts: Sequence[str], *, barred: tuple[int, int] | None = None, make: bool = False
) -> int:
    """A new descriptor of the directory below ``base``. FileNotFoundError if the way, its begin and end counted,
    meets the directory with ``barred`` as device and number. ``make``: see ``entered``."""
    current = base
    try:
        for depth, part in enumerate((*parts, None)):
            if barred is not None and identity(os.fstat(current)) == barred:
                raise FileNotFoundError(errno.ENOENT, "barred")
            if part is not None:
                following = (
                    _open_making(current, part, insisting=depth > 0)
                    if make
                    else os.open(part, _DIRECTORY, dir_fd=current)
                )
                if current != base:
                    os.close(current)
                current = following
    except BaseException:
        if current != base:
            os.close(current)
        raise
    return os.dup(base) if current == base else current


def walk_making(base: int, parts: Sequence[str]) -> int:
    """As ``walk``; what is missing on the way is made, as ``entered`` says."""
    for attempt in range(_RACES):
        try:
            return walk(base, parts, make=True)
        except FileNotFoundError:
            if attempt == _RACES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _open_making(directory: int, name: str, *, insisting: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    except OSError as error:
        if not insisting or error.errno not in _NO_DIRECTORY:
            raise
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if not insisting or error.errno not in _NO_DIRECTORY:
            raise
    # Not moved aside: that could hit the directory which another thread has made here meanwhile, and this cannot.
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_own_file(status: os.stat_result) -> bool:
    """A second link could stand where its writer may not read: such a file is not taken for the writer's own."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def open_own(directory: int, name: str) -> FoundFile | None:
    """Open a regular file with no other link to it. None for everything else; OSError, when reading is denied."""
    try:
        descriptor = Descriptor(os.open(name, _FILE, dir_fd=directory))
    except OSError as error:
        if says_absent(error):
            return None
        raise
    with descriptor as number:
        status = os.fstat(number)
    if is_own_file(status):
        return FoundFile(descriptor, status)
    descriptor.close()
    return None


def open_at(base: int, parts: Sequence[str], name: str) -> FoundFile | None:
    """``open_own`` in the directory that ``parts`` lead to; None also when it is not there."""
    try:
        with entered(base, parts) as directory:
            return open_own(directory, name)
    except OSError as error:
        if says_absent(error):
            return None
        raise


def says_absent(error: OSError) -> bool:
    """Tell whether opening failed because there is no such thing, or it is a link or no file."""
    return error.errno in _ABSENT


def names(directory: int) -> list[str]:
    return os.listdir(directory)


# --- who is at work here ------------------------------------------------------------------------------------------


def claim(directory: int) -> None:
    """Say that a living process is at work in this directory, as long as the descriptor stays open."""
    with contextlib.suppress(OSError):  # a file system without locks; age alone decides there
        fcntl.flock(directory, fcntl.LOCK_SH)  # a sweep that is just looking holds its own for no time


def claimed(directory: int) -> bool:
    """Tell whether somebody else, in this process or another, has claimed the directory."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(directory, fcntl.LOCK_UN)
    return False


# --- removing -----------------------------------------------------------------------------------------------------


def remove_entry(directory: int, name: str) -> int:
    """Remove whatever has this name, a directory with all that is in it; how many files that were."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=directory)
            return 1
        with entered(directory, (name,)) as inner:
            count = _empty(inner)
        os.rmdir(name, dir_fd=directory)
        return count
    except FileNotFoundError:
        return 0


def remove_if_empty(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=directory)


def _empty(directory: int) -> int:
    """Remove everything in a directory, and never recurse: what lies deeper is brought up first. A tool may have
    made a tree that is deeper than any stack."""
    count = 0
    while found := names(directory):
        for name in found:
            count += _unlink_or_flatten(directory, name)
    return count


def _unlink_or_flatten(directory: int, name: str) -> int:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return 1
    count = 0
    with entered(directory, (name,)) as inner:
        for deeper in names(inner):
            if stat.S_ISDIR(os.stat(deeper, dir_fd=inner, follow_symlinks=False).st_mode):
                os.rename(deeper, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=directory)
            else:
                os.unlink(deeper, dir_fd=inner)
                count += 1
    with contextlib.suppress(OSError):  # somebody was quick to put something in: the next round's
        os.rmdir(name, dir_fd=directory)
    return count


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
