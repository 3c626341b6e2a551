"""The settings of a process that serves, read again, and the look whether their file changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapter.settings.file.reading import ReadSettings

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


# --- settings ----------------------------------------------------------------------------------------------


GIVEN = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV"}
)
"""Variables that the process which reads has from the start. Others may be secrets, which programs of this user could
read in its environment; it is told of them over a pipe, once its memory is hidden.
"""

READ_SECONDS = 120.0
"""Time that the process which reads the settings may take."""


class SettingsSource:
    """Reads the settings that the arguments ``argv`` of ``mcp-adapter`` mean, in a process of its own: this one has not
    loaded what reading needs. ``watch`` is the file; ``heeds`` is False where SIGHUP has been ignored from the start.

    ``restarts``: settings that need a new process get one. Then this one is ``outdated``, and ends.
    """

    def __init__(
        self, argv: Sequence[str], watch: FileWatch, *, heeds: bool = True, restarts: bool = False
    ) -> None:
        self._argv = argv
        self.watch = watch
        self.heeds = heeds
        self.restarts = restarts
        self.outdated = False

    def __repr__(self) -> str:
        return f"<SettingsSource {self.watch!r}>"

    async def read(self) -> ReadSettings:
        """The settings of now, and the warnings about them. Raises SettingsError, and ChildProcessError for a process
        that could not read them, which has said why.
        """
        pipe, given = asyncio.subprocess.PIPE, {name: os.environ[name] for name in GIVEN & os.environ.keys()}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *self._argv, stdin=pipe, stdout=pipe, env=given
        )
        try:
            async with asyncio.timeout(READ_SECONDS):
                answer, _ = await process.communicate(pickle.dumps(dict(os.environ)))
        except TimeoutError:
            answer = b""
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if not answer:
            raise ChildProcessError("the process that reads the settings has failed")
        outcome = pickle.loads(answer)  # noqa: S301 - it comes from this program, over a pipe of its own
        if isinstance(outcome, Exception):
            raise outcome
        read: ReadSettings = outcome
        return read
