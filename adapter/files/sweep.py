"""Leftovers: what killed processes and tools leave in the store, found and removed.

Everything here blocks and runs in a thread. Only three areas are looked at, and in them only what this store
names: 32 hex digits for scopes and for the directories of processes. Anything else is somebody's and stays.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from adapter.files.areas import STAGING, claimed, entered, names, remove_entry, remove_if_empty
from adapter.rules.files.file_records import AREAS, FileKind, Place

COPY_LASTS = 86_400.0
"""Seconds for which a copy that a tool was given stays at least: whether somebody reads it still, nobody knows."""

_NAME = re.compile(r"[0-9a-f]{32}")


class Leftover(NamedTuple):
    """Something old, ``name`` in the directory ``way`` below the root. ``place`` if a record might know it."""

    way: tuple[str, ...]
    name: str
    place: Place | None


def sweep_staging(root: int, before: float) -> int:
    """Remove what processes that no longer live were writing; how many files."""
    count = 0
    with entered(root, (STAGING,)) as staging:
        for name in _own_names(staging):
            with contextlib.suppress(OSError), entered(staging, (name,)) as directory:
                # A process elsewhere, which no lock shows, changes its directory again and again.
                if claimed(directory) or not _changed(os.fstat(directory)) < before:
                    continue
                for file in names(directory):
                    if _is_old(directory, file, before):
                        count += remove_entry(directory, file)
                remove_if_empty(staging, name)
    return count


def scopes(root: int) -> list[tuple[FileKind, str]]:
    """Every scope that has a directory, once for each kind."""
    found = []
    for kind, area in AREAS.items():
        with entered(root, (area,)) as directory:
            found += [(kind, name) for name in _own_names(directory)]
    return found


def leftovers(root: int, kind: FileKind, scope: str, before: float) -> list[Leftover]:
    """What in a scope's directory has not changed since ``before``; whether it is known is for others to say."""
    way = (AREAS[kind], scope)
    try:
        with entered(root, way) as directory:
            return [found for name in names(directory) for found in _old(directory, way, kind, name, before)]
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        return [Leftover((AREAS[kind],), scope, None)]  # a tool put something else in its place


def remove(root: int, leftover: Leftover, before: float) -> int:
    """Remove it, if it is as old as it was, and its directory if nothing else is there; how many files."""
    try:
        with entered(root, leftover.way) as directory:
            if claimed(directory) or not _is_old(directory, leftover.name, before):
                return 0
            count = remove_entry(directory, leftover.name)
        if leftover.place is not None:
            with entered(root, leftover.way[:-1]) as directory:
                remove_if_empty(directory, leftover.way[-1])
        return count
    except OSError:
        return 0  # gone, or not ours to remove: the next sweep will see


def remove_if_bare(root: int, kind: FileKind, scope: str, before: float) -> None:
    """Remove the directories of a scope that are old and hold nothing."""
    area = AREAS[kind]
    with contextlib.suppress(OSError):
        with entered(root, (area, scope)) as directory:
            for name in names(directory):
                with contextlib.suppress(OSError), entered(directory, (name,)) as inner:
                    if not claimed(inner) and _changed(os.fstat(inner)) < before:
                        remove_if_empty(directory, name)
        with entered(root, (area,)) as directory:
            remove_if_empty(directory, scope)


def _old(
    directory: int, way: tuple[str, ...], kind: FileKind, name: str, before: float
) -> Iterator[Leftover]:
    try:
        inner = entered(directory, (name,))
        with inner as opened:
            # The directory counts too: it was touched when a file came to it, however old that is.
            if claimed(opened) or not _changed(os.fstat(opened)) < before:
                return
            for file in names(opened):
                if _is_old(opened, file, before - COPY_LASTS if _NAME.fullmatch(file) else before):
                    yield Leftover((*way, name), file, Place(kind, way[-1], name, file))
    except OSError:
        if _is_old(directory, name, before):
            yield Leftover(way, name, None)


def _own_names(directory: int) -> list[str]:
    return [name for name in names(directory) if _NAME.fullmatch(name)]


def _is_old(directory: int, name: str, before: float) -> bool:
    try:
        return _changed(os.stat(name, dir_fd=directory, follow_symlinks=False)) < before
    except FileNotFoundError:
        return False


def _changed(status: os.stat_result) -> float:
    # Not the time of the content, which whoever writes a file may set to anything.
    return status.st_ctime
