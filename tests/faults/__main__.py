"""``python -m tests.faults``: random faults under load, and whether every promise was kept. Exit status 1 if not."""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
from pathlib import Path

from tests.faults.run import run
from tests.faults.topology import Shape
from tests.reaper import reaped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="number of faults")
    parser.add_argument(
        "--seed", type=int, help="repeats the faults and requests of a run, but not its timing"
    )
    parser.add_argument("--replicas", type=int, default=1, help="replicas on one Redis behind nginx")
    parser.add_argument("--workers", type=int, default=1, help="workers of one host on SQLite")
    parser.add_argument("--keep", type=Path, help="an empty directory for logs and files, which stays")
    given = parser.parse_args()
    if given.replicas > 1 and given.workers > 1:
        parser.error("--replicas and --workers cannot be combined")
    seed = given.seed if given.seed is not None else secrets.randbelow(1 << 32)
    sys.stderr.write(f"seed {seed}\n")
    # The SDK logs the traceback of each connection that breaks.
    logging.getLogger().addHandler(logging.NullHandler())
    with reaped(), tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        place = given.keep or Path(temporary)
        shape = Shape(given.replicas, given.workers)
        verdict = asyncio.run(run(shape, given.faults, seed, place, _progress))
    sys.stdout.write(f"{verdict.report()}\n")
    return 1 if verdict.violations else 0


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
