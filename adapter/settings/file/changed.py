"""The settings file on disk, and whether it changed. A supervisor loads this, and neither an event loop nor the classes
of settings.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG

LOOK_SECONDS = 2.0
"""Time between two looks at the file."""

NAMED = frozenset((".py", ".yaml", ".yml", ".json", ".sql", ".lock", ".env"))
"""Suffixes of files that settings may name."""

MOST_FILES = 10_000
"""Files below a folder that are looked at."""

FileStamp = tuple[str, int, int]
"""A file, the time of its last change, and its size."""


class FileWatch:
    """Looks whether ``file``, or one of those below ``folder``, changed since this object was made. Of no file nothing
    is ever new.
    """

    def __init__(self, file: Path | None, folder: Path | None = None) -> None:
        self._file = file
        self._folder = folder
        self._known = self._seen = self._stamp()

    def __repr__(self) -> str:
        return f"<FileWatch of {self._file}>"

    def look(self) -> bool:
        """Tell whether the file is another one than before, and has been since the last look: it is then written."""
        before, self._seen = self._seen, self._stamp()
        if self._seen is None or self._seen != before or self._seen == self._known:
            return False
        self._known = self._seen
        return True

    def _stamp(self) -> tuple[object, ...] | None:
        # The file itself behind all links: Kubernetes exchanges a link to its folder.
        with contextlib.suppress(OSError):
            if self._file is not None:
                found = self._file.stat()
                # A pipe can be read once.
                others = () if self._folder is None else files_below(self._folder, NAMED)
                own = found.st_ino, found.st_mtime_ns, found.st_size
                return (*own, *sorted(others)) if S_ISREG(found.st_mode) else None
        return None


def files_below(folder: Path, suffixes: Collection[str]) -> Iterator[FileStamp]:
    """The files of these suffixes below a folder; of hidden folders, and of more than MOST_FILES files, none."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        for name in names:
            seen += 1
            file = Path(place, name)
            if file.suffix in suffixes and (stamp := stamp_of(file)) is not None:
                yield (str(file), *stamp)
        if seen > MOST_FILES:
            return


def stamp_of(file: Path) -> tuple[int, int] | None:
    """The time of a file's last change and its size; None for a file that cannot be found."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def changed_keys(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The keys whose digests differ, also where one is missing."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
