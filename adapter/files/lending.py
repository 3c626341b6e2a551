"""Copies of stored files for tools to work on: a tool may write to what it is given, and a stored file stays.

    {root}/{area}/{scope}/{id}/{name}           the stored file
    {root}/{area}/{scope}/{id}/{copy}/{name}    a copy of it, beside it, so that it goes when the stored file goes

A browser or a task may read its copy long after its call was answered. So the copies of the last calls stay, and an
older one is removed when the next is made. What a killed process leaves is the sweep's. A copy that is not whole yet
has another name, which no tool is told.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from adapter.errors import StorageFailed, StorageFull
from adapter.files import areas
from adapter.files.areas import Root
from adapter.files.disk import Descriptor, Disk
from adapter.files.port import SizeAndTime
from adapter.rules.files.file_records import Place

KEPT = 4
"""Copies of one file that stay when their calls are over."""

MOST_FILES = 2000
"""Files of which copies stay; of more, those of the files that were lent longest ago are removed too."""

_TURNS = 16 * 1024 * 1024
"""Bytes that are copied of all files before everyone who waits for a thread had a turn; a cancelled call copies no more
than that."""

_LEAST_TURN = 256 * 1024

_PIECE = 1024 * 1024

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_NOT_IN_KERNEL = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
"""What systems and file systems say that cannot copy by themselves."""

_Way = tuple[str, str, str]
_Copies = Sequence[tuple[_Way, Sequence[str]]]


@dataclass(eq=False, repr=False, slots=True)
class FileCopies:
    """Makes copies of at most ``most`` bytes together, and removes old ones. Belongs to the event loop; ``_copy``,
    ``_remove`` and what they call run in threads."""

    root: Root
    disk: Disk
    most: int | None
    _sizes: dict[str, int] = field(default_factory=dict, init=False)
    _total: int = field(default=0, init=False)
    _over: OrderedDict[_Way, list[str]] = field(default_factory=OrderedDict, init=False)
    _surplus: list[tuple[_Way, list[str]]] = field(default_factory=list, init=False)
    _under_way: int = field(default=0, init=False)

    async def lend(self, place: Place, copy: str, recorded: SizeAndTime) -> bool:
        """See FileStore."""
        size, _ = recorded
        way = areas.directory_of(place)
        if copy in self._sizes:
            if copy in (over := self._over.get(way, [])):
                over.remove(copy)
        else:
            if self.most is not None and self._total + size > self.most:
                self._make_room(size, self.most)
            self._sizes[copy] = size
            self._total += size
        surplus, self._surplus = self._surplus, []
        part = os.urandom(16).hex()
        self._under_way += 1
        try:
            made = await self.disk.steps(self._copy(way, place.name, (part, copy), recorded, surplus))
        except BaseException:
            # What an earlier round of the call has left under the copy's own name stays.
            self.give_back(place, copy)
            await self.disk.do(self._remove, [(way, [part])])
            raise
        finally:
            self._under_way -= 1
        if not made:
            self.give_back(place, copy)
        return made

    def give_back(self, place: Place, copy: str) -> None:
        """See FileStore."""
        way = areas.directory_of(place)
        over = self._over.setdefault(way, [])
        over.append(copy)
        if len(over) > KEPT:
            oldest = over.pop(0)
            self._total -= self._sizes.pop(oldest, 0)
            self._surplus.append((way, [oldest]))
        self._over.move_to_end(way)
        if len(self._over) > MOST_FILES:
            way = next(iter(self._over))
            self._surplus.append((way, self._uncounted(way)))

    def forget(self, way: _Way) -> None:
        """The file goes, and its copies with it."""
        self._uncounted(way)

    def forget_scope(self, scope: str) -> None:
        for way in [way for way in self._over if way[1] == scope]:
            self._uncounted(way)

    def _uncounted(self, way: _Way) -> list[str]:
        """Count the copies of a file that stay after their calls no more; their names."""
        copies = self._over.pop(way, [])
        self._total -= sum(self._sizes.pop(copy, 0) for copy in copies)
        return copies

    def _make_room(self, size: int, most: int) -> None:
        """Let copies go whose calls are over, those of the files that were lent longest ago first. Raises StorageFull
        where calls that go on need the rest."""
        while self._total + size > most:
            if not self._over:
                raise StorageFull(
                    f"There is no space for a copy of the file: the files that tools work on have up to {most} bytes "
                    "together (storage.max_size). Try again when other calls have ended."
                )
            way = next(iter(self._over))
            self._surplus.append((way, self._uncounted(way)))

    def _copy(
        self, way: _Way, name: str, copy: tuple[str, str], recorded: SizeAndTime, surplus: _Copies
    ) -> Generator[None, None, bool]:
        """Copy a file, so many bytes in each step. False where it is not the one that was recorded.

        ``copy`` are its names: while it is made, and when it is whole.
        """
        self._remove(surplus)
        part, whole = copy
        try:
            directory = Descriptor(areas.walk(self.root.base, way))
        except OSError as error:
            if areas.says_absent(error):
                return False
            raise
        with contextlib.closing(directory), directory as number:
            found = areas.open_own(number, name)
            if found is None or (found.status.st_size, found.status.st_mtime_ns) != recorded:
                return False
            if os.access(whole, os.F_OK, dir_fd=number):
                return True  # made for an earlier round of the same call, and its tool's since
            os.mkdir(part, dir_fd=number)
            with areas.entered(number, (part,)) as inner:
                target = Descriptor(os.open(name, _CREATE, 0o666, dir_fd=inner))
            with (
                contextlib.closing(found.descriptor) as original,
                contextlib.closing(target),
                original as source,
                target as written,
            ):
                _make_alike(written, found.status)
                done, size = 0, found.status.st_size
                while done < size:
                    end = min(size, done + max(_LEAST_TURN, _TURNS // self._under_way))
                    while done < end:
                        done += _copied(source, written, done, end - done)
                    if done < size:
                        yield
            os.rename(part, whole, src_dir_fd=number, dst_dir_fd=number)
        return True

    def _remove(self, copies: _Copies) -> None:
        """Remove what can be removed; the rest goes with its file."""
        for way, names in copies:
            with contextlib.suppress(OSError), areas.entered(self.root.base, way) as directory:
                for name in names:
                    areas.remove_entry(directory, name)


def _make_alike(number: int, original: os.stat_result) -> None:
    """Let whoever might write the original write its copy too, as far as this process may give it away."""
    now = os.fstat(number)
    if (now.st_uid, now.st_gid) != (original.st_uid, original.st_gid):
        try:
            os.fchown(number, original.st_uid, original.st_gid)
        except OSError:  # no right to, or an owner that this user namespace does not know
            with contextlib.suppress(OSError):
                os.fchown(number, -1, original.st_gid)
    mode = stat.S_IMODE(original.st_mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR
    if mode != stat.S_IMODE(now.st_mode):
        with contextlib.suppress(PermissionError):  # a file system without modes
            os.fchmod(number, mode)


def _copied(source: int, target: int, offset: int, size: int) -> int:
    """Copy some bytes: how many. Linux shares the blocks of both files where the file system can."""
    if hasattr(os, "copy_file_range"):
        try:
            if done := os.copy_file_range(source, target, size, offset, offset):
                return done
        except OSError as error:
            if error.errno not in _NOT_IN_KERNEL:
                raise
    piece = os.pread(source, min(size, _PIECE), offset)
    if not piece:
        raise StorageFailed("The file became shorter while it was copied.")
    return os.pwrite(target, piece, offset)
