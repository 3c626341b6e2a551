"""Directories whose files tools may read and write; no path that a client sends leads out of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from mcp.server.mcpserver.exceptions import ToolError

LONGEST_READ = 1024 * 1024
"""Bytes of a file that may be read into an answer."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """Paths are relative to ``root``, or absolute and below it or below a directory that others ``shared``.

    Symbolic links are never followed, and names that begin with a dot are not served, so the server may keep
    files of its own under such names. A shared directory need not be there yet.
    """

    def __init__(self, root: Path, shared: Sequence[Path] = ()) -> None:
        self.root = root.resolve()
        # A caller may spell a directory as it was given, through a link above it.
        self._spellings = {
            spelling: directory.resolve()
            for directory in (root, *shared)
            for spelling in (directory.resolve(), directory.absolute())
        }

    def read(self, path: str) -> bytes:
        """The bytes of a regular file. Raises ToolError where there is none, or it is above LONGEST_READ."""
        with self._opened(path, _READ) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > LONGEST_READ:
                raise ToolError(f"{path!r} is larger than the {LONGEST_READ} bytes this tool reads.")
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(LONGEST_READ)

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file. Its directory must exist. Raises ToolError."""
        with self._opened(path, _WRITE) as descriptor, os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        """A descriptor of a regular file, closed at the end of the block."""
        base, steps = self._way(path)
        try:
            descriptor = _open_below(base, steps, flags)
        except (OSError, ValueError):
            # Which of the reasons it was would tell about files outside the folder.
            raise ToolError(f"There is no file {path!r} in this folder that can be opened.") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolError(f"{path!r} is not a regular file.")
            yield descriptor
        finally:
            os.close(descriptor)

    def _way(self, path: str) -> tuple[Path, tuple[str, ...]]:
        """The directory to begin at and the names to walk. Raises ToolError for a way out, or to nothing."""
        given, base = PurePosixPath(path), self.root
        if given.is_absolute():
            spelling = next((each for each in self._spellings if given.is_relative_to(each)), None)
            if spelling is None:
                raise ToolError("That path is outside the folder.")
            given, base = given.relative_to(spelling), self._spellings[spelling]
        if not given.parts or any(step.startswith(".") for step in given.parts):
            raise ToolError("A path names a file inside the folder, without '..' and without hidden names.")
        return base, given.parts


def _open_below(base: Path, steps: Sequence[str], flags: int) -> int:
    """A new descriptor. Raises OSError, for a link on the way too, and ValueError for what is no name."""
    *directories, name = steps
    at = os.open(base, _DIRECTORY)
    try:
        # Step by step: a check of the whole path beforehand leaves time to swap a directory for a link.
        for directory in directories:
            below = os.open(directory, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags, 0o644, dir_fd=at)
    finally:
        os.close(at)
