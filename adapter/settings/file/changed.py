"""The settings file on disk, and whether it changed. A supervisor loads this, and not the classes of settings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG

LOOK_SECONDS = 2.0
"""Time between two looks at the file."""

Stamp = tuple[int, int, int] | None


class FileWatch:
    """Looks whether ``file`` changed since this object was made. Of None nothing is ever new."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
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

    def _stamp(self) -> Stamp:
        # The file itself behind all links: Kubernetes exchanges a link to its folder.
        with contextlib.suppress(OSError):
            if self._file is not None:
                found = self._file.stat()
                # A pipe can be read once.
                return (found.st_ino, found.st_mtime_ns, found.st_size) if S_ISREG(found.st_mode) else None
        return None


def changed_keys(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The keys whose digests differ, also where one is missing."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
