"""The history of a benchmark, one line for each commit that was measured, and the regressions in it.

``python -m tests.bench.history [FILE]`` compares the last line of ``docs/bench-history.jsonl`` with the best of the
lines before it. It prints every regression with the commit that brought it, and ends with status 1 if there is one.
``python -m tests.bench --record FILE`` adds a line, and then does the same.

A *ratio* compares two processes in one run. It has regressed when each of its rounds is above each round of the best
earlier line, and its median by more than ``TOLERANCE``. Only lines of the same machine are compared. A *count* of
Python calls does not vary: it has regressed when it is above the lowest count of the same version of Python.

A line that says what was ``accepted`` begins a new comparison: its figures are the best from then on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from tests.bench.figures import Spread

FILE = Path(__file__).parents[2] / "docs" / "bench-history.jsonl"

TOLERANCE = 0.05
"""Share of a median that two runs of the same code may differ by although all their rounds agree."""

LOOK_BACK = 20
"""Comparable lines among which the best one is found."""

FEWEST_ROUNDS = 3
"""Rounds below which a run has no spread to speak of and is not recorded."""


class HistoryDamaged(Exception):
    """A line that is no record; the text says which and why."""


@dataclass(frozen=True)
class Record:
    """The figures of one commit.

    ``date`` is ISO 8601. ``machine`` are names and versions, with the placement of the run. ``ratios`` are by name, as
    ``calls`` of Python are by road. ``accepted`` says why worse figures than before are right; empty: none are.
    """

    commit: str
    date: str
    machine: dict[str, str | int]
    ratios: dict[str, Spread]
    calls: dict[str, int]
    accepted: str = ""

    @property
    def same_machine(self) -> tuple[object, ...]:
        """Equal for two records whose ratios can be compared."""
        names = ("cpu", "cores", "nginx", "placement")
        return (self.same_python, *(self.machine.get(name) for name in names))

    @property
    def same_python(self) -> str:
        """Major and minor version of Python: calls are counted alike in all of its patches."""
        return ".".join(str(self.machine.get("python", "")).split(".")[:2])

    def line(self) -> bytes:
        """The record as one line of JSON."""
        values = asdict(self) | {"ratios": {name: ratio._asdict() for name, ratio in self.ratios.items()}}
        return orjson.dumps(values) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Record:
        """Raises ValueError, TypeError or KeyError for anything but a record."""
        values = orjson.loads(line)
        return cls(**values | {"ratios": {name: Spread(**ratio) for name, ratio in values["ratios"].items()}})


@dataclass(frozen=True)
class Regression:
    """``commit`` is the first record that was worse than ``best``; the one before it, ``good``, was not."""

    measure: str
    best: str
    good: str
    commit: str
    before: str
    after: str

    def __str__(self) -> str:
        since = f"commit {self.commit}, or one after {self.good}"
        return f"{self.measure}: {self.after}, was {self.before} at {self.best}. Look at {since}."


def load(path: Path) -> list[Record]:
    """All records, the oldest first; none of a file that is not there. Raises HistoryDamaged."""
    records = []
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            records.append(Record.read(line))
        except (ValueError, TypeError, KeyError) as error:
            raise HistoryDamaged(f"{path}, line {number} is no record: {error!r}") from error
    return records


def add(path: Path, record: Record) -> None:
    """Append the record. A line of the same commit and machine that is the last one is replaced."""
    records = load(path)
    if records and (records[-1].commit, records[-1].machine) == (record.commit, record.machine):
        records.pop()
    path.write_bytes(b"".join(each.line() for each in (*records, record)))


def regressions(records: Sequence[Record]) -> Iterator[Regression]:
    """Every ratio and count of the last record that is worse than the best before it."""
    if not records:
        return
    last = records[-1]
    for name in last.ratios:
        comparable = [
            each for each in records if each.same_machine == last.same_machine and name in each.ratios
        ]
        yield from _ratio_regression(name, _since_accepted(comparable)[-LOOK_BACK:])
    for road in last.calls:
        comparable = [each for each in records if each.same_python == last.same_python and road in each.calls]
        yield from _count_regression(road, _since_accepted(comparable))


def unmeasured(records: Sequence[Record]) -> list[str]:
    """Ratios and counts that the last record lacks and the comparable one before it has."""
    if not records:
        return []
    last = records[-1]
    earlier = [each for each in records[:-1] if each.same_machine == last.same_machine][-1:]
    known = {name for each in earlier for name in (*each.ratios, *each.calls)}
    return sorted(known - last.ratios.keys() - last.calls.keys())


def worse(ratio: Spread, best: Spread) -> bool:
    """Tell whether ``ratio`` is above ``best`` by more than the rounds of both vary."""
    return ratio.low > best.high and ratio.median > best.median * (1 + TOLERANCE)


def _since_accepted(records: list[Record]) -> list[Record]:
    """From the last record whose figures were accepted on."""
    starts = [number for number, each in enumerate(records) if each.accepted]
    return records[starts[-1] :] if starts else records


def _ratio_regression(name: str, records: list[Record]) -> Iterator[Regression]:
    ratios = [each.ratios[name] for each in records]
    best = min(range(len(ratios)), key=lambda number: ratios[number].median)
    marks = [worse(ratio, ratios[best]) for ratio in ratios]
    if marks[-1]:
        yield _regression(name, records, best, marks, [ratio.text(2) for ratio in ratios])


def _count_regression(road: str, records: list[Record]) -> Iterator[Regression]:
    counts = [each.calls[road] for each in records]
    lowest = min(counts)
    best = len(counts) - 1 - counts[::-1].index(lowest)
    if counts[-1] > lowest:
        marks = [count > lowest for count in counts]
        texts = [f"{count} Python calls" for count in counts]
        yield _regression(road, records, best, marks, texts)


def _regression(
    measure: str, records: list[Record], best: int, marks: list[bool], texts: list[str]
) -> Regression:
    """The regression of the last record. It began after the last record that is not marked as worse."""
    good = max(number for number, marked in enumerate(marks) if not marked)
    return Regression(
        measure=measure,
        best=records[best].commit,
        good=records[good].commit,
        commit=records[good + 1].commit,
        before=texts[best],
        after=texts[-1],
    )


def verdict(records: Sequence[Record]) -> tuple[str, bool]:
    """A text for the end of a report, and whether nothing has regressed."""
    if not records:
        return "History: nothing is recorded yet.", True
    found = list(regressions(records))
    lines = [f"REGRESSION  {each}" for each in found]
    if missing := unmeasured(records):
        lines.append(f"Not measured this time: {', '.join(missing)}.")
    if not found:
        lines.insert(0, f"History: no regression at commit {records[-1].commit}, {len(records)} recorded.")
    return "\n".join(lines), not found


def tell(path: Path) -> int:
    """Print the verdict on the history in that file; the status with which to end: 1 if something has regressed."""
    try:
        text, good = verdict(load(path))
    except HistoryDamaged as reason:
        text, good = str(reason), False
    sys.stdout.write(f"{text}\n")
    return 0 if good else 1


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.history", description="Find the commit that made the adapter slower."
    )
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    raise SystemExit(tell(parser.parse_args().file))


if __name__ == "__main__":
    main()
