"""Files that tools wrote: found by a path a tool named, or at the place it was told, and measured.

A path out of a result is data. It counts only where its text lies below the scope's artifact area or an allowed
root, and then it is walked from there, one component at a time, without following a link.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from adapter.errors import StorageFailed
from adapter.files.areas import FoundFile, entered, identity, is_own_file, open_own, walk
from adapter.files.port import CaptureLimit, Measure
from adapter.files.staging import HEAD
from adapter.rules.files.file_records import AREAS, FileKind

TICK = 0.05
"""Seconds by which a file system's clock may run behind the one that calls are timed with."""

_SLICE = 16 * 1024 * 1024
"""Bytes that are hashed in one hop; a cancelled capture goes on no longer than that takes."""

_PIECE = 1024 * 1024
_LEAST = 16 * 1024
_COPIED_AT_ONCE = 4 * 1024 * 1024
_MEASURINGS = 3


class Way(NamedTuple):
    """The target of a path: the directory to begin at, and the components below it. ``inside`` the store or not."""

    base: str
    parts: tuple[str, ...]
    inside: bool


class Outskirts:
    """What of the disk a tool's path may mean: an area of the store, and roots that operators allow beside it.

    ``spellings`` are the ways to write the store's root. ``private`` are files, such as a state database that
    lies elsewhere, that are never a tool's, and neither is what is named as they are with something appended.
    """

    def __init__(self, spellings: Sequence[str], allowed: Sequence[Path], private: Sequence[Path]) -> None:
        self._spellings = [_components(spelling) for spelling in spellings]
        self._allowed = [Path(os.path.abspath(root)) for root in allowed]  # noqa: PTH100 - links are kept
        self._private = [Path(os.path.realpath(file)) for file in private]

    def find(self, store: int, path: str, scope: str, since: float) -> FoundFile | None:
        """Open what a tool named, if it may mean it and it has changed since. ``store`` is the root's descriptor.

        A file that cannot be opened, for whatever reason, is None: a result may name anything.
        """
        for way in self._ways(path, scope):
            try:
                found = self._open(store, way)
            except (OSError, ValueError):
                continue
            if found is None:
                continue
            # The time of the last change of any kind: unlike that of the content, nobody can set it back.
            if found.status.st_ctime >= since - TICK:
                return found
            found.descriptor.close()
        return None

    def _ways(self, path: str, scope: str) -> Iterator[Way]:
        if not path.startswith("/") or "\0" in path:
            return
        parts = _components(path)
        if ".." in parts:
            return
        for spelling in self._spellings:
            area = (*spelling, AREAS[FileKind.ARTIFACT], scope)
            if parts[: len(area)] == area:
                yield Way("", parts[len(spelling) :], inside=True)
        for root in self._allowed:
            for spelled in dict.fromkeys((str(root), os.path.realpath(root))):
                base = _components(spelled)
                if parts[: len(base)] == base and not self._is_in_store(os.path.realpath(root)):
                    yield Way(spelled, parts[len(base) :], inside=False)

    def _is_in_store(self, root: str) -> bool:
        # An allowed root inside the store would open other scopes' files to everybody.
        parts = _components(root)
        return any(parts[: len(spelling)] == spelling for spelling in self._spellings)

    def _open(self, store: int, way: Way) -> FoundFile | None:
        if not way.parts:
            return None
        *directories, name = way.parts
        if way.inside:
            with entered(store, directories) as directory:
                return open_own(directory, name)
        # What operators configure may be a link; only what lies below it is anybody's to plant.
        base = os.open(way.base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            directory = walk(base, directories, barred=identity(os.fstat(store)))
        finally:
            os.close(base)
        try:
            return None if self._is_private(directory, name) else open_own(directory, name)
        finally:
            os.close(directory)

    def _is_private(self, directory: int, name: str) -> bool:
        here = identity(os.fstat(directory))
        for file in self._private:
            try:
                parent = identity(file.parent.stat())
            except OSError:
                continue
            if parent == here and name.startswith(file.name):
                return True
        return False


def _components(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def measured(found: FoundFile, limit: CaptureLimit | None) -> Generator[None, None, Measure]:
    """Measure a file where it lies, so many bytes in each step; all of them are on the disk then.

    Raises FileTooLarge above the limit, StorageFailed if the file does not keep still or takes too long.
    """
    status, began = found.status, monotonic()
    with found.descriptor as number:
        for _ in range(_MEASURINGS):
            check(limit, status.st_size, began)
            # Most files of tools are small, and making a buffer of a mebibyte would take longer than hashing them.
            count = length = min(_PIECE, max(_LEAST, status.st_size + 1))
            buffer, digest, done, end = memoryview(bytearray(length)), hashlib.sha256(), 0, _SLICE
            # Fewer bytes than were asked for are the last; whoever is not sure of that compares the sizes.
            while count == length:
                if done >= end:
                    end = done + _SLICE
                    yield
                count = os.preadv(number, [buffer], done)
                digest.update(buffer[:count])
                done += count
                check(limit, done, began)
            head, before, status = os.pread(number, HEAD, 0), status, os.fstat(number)
            kept_still = (status.st_size, status.st_mtime_ns) == (done, before.st_mtime_ns)
            if kept_still and is_own_file(status):
                os.fsync(number)
                return Measure(done, digest.hexdigest(), head, status.st_mtime_ns)
            yield
    raise StorageFailed("The tool's file kept changing while it was read.")


class FileBytes:
    """A ContentSource: the bytes of a file from its beginning, until ``read`` finds that it has ``ended``."""

    def __init__(self, found: FoundFile) -> None:
        self.ended = False
        self._found = found
        self._done = 0

    def piece(self, limit: CaptureLimit | None) -> int:
        """Return how many bytes to read next: about what is left, and not more than one above the limit."""
        most = min(_COPIED_AT_ONCE, max(_LEAST, self._found.status.st_size - self._done + 1))
        return most if limit is None else min(most, limit.size - self._done + 1)

    def read(self, block: bytearray, most: int) -> int:
        """See ContentSource."""
        with self._found.descriptor as number, memoryview(block) as view:
            count = os.preadv(number, [view[:most]], self._done)
        self._done += count
        self.ended = not count and most > 0
        return count


def check(limit: CaptureLimit | None, size: int, began: float) -> None:
    """Raise as the limit does for a file of which so many bytes were read since ``began`` (monotonic seconds)."""
    if limit is not None:
        limit.check(size, monotonic() - began)
