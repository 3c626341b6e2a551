"""Directories of the store, entered component by component and never through a link.

Everything here blocks and runs in a thread. Tools may write below the artifact area, so whatever is found there
is taken for hostile: each step opens one name below a directory that is open already, and what counts is what
was opened, not what a look beforehand had seen.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from adapter.files.disk import Descriptor
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
