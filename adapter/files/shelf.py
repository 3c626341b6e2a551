"""The FileStore on a local disk.

    {root}/lock                             held while open, unless somebody else sees to it
    {root}/staging/{process}/{file}         being written; nobody's yet
    {root}/uploads/{scope}/{id}/{name}      whole files
    {root}/artifacts/{scope}/{id}/{name}    the same, and what tools are writing
    {root}/…/{scope}/{id}/{copy}/{name}     what a tool was given of such a file

A file is whole and synced before it gets its name, so a process that is killed leaves what a sweep removes and
nothing that looks like a file but is none. Directories are not synced: a kill takes nothing from them, and when the
machine itself goes down, a name that had not come to the disk is a file that is missing, whose record is dropped at
the start. The state store does not sync each row either.
``{root}/state`` belongs to the state store and is never touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from adapter.files import areas, capture, sweep
from adapter.files.areas import Root, RootLock
from adapter.files.disk import Descriptor, Disk
from adapter.files.lending import FileCopies
from adapter.files.port import CaptureLimit, Measure, SizeAndTime, StagedFile
from adapter.files.staging import Buffers, FileOnDisk, LocalStagedFile
from adapter.rules.files.file_records import AREAS, Place

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Way: TypeAlias = tuple[str, str, str]
"""The directory of a place: the components below the root that lead to it."""


class Shelf:
    """A FileStore below ``root``. All methods belong to the event loop that called ``open``.

    ``allowed_roots`` are directories beside the store from which ``take`` may copy; one that lies inside the
    store allows nothing. ``private`` are files that ``take`` never copies, wherever they lie. With an
    exclusive ``lock`` a second Shelf on the root waits ``lock_wait`` seconds and then refuses; with a shared one a
    second one that shares it too is let in. The copies that tools are given have at most ``copies`` bytes together.

    Modes are left to the process's umask, since a tool under another user may have to read or write here.
    """

    def __init__(
        self,
        root: Path,
        *,
        allowed_roots: Sequence[Path] = (),
        private: Sequence[Path] = (),
        lock: RootLock | None = "exclusive",
        lock_wait: float = 10.0,
        copies: int | None = None,
    ) -> None:
        self._disk = Disk()
        self._root = Root(root, self._disk, lock=lock, lock_wait=lock_wait)
        self._outskirts = capture.Outskirts(self._root.spellings, allowed_roots, private)
        self._buffers = Buffers()
        self._allocated: dict[Way, Descriptor] = {}
        self._lending = FileCopies(self._root, self._disk, copies)
        self.lend, self.give_back = self._lending.lend, self._lending.give_back

    def __repr__(self) -> str:
        state = f"{self._buffers.files} files being written" if self._root.is_open else "closed"
        return f"<Shelf {str(self._root.path)!r}: {state}>"

    @property
    def roots(self) -> tuple[str, ...]:
        return self._root.spellings

    def path_of(self, place: Place, copy: str | None = None) -> str:
        area, scope, file_id = areas.directory_of(place)
        inner = "" if copy is None else f"{copy}/"
        return f"{self._root.prefix}{area}/{scope}/{file_id}/{inner}{place.name}"

    async def open(self) -> None:
        """Also raises StorageFailed when another process has the lock for longer than the wait."""
        await self._root.open()

    async def close(self) -> None:
        """What was still being staged is gone then. Harmless when done twice; a closed Shelf stays closed."""
        await self._root.close()
        self._disk.close()
        for claim in self._allocated.values():
            claim.close()
        self._allocated.clear()

    # --- writing --------------------------------------------------------------------------------------------------

    def stage(self) -> StagedFile:
        return LocalStagedFile(secrets.token_hex(16), self._disk, self._buffers, self._create, self._unstage)

    async def place(self, staging: StagedFile, place: Place) -> None:
        assert isinstance(staging, LocalStagedFile) and staging.finished, "only what is whole gets a name"
        self._release(place)
        await self._disk.do(self._rename, staging.name, place)
        staging.placed()

    def _create(self, name: str) -> Descriptor:
        with areas.entered(self._root.base, self._root.staging, make=True) as directory:
            return Descriptor(os.open(name, _CREATE, 0o666, dir_fd=directory))

    def _unstage(self, name: str) -> None:
        with (
            contextlib.suppress(FileNotFoundError),
            areas.entered(self._root.base, self._root.staging) as directory,
        ):
            os.unlink(name, dir_fd=directory)

    def _rename(self, name: str, place: Place) -> None:
        way = areas.directory_of(place)
        with (
            areas.entered(self._root.base, self._root.staging) as source,
            areas.entered(self._root.base, way, make=True) as directory,
        ):
            os.rename(name, place.name, src_dir_fd=source, dst_dir_fd=directory)

    # --- what tools write -----------------------------------------------------------------------------------------

    async def allocate(self, place: Place) -> str:
        """The place counts as worked at, and is not swept, until it is abandoned, placed at or removed."""
        way = areas.directory_of(place)
        claim = await self._disk.do(self._claim, way)
        self._release(place)
        self._allocated[way] = claim
        return self.path_of(place)

    def abandon(self, place: Place) -> None:
        self._release(place)

    async def adopt(self, place: Place, limit: CaptureLimit | None) -> Measure | None:
        return await self._disk.steps(self._measured(areas.directory_of(place), place.name, limit))

    async def take(
        self, path: str, scope: str, since: float, limit: CaptureLimit | None
    ) -> StagedFile | None:
        areas.check_component(scope)
        return await self._taken(
            await self._disk.do(self._outskirts.find, self._root.base, path, scope, since), limit
        )

    async def _taken(self, found: areas.FoundFile | None, limit: CaptureLimit | None) -> StagedFile | None:
        if found is None:
            return None
        with contextlib.closing(found.descriptor):
            began = monotonic()
            capture.check(limit, found.status.st_size, began)
            source, staging = capture.FileBytes(found), self.stage()
            try:
                while not source.ended:
                    await staging.fill(source, source.piece(limit))
                    capture.check(limit, staging.size, began)
                await staging.finish()
            except BaseException:
                await staging.discard()
                raise
            return staging

    def _claim(self, way: Way) -> Descriptor:
        claim = Descriptor(areas.walk_making(self._root.base, way))
        with claim as directory:
            areas.claim(directory)
        return claim

    def _measured(
        self, way: Way, name: str, limit: CaptureLimit | None
    ) -> Generator[None, None, Measure | None]:
        found = areas.open_at(self._root.base, way, name)
        if found is None:
            return None
        with contextlib.closing(found.descriptor):
            return (yield from capture.measured(found, limit))

    def _release(self, place: Place) -> None:
        claim = self._allocated.pop(areas.directory_of(place), None)
        if claim is not None:
            claim.close()

    # --- what tools are given -------------------------------------------------------------------------------------

    async def take_copy(self, place: Place, copy: str, limit: CaptureLimit | None) -> StagedFile | None:
        way = (*areas.directory_of(place), copy)
        return await self._taken(await self._disk.do(areas.open_at, self._root.base, way, place.name), limit)

    # --- reading --------------------------------------------------------------------------------------------------

    async def open_file(self, place: Place, recorded: SizeAndTime) -> FileOnDisk | None:
        return await self._disk.do(self._open, place, recorded)

    def _open(self, place: Place, recorded: SizeAndTime) -> FileOnDisk | None:
        found = areas.open_at(self._root.base, areas.directory_of(place), place.name)
        if found is None:
            return None
        if (found.status.st_size, found.status.st_mtime_ns) != recorded:
            found.descriptor.close()
            return None
        return FileOnDisk(found, self._disk)

    async def holds(self, place: Place, recorded: SizeAndTime) -> bool:
        status = await self._disk.do(self._status, place)
        return (
            status is not None
            and areas.is_own_file(status)
            and (status.st_size, status.st_mtime_ns) == recorded
        )

    async def missing(self, places: list[Place]) -> list[Place]:
        return await self._disk.do(lambda: [place for place in places if self._status(place) is None])

    def _status(self, place: Place) -> os.stat_result | None:
        try:
            with areas.entered(self._root.base, areas.directory_of(place)) as directory:
                return os.stat(place.name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if areas.says_absent(error):
                return None
            raise

    # --- removing -------------------------------------------------------------------------------------------------

    async def remove(self, *places: Place) -> None:
        """All that lies in a place's directory goes, since it is this file's alone."""
        directories = [areas.directory_of(place) for place in places]
        for place, directory in zip(places, directories, strict=True):
            self._release(place)
            self._lending.forget(directory)
        await self._disk.do(self._remove, directories)

    async def remove_scope(self, scope: str) -> None:
        areas.check_component(scope)
        for way in [way for way in self._allocated if way[1] == scope]:
            self._allocated.pop(way).close()
        self._lending.forget_scope(scope)
        await self._disk.do(self._remove_scope, scope)

    async def renew(self) -> float:
        return await self._disk.do(self._renew, list(self._allocated.values()))

    def _renew(self, allocated: Sequence[Descriptor]) -> float:
        for claim in allocated:
            with contextlib.suppress(OSError), claim as directory:
                os.utime(directory)
        with areas.entered(self._root.base, self._root.staging, make=True) as directory:
            os.utime(directory)
            return os.fstat(directory).st_ctime

    async def sweep(self, known: Callable[[Place], Awaitable[bool]], before: float) -> int:
        """``known`` is called on the event loop; a file it knows, or one in a place that a living process is at
        work in, stays whatever its age."""
        count = await self._disk.do(sweep.sweep_staging, self._root.base, before)
        for kind, scope in await self._disk.do(sweep.scopes, self._root.base):
            found = await self._disk.do(sweep.leftovers, self._root.base, kind, scope, before)
            for leftover in found:
                if leftover.way in self._allocated:
                    continue  # also where the file system has no locks
                if leftover.place is None or not await known(leftover.place):
                    count += await self._disk.do(sweep.remove, self._root.base, leftover, before)
            await self._disk.do(sweep.remove_if_bare, self._root.base, kind, scope, before)
        return count

    def _remove(self, ways: list[Way]) -> None:
        failed: OSError | None = None
        for (area, scope), some in groupby(ways, itemgetter(0, 1)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                with areas.entered(self._root.base, (area, scope)) as directory:
                    for _, _, file_id in some:
                        try:
                            areas.remove_entry(directory, file_id)
                        except NotADirectoryError:
                            continue
                        except OSError as error:
                            failed = error
                with areas.entered(self._root.base, (area,)) as directory:
                    areas.remove_if_empty(directory, scope)
        if failed is not None:
            raise failed

    def _remove_scope(self, scope: str) -> None:
        for area in AREAS.values():
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                areas.entered(self._root.base, (area,)) as directory,
            ):
                areas.remove_entry(directory, scope)
