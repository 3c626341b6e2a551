"""Directories that survive a crash under their names: synced once, not at every file that comes to them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from adapter.files.areas import identity


class Lasting:
    """Which scopes' directories are known to last. Used by many threads at once.

    A directory is told by its identity too, since a tool may put another one in its place. Whoever is about to
    remove one forgets it first: while a file lies in it that is being settled, it cannot be removed.
    """

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, ...], tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Lasting: {len(self._scopes)} directories>"

    def settle(self, way: Sequence[str], directories: Sequence[int]) -> None:
        """Make what lies at the end of ``way`` survive a crash under its name, and the way to it.

        ``directories`` are open: the root, and each component of the way; the last one but one is the scope's.
        """
        *above, scope, innermost = directories
        os.fsync(innermost)
        os.fsync(scope)
        known, here = tuple(way[:-1]), identity(os.fstat(scope))
        if self._scopes.get(known) == here:
            return
        for directory in reversed(above):
            os.fsync(directory)
        self._scopes[known] = here

    def forget(self, *way: str) -> None:
        """The directory of a scope may be removed from now on. Harmless for one that is not known."""
        self._scopes.pop(way, None)
