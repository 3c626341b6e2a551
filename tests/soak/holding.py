"""The things that a deployment holds at one moment, counted from outside, and what may grow."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from tests.bench.process import open_descriptors, rss_bytes, tree
from tests.bench.report import table
from tests.faults.topology import Deployment
from tests.soak.census import keys_of_redis, rows_of_sqlite, upstream_sessions

MIB = 1 << 20

SLACK_RSS = 3 * MIB
"""Bytes of each process that may come and go: arenas of the allocator, pages of SQLite, buffers of connections. The
second half of an hour has more than a hundred thousand requests, so a leak of 30 bytes in each is above this."""

SLACK_DESCRIPTORS = 8
"""Connections to upstreams that are kept for the next call; their number depends on the last seconds of the load."""


SLACK_THREADS = 6
"""Threads that pools start when all their threads are busy at the same moment. They are bounded, and stay."""

SLACKS = {"descriptors": SLACK_DESCRIPTORS, "threads": SLACK_THREADS}


@dataclass(frozen=True)
class Holding:
    """``rss`` is in bytes, all else is a number: of the adapters, their disk, their state and the upstream.

    ``keys``: rows of the state that last, by table.
    """

    processes: int
    rss: int
    descriptors: int
    threads: int
    files: int
    keys: Mapping[str, int]
    upstream_sessions: int

    def row(self, moment: str) -> list[str]:
        figures = {each.name: str(getattr(self, each.name)) for each in fields(self)}
        figures |= {"rss": f"{self.rss / MIB:.2f}", "keys": str(sum(self.keys.values()))}
        return [moment, *figures.values()]


async def holding(deployment: Deployment) -> Holding:
    """Everything that is held now."""
    pids = [pid for node in deployment.adapters for pid in tree(node.pid)]
    return Holding(
        processes=len(pids),
        rss=rss_bytes(pids),
        descriptors=open_descriptors(pids),
        threads=sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids),
        files=sum(1 for _ in _files(deployment.disk.seen / "data")),
        keys=await _keys(deployment),
        upstream_sessions=await upstream_sessions(deployment),
    )


def _files(root: Path) -> Iterator[Path]:
    """Files of clients, complete or not; those of the state are always there."""
    for area in ("uploads", "artifacts", "staging"):
        for folder, _, names in os.walk(root / area):
            yield from (Path(folder, name) for name in names)


async def _keys(deployment: Deployment) -> dict[str, int]:
    for node in deployment.others:
        if node.name == "redis":
            return await keys_of_redis(node.port)
    return _rows(deployment.disk.seen / "data" / "state" / "adapter.sqlite3")


def _rows(database: Path) -> dict[str, int]:
    """The rows that last, in a copy: SQLite would not find the file in another process's namespace."""
    with tempfile.TemporaryDirectory(prefix="copy-") as place:
        for file in database.parent.glob(f"{database.name}*"):
            shutil.copy(file, place)
        return rows_of_sqlite(Path(place, database.name))


def grown(before: Holding, middle: Holding, after: Holding) -> list[str]:
    """The names of what has grown.

    The first half may fill pools and caches, and lets the state know each definition of the tools there is. So memory
    and keys have to be flat in the second half only.
    """
    names = []
    for each in fields(Holding):
        if each.name == "keys":
            names += _grown_tables(middle.keys, after.keys)
            continue
        first = middle if each.name == "rss" else before
        slack = SLACK_RSS * before.processes if each.name == "rss" else SLACKS.get(each.name, 0)
        if getattr(after, each.name) > getattr(first, each.name) + slack:
            names.append(each.name)
    return names


def _grown_tables(middle: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [
        f"keys of {name} (from {middle.get(name, 0)} to {count})"
        for name, count in sorted(after.items())
        if count > middle.get(name, 0)
    ]


def settled(earlier: Sequence[Holding], last: Holding, now: Holding) -> bool:
    """Tell whether all is gone that is to go: nothing has changed since the ``last`` look, and nothing is more than it
    was ``earlier``, which is before the load, and in its middle. Memory is what it is; nobody waits for less.
    """
    before, middle, *_ = *earlier, now, now
    return _counts(now) == _counts(last) and set(grown(before, middle, now)) <= {"rss"}


def _counts(held: Holding) -> tuple[object, ...]:
    return held.processes, held.threads, held.files, held.keys, held.upstream_sessions


def shown(holdings: dict[str, Holding]) -> str:
    """A table with a row for each moment."""
    header = ["", *(each.name.replace("_", " ") for each in fields(Holding))]
    header[header.index("rss")] = "RSS, MiB"
    return table([header, *(held.row(moment) for moment, held in holdings.items())])
