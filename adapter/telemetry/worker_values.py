"""Numbers of workers: each keeps its own in files that the others read, so that every scrape has those of all.

The files are those of prometheus_client's multiprocess mode: memory that is mapped, so that what a worker counted stays
when it is killed. A file belongs to a seat, not to a process: the worker that takes the seat next counts on in it. So a
counter never falls, and as many files exist as workers ever ran at the same time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from prometheus_client import values
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which the library looks for the folder of all files."""

BEGAN = "began"
"""A file in the folder, as old as the numbers are."""


RESERVED = {"counter": 1 << 20, "histogram": 4 << 20, "gauge_livesum": 1 << 17, "gauge_livemax": 1 << 17}
"""Bytes of the file of each kind. A write to mapped memory for which a disk has no room kills the process."""


class WorkerValues(NamedTuple):
    """The place of a worker's numbers: the folder of all workers, and its own seat."""

    folder: Path
    seat: int

    @property
    def began(self) -> int:
        """The time since which all workers count, in nanoseconds of Unix time."""
        return (self.folder / BEGAN).stat().st_mtime_ns

    def gathered(self) -> Iterable[Family]:
        """Read the numbers of all workers, those of ended ones included, but for their gauges."""
        found: Iterable[Family] = MultiProcessCollector(None, str(self.folder)).collect()
        return found

    def has_room(self, kind: str, size: int) -> bool:
        """Tell whether so many bytes more fit into the file of a kind, which grows as long as there is room for it."""
        try:
            with (self.folder / f"{kind}_{self.seat}.db").open("r+b") as file:
                # It begins with the number of bytes that are used.
                used, there = int.from_bytes(file.read(4), sys.byteorder), file.seek(0, os.SEEK_END)
                while used + size > there:
                    _double(file, there)
                    there *= 2
        except OSError:
            return False
        return True


def _double(file: BinaryIO, size: int) -> None:
    """Add as many zeros to a file as it has bytes, as the library would without room on the disk. Raises OSError."""
    try:
        file.write(bytes(size))
        file.flush()
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


_of_this_process: WorkerValues | None = None


def keep_in_files(folder: Path, seat: int) -> None:
    """Have this process keep its numbers in the folder; to be called before the first number is counted.

    No other process has the seat at the same time. Raises OSError where there is no room for them; then they are in its
    memory alone, and scrapes have those of the others.
    """
    global _of_this_process
    _of_this_process = WorkerValues(folder, seat)
    for kind, size in RESERVED.items():
        _reserve(folder / f"{kind}_{seat}.db", size)
    # The library itself has one choice for the whole process.
    os.environ[FOLDER_VARIABLE] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: seat)


def _reserve(file: Path, size: int) -> None:
    """Make a file of zeros with room on the disk, unless it is there. It appears as a whole, for others read it."""
    if file.exists():
        return
    unfinished = file.with_suffix(".new")
    try:
        with unfinished.open("wb") as opened:
            opened.write(bytes(size))
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)


def values_of_this_process() -> WorkerValues | None:
    """The place of this process's numbers; None where they are in its memory alone."""
    return _of_this_process
