"""A killed process leaves whole files and leftovers, and nothing that looks like a file but is none."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

from adapter.files.shelf import Shelf
from adapter.rules.files.file_records import Place
from tests.files.storing import SCOPE, files_below

ROUNDS = 25

CHILD = """
import asyncio, hashlib, os, sys
from pathlib import Path
from adapter.files.shelf import Shelf
from adapter.rules.files.file_records import FileKind, Place

SCOPE = sys.argv[2]

async def upload(shelf, content):
    staging = shelf.stage()
    for start in range(0, len(content), 50_000):
        await staging.write(content[start : start + 50_000])
    measure = await staging.finish()
    # The name tells what a whole file holds.
    await shelf.place(staging, Place(FileKind.UPLOAD, SCOPE, os.urandom(16).hex(), measure.sha256))
    print(measure.sha256, flush=True)

async def main():
    shelf = Shelf(Path(sys.argv[1]))
    await shelf.open()
    print("open", flush=True)
    while True:
        await asyncio.gather(*(upload(shelf, os.urandom(size)) for size in (10, 70_000, 400_000, 1_500_000)))

asyncio.run(main())
"""


def run_and_kill(root: Path, chance: random.Random) -> set[str]:
    """Let a process upload until some moment, kill it there; what it had said to have placed."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, root, SCOPE], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    said = {child.stdout.readline().strip() for _ in range(chance.randrange(4))}
    time.sleep(chance.random() * 0.03)  # the moment is the point: nothing can be waited for
    child.kill()
    said |= set(child.stdout.read().split())
    child.stdout.close()
    child.wait()
    return said


async def test_a_kill_at_any_moment_leaves_only_whole_files(tmp_path: Path) -> None:
    """After kill -9: each file that has a name is whole, each that was said to be placed is there, and the sweep
    removes everything else."""
    root, chance = tmp_path / "store", random.Random(7)
    (root / "state").mkdir(parents=True)
    (root / "state" / "adapter.db").write_bytes(b"state")
    said: set[str] = set()
    for _ in range(ROUNDS):
        said |= run_and_kill(root, chance)
    placed = list((root / "uploads").glob("*/*/*"))
    assert said <= {path.name for path in placed}
    for path in placed:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name

    async def known(place: Place) -> bool:
        return place.name in said

    shelf = Shelf(root)
    await shelf.open()
    await shelf.sweep(known, time.time() + 3600)
    assert {path.name for path in (root / "uploads").glob("*/*/*")} == said
    assert len(files_below(root)) == 1 + 2 * len(said)
    assert len(list((root / "staging").iterdir())) == 1
    assert (root / "state" / "adapter.db").read_bytes() == b"state"
    await shelf.close()
