"""Leftovers go after their grace; what is known, young, at work or not the store's own stays."""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path

from adapter.files.shelf import Shelf
from adapter.rules.files.file_records import Place
from tests.files.storing import OTHER_SCOPE, SCOPE, artifact, files_below, got, put, upload

LATER = 3600
"""Seconds ahead of now: with this as the end of the grace, everything is old."""


async def whoever_made_one(place: Place) -> bool:
    return place == artifact()


async def nobody(place: Place) -> bool:
    return False


async def test_what_nobody_knows_goes(shelf: Shelf, root: Path) -> None:
    """Files without a record, with their directories, whatever kind."""
    for place in (upload(), artifact(), artifact(scope=OTHER_SCOPE)):
        await put(shelf, place, b"x")
    assert await shelf.sweep(nobody, time.time() + LATER) == 3
    assert files_below(root) == set()


async def test_what_is_known_stays(shelf: Shelf, root: Path) -> None:
    """A known file is kept, what a tool put beside it is not."""
    measure = await put(shelf, artifact(), b"known")
    beside = Path(shelf.path_of(artifact())).with_name("beside")
    beside.write_bytes(b"x")
    (beside.parent / "tree" / "deep").mkdir(parents=True)
    (beside.parent / "link").symlink_to("/etc/passwd")
    await put(shelf, upload(), b"unknown")
    await shelf.sweep(whoever_made_one, time.time() + LATER)
    assert await got(shelf, artifact(), measure) == b"known"
    assert [path.name for path in beside.parent.iterdir()] == [artifact().name]
    assert not Path(shelf.path_of(upload())).exists()


async def test_what_is_young_stays(shelf: Shelf) -> None:
    """Within the grace nothing is touched."""
    measure = await put(shelf, upload(), b"young")
    assert await shelf.sweep(nobody, time.time() - 60) == 0
    assert await got(shelf, upload(), measure) == b"young"


async def test_a_tool_at_work_keeps_its_place(shelf: Shelf) -> None:
    """An allocated place stays, however long the call takes, and so does what the tool has written there."""
    path = Path(await shelf.allocate(artifact()))
    await shelf.sweep(nobody, time.time() + LATER)
    path.write_bytes(b"slowly")
    await shelf.sweep(nobody, time.time() + LATER)
    assert await shelf.adopt(artifact(), None) is not None
    await shelf.sweep(nobody, time.time() + LATER)
    shelf.abandon(artifact())
    assert await shelf.sweep(nobody, time.time() - 60) == 0
    assert await shelf.sweep(nobody, time.time() + LATER) == 1


async def test_a_place_that_was_never_used_goes(shelf: Shelf, root: Path) -> None:
    """What a killed process allocated is an empty directory, and is swept."""
    await shelf.allocate(artifact())
    await shelf.adopt(artifact(), None)
    shelf.abandon(artifact())
    await shelf.sweep(nobody, time.time() + LATER)
    assert files_below(root) == set()


async def test_a_file_being_written_stays(root: Path) -> None:
    """Another replica's sweep leaves alone what a living one stages, and takes a dead one's."""
    writer, sweeper = Shelf(root, lock=None), Shelf(root, lock=None)
    await writer.open()
    await sweeper.open()
    staging = writer.stage()
    await staging.write(b"slow")
    dead = root / "staging" / ("d" * 32)
    dead.mkdir()
    (dead / ("e" * 32)).write_bytes(b"left")
    assert await sweeper.sweep(nobody, time.time() + LATER) == 1
    assert not dead.exists()
    await staging.finish()
    await writer.place(staging, upload())
    await writer.close()
    await sweeper.close()


async def test_nothing_else_is_touched(shelf: Shelf, root: Path) -> None:
    """The state, the lock and whatever else somebody keeps below the root is not the sweep's."""
    others = [
        "state/adapter.db",
        "lock2",
        "uploads/.keep",
        "artifacts/lost+found/x",
        "staging/note",
        "mine/x",
    ]
    for name in others:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"mine")
    assert await shelf.sweep(nobody, time.time() + LATER) == 0
    assert all((root / name).read_bytes() == b"mine" for name in others)
    assert (root / "lock").exists()


async def test_a_link_in_place_of_a_directory_goes_alone(shelf: Shelf, root: Path, tmp_path: Path) -> None:
    """A link that a tool planted for a scope or a file is removed, never followed."""
    precious = tmp_path / "precious" / ("b" * 32) / "file"
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"x")
    (root / "artifacts" / OTHER_SCOPE).symlink_to(tmp_path / "precious")
    (root / "artifacts" / SCOPE).mkdir()
    (root / "artifacts" / SCOPE / ("b" * 32)).symlink_to(precious.parent)
    await shelf.sweep(nobody, time.time() + LATER)
    assert files_below(root) == set()
    assert precious.read_bytes() == b"x"


async def test_what_another_machine_is_writing_stays_while_it_is_renewed(root: Path) -> None:
    """No lock shows it there, so the time of its directory does; without a sign it is swept after the grace."""
    writer, sweeper = Shelf(root, lock="shared"), Shelf(root, lock="shared")
    for each in (writer, sweeper):
        await each.open()
    staging = writer.stage()
    await staging.write(b"slowly")
    path = Path(await writer.allocate(artifact())).with_name("half.part")
    path.write_bytes(b"half")
    unlock(root)
    now = await writer.renew()
    assert await sweeper.sweep(nobody, now - 0.001) == 0
    assert path.exists()
    await sweeper.sweep(nobody, await sweeper.renew() + 0.001)
    assert not path.exists() and files_below(root) == set()
    await writer.close()
    await sweeper.close()


def unlock(root: Path) -> None:
    """Take the locks from all directories in use, as if they were held on a file system without any."""
    # A lock belongs to the open directory, so whoever has one of its descriptors can let go of it.
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if link.resolve().is_relative_to(root) and link.is_dir():
                fcntl.flock(int(link.name), fcntl.LOCK_UN)
