"""Files on their way out: by position, in pieces, and only as they were recorded."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from adapter.errors import StorageFailed
from adapter.files.shelf import Shelf
from tests.files.storing import artifact, content_of, got, put, upload

MIB = 1024 * 1024


async def test_any_part_can_be_read(shelf: Shelf) -> None:
    """read and pieces give the bytes from an offset, fewer only at the end; the whole can be read too, also again."""
    content = os.urandom(2 * MIB + 5)
    measure = await put(shelf, upload(), content)
    file = await shelf.open_file(upload(), (measure.size, measure.modified))
    assert file is not None
    assert await file.read(10, 20) == content[10:30]
    assert await file.read(2 * MIB, 100) == content[-5:]
    assert await file.read(3 * MIB, 100) == b""
    pieces = [piece async for piece in file.pieces(3, 2 * MIB)]
    assert b"".join(pieces) == content[3 : 3 + 2 * MIB]
    assert max(map(len, pieces)) <= MIB
    assert await file.whole() == content
    assert await file.whole() == content
    file.close()


async def test_a_file_is_held_as_it_was_recorded(shelf: Shelf) -> None:
    """It is there for whoever is told its path while neither its size nor its time has changed, and it is not gone."""
    measure = await put(shelf, upload(), b"as recorded")
    path = Path(shelf.path_of(upload()))
    assert await shelf.holds(upload(), (measure.size, measure.modified))
    assert not await shelf.holds(upload(), (measure.size + 1, measure.modified))
    os.utime(path, ns=(0, measure.modified + 1))
    assert not await shelf.holds(upload(), (measure.size, measure.modified))
    path.unlink()
    assert not await shelf.holds(upload(), (measure.size, measure.modified))


async def test_a_reader_of_the_whole_that_gives_up_leaves_when_the_disk_has(shelf: Shelf) -> None:
    """The file may be closed at once then, and nothing is read under another file's number."""
    measure = await put(shelf, upload(), os.urandom(2 * MIB))
    file = await shelf.open_file(upload(), (measure.size, measure.modified))
    assert file is not None
    reading = asyncio.ensure_future(file.whole())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    file.close()
    assert "0 users" in repr(file)


async def test_a_small_file_is_read_when_it_is_opened(shelf: Shelf) -> None:
    """A reader is given what was there when the file was found to be the recorded one."""
    measure = await put(shelf, upload(), b"as recorded")
    file = await shelf.open_file(upload(), (measure.size, measure.modified))
    assert file is not None
    Path(shelf.path_of(upload())).write_bytes(b"and changed")
    assert await file.read(3, 100) == b"recorded"
    assert await content_of(file) == b"as recorded"


async def test_a_file_that_changed_is_not_the_recorded_one(shelf: Shelf) -> None:
    """Another size or another time of change, and the file is not opened."""
    measure = await put(shelf, artifact(), b"before")
    path = Path(shelf.path_of(artifact()))
    path.write_bytes(b"afters")
    os.utime(path, ns=(measure.modified + 1, measure.modified + 1))
    assert await got(shelf, artifact(), measure) is None
    path.write_bytes(b"longer than it was")
    os.utime(path, ns=(measure.modified, measure.modified))
    assert await got(shelf, artifact(), measure) is None


async def test_a_file_cut_short_breaks_off(shelf: Shelf) -> None:
    """A tool that empties its file while it is sent does not make the sender wait for ever."""
    measure = await put(shelf, artifact(), os.urandom(2 * MIB))
    file = await shelf.open_file(artifact(), (measure.size, measure.modified))
    assert file is not None
    pieces = file.pieces(0, file.size)
    assert len(await anext(pieces)) == MIB
    os.truncate(shelf.path_of(artifact()), 10)
    with pytest.raises(StorageFailed, match="shorter"):
        await anext(pieces)
    file.close()


async def test_closing_while_reading_gives_no_other_file_away(shelf: Shelf) -> None:
    """A read under way when the file is closed gets its own file's bytes or a failure, never those of a file that
    was opened since."""
    secret = os.urandom(64 * 1024)
    for _ in range(30):
        measure = await put(shelf, upload(), b"x" * 4 * MIB)
        file = await shelf.open_file(upload(), (measure.size, measure.modified))
        assert file is not None
        reads = [asyncio.create_task(file.read(0, 4 * MIB)) for _ in range(4)]
        await asyncio.sleep(0)
        file.close()
        await put(shelf, upload("other"), secret)
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(outcome, StorageFailed) or outcome == b"x" * 4 * MIB


async def test_what_is_missing_is_found_out(shelf: Shelf) -> None:
    """Only where nothing is a file is missing: one that was changed may be of use to somebody."""
    there, cut, linked, gone = (upload(name) for name in ("there", "cut", "linked", "gone"))
    for place in (there, cut, linked):
        await put(shelf, place, b"12345")
    os.truncate(shelf.path_of(cut), 2)
    path = Path(shelf.path_of(linked))
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")
    assert await shelf.missing([there, cut, linked, gone]) == [gone]
