"""One run of the benchmark: how much is measured, of what, and how fronts are started for a part of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import files
from tests.bench.files import FileExtent
from tests.bench.fronts import Front, FrontUnavailable, Running
from tests.bench.load import LoadFailed
from tests.bench.results import Results


@dataclass(frozen=True)
class Extent:
    """How much is measured. ``part`` is the share of each scenario's count that every round takes.

    ``idle`` sessions are those of the measurement of memory; ``parts`` are the parts to measure.
    """

    rounds: int
    part: float
    idle: int
    files: FileExtent
    placement: str = "free"
    parts: tuple[str, ...] = ()


FULL = Extent(rounds=5, part=1.0, idle=2000, files=files.FULL)
QUICK = Extent(rounds=1, part=0.01, idle=20, files=files.QUICK)


@dataclass(frozen=True)
class Run:
    """``upstream`` is the port of the bench's upstream, ``place`` a directory on the disk that counts."""

    fronts: Sequence[Front]
    extent: Extent
    upstream: int
    place: Path
    results: Results

    def has(self, name: str) -> bool:
        """Tell whether the front is one of this run."""
        return any(front.name == name for front in self.fronts)

    def room(self, *names: object) -> Path:
        """A new directory for one start of a front."""
        room = self.place / "-".join(map(str, names))
        room.mkdir()
        return room

    @asynccontextmanager
    async def started(self, part: str, fronts: Sequence[Front]) -> AsyncIterator[dict[Front, Running]]:
        """Those of the fronts that can be started, while the block lasts."""
        async with AsyncExitStack() as stack:
            running: dict[Front, Running] = {}
            for front in fronts:
                with self.noting(part, front.name):
                    start = front.start(self.upstream, self.room(part, front.name))
                    running[front] = await stack.enter_async_context(start)
            yield running

    @contextmanager
    def noting(self, part: str, front: str) -> Iterator[None]:
        """Leave the block when the front fails, and note for the report why its figures are missing."""
        try:
            yield
        except (FrontUnavailable, LoadFailed, OSError) as reason:
            self.results.missing[f"{part}, {front}"] = str(reason) or repr(reason)


def progress(text: str) -> None:
    """Tell the person who waits, apart from the report."""
    sys.stderr.write(f"{text}\n")
