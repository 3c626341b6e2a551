"""``python -m tests.soak``: hours of mixed load, and whether anything grew. Exit status 1 if something did."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.faults.topology import Shape
from tests.reaper import reaped
from tests.soak.run import run

HOUR = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=HOUR, help="duration of the load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1, help="replicas on one Redis behind nginx")
    parser.add_argument("--workers", type=int, default=1, help="workers of one host on SQLite")
    given = parser.parse_args()
    if given.replicas > 1 and given.workers > 1:
        parser.error("--replicas and --workers cannot be combined")
    with reaped(), tempfile.TemporaryDirectory(prefix="soak-") as place:
        shape = Shape(given.replicas, given.workers)
        verdict = asyncio.run(run(shape, given.seconds, given.seed, Path(place), _progress))
    sys.stdout.write(f"{verdict.report()}\n")
    return 1 if verdict.grown else 0


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
