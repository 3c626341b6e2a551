"""Files on their way in: whole or not at all, in bounded memory, and a full disk is said to be one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.errors import StorageFailed, StorageFull
from adapter.files.port import FileStore
from adapter.files.shelf import Shelf
from adapter.files.staging import PROCESSORS
from tests.files.storing import SCOPE, files_below, got, put, upload

MIB = 1024 * 1024


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """The operating system refuses to let any file of this process grow further, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_shelf_is_a_file_store(tmp_path: Path) -> None:
    """The port's users may be given a Shelf."""
    store: FileStore = Shelf(tmp_path)
    assert store.roots


async def test_what_was_staged_can_be_read_where_it_was_placed(shelf: Shelf, root: Path) -> None:
    """A placed file holds the bytes, and was measured right."""
    content = os.urandom(3 * MIB + 17)
    measure = await put(shelf, upload(), content)
    assert measure.size == len(content)
    assert measure.sha256 == hashlib.sha256(content).hexdigest()
    assert measure.head == content[:512]
    assert Path(shelf.path_of(upload())).read_bytes() == content
    assert await got(shelf, upload(), measure) == content
    assert files_below(root) == {
        f"uploads/{SCOPE}",
        f"uploads/{SCOPE}/{'f' * 32}",
        f"uploads/{SCOPE}/{'f' * 32}/note.txt",
    }


async def test_an_empty_file_is_a_file(shelf: Shelf) -> None:
    """No bytes at all are kept as such."""
    measure = await put(shelf, upload(), b"")
    assert (measure.size, measure.head) == (0, b"")
    assert await got(shelf, upload(), measure) == b""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.sampled_from([0, 1, 100, 16384, 65536, MIB - 1, MIB, MIB + 1]), max_size=8))
async def test_cutting_never_changes_what_is_written(sizes: list[int], tmp_path: Path) -> None:
    """However the bytes come in, the file holds them in their order."""
    chunks = [bytes([number]) * size for number, size in enumerate(sizes)]
    shelf = Shelf(tmp_path / "store")
    await shelf.open()
    staging = shelf.stage()
    for chunk in chunks:
        await staging.write(chunk)
    measure = await staging.finish()
    await shelf.place(staging, upload())
    assert Path(shelf.path_of(upload())).read_bytes() == b"".join(chunks)
    assert measure.sha256 == hashlib.sha256(b"".join(chunks)).hexdigest()
    assert measure.head == b"".join(chunks)[:512]
    await shelf.close()


@pytest.mark.parametrize("name", ["名" * 66 + ".t", "é" * 98 + ".txt", "a b\t'\"$(x)%2e%2e\\..", "-rf"])
async def test_names_of_every_script_are_kept(shelf: Shelf, name: str) -> None:
    """A name of up to 200 bytes stands on disk as it was given."""
    measure = await put(shelf, upload(name), b"x")
    assert Path(shelf.path_of(upload(name))).name == name
    assert await got(shelf, upload(name), measure) == b"x"


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "/etc", "a\0b"])
async def test_what_is_no_component_is_no_place(shelf: Shelf, part: str) -> None:
    """A part of a place that could lead elsewhere is a fault of ours, and nothing is done."""
    for place in (upload(part), upload(file_id=part), upload(scope=part)):
        with pytest.raises(ValueError, match="component"):
            await shelf.open_file(place, (0, 0))
        with pytest.raises(ValueError, match="component"):
            await shelf.remove(place)
    with pytest.raises(ValueError, match="component"):
        await shelf.remove_scope(part)


async def test_a_discarded_file_leaves_nothing(shelf: Shelf, root: Path) -> None:
    """Discarding twice, or after a placing, is harmless."""
    dropped, kept = shelf.stage(), shelf.stage()
    for staging in (dropped, kept):
        await staging.write(b"x" * 2 * MIB)
    await dropped.discard()
    await dropped.discard()
    await kept.finish()
    await shelf.place(kept, upload())
    await kept.discard()
    assert Path(shelf.path_of(upload())).stat().st_size == 2 * MIB
    assert not list(root.glob("staging/*/*"))


async def test_a_small_file_is_made_when_it_is_whole(shelf: Shelf, root: Path) -> None:
    """What is given up before costs the disk nothing."""
    staging = shelf.stage()
    await staging.write(b"x" * 4096)
    assert not list(root.glob("staging/*/*"))
    await staging.finish()
    assert [path.read_bytes() for path in root.glob("staging/*/*")] == [b"x" * 4096]
    await staging.discard()
    assert not list(root.glob("staging/*/*"))


async def test_a_full_disk_is_said_to_be_one(shelf: Shelf, root: Path) -> None:
    """A write that does not fit raises StorageFull, leaves nothing, and harms no file that fits."""
    fits, staging = shelf.stage(), shelf.stage()
    with no_file_larger_than(3 * MIB // 2):
        with pytest.raises(StorageFull):
            for _ in range(64):
                await staging.write(b"x" * 65536)
                await fits.write(b"y" * 1024)
        with pytest.raises((StorageFull, StorageFailed)):
            await staging.finish()
        await staging.discard()
    await fits.finish()
    await shelf.place(fits, upload())
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["lock", "note.txt"]


async def test_a_large_chunk_on_a_full_disk_too(shelf: Shelf) -> None:
    """A chunk that is a batch by itself is not half written in silence."""
    staging = shelf.stage()
    with no_file_larger_than(MIB), pytest.raises(StorageFull):
        await staging.write(b"x" * 3 * MIB)
    with pytest.raises(StorageFailed, match="completely"):
        await staging.finish()
    await staging.discard()


async def test_a_cancelled_sender_leaves_nothing(shelf: Shelf, root: Path) -> None:
    """A task that is cancelled anywhere on the way and discards has discarded."""

    async def send() -> None:
        staging = shelf.stage()
        try:
            while True:
                await staging.write(b"x" * 100_000)
        finally:
            await staging.discard()

    for turns in range(1, 60):
        sender = asyncio.create_task(send())
        for _ in range(turns):
            await asyncio.sleep(0)
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender
    assert not list(root.glob("staging/*/*"))


async def test_sixteen_files_share_their_buffers(shelf: Shelf) -> None:
    """The memory of files being written has a bound, however many they are and however fast they come."""

    async def send() -> None:
        staging = shelf.stage()
        for _ in range(128):
            await staging.write(chunk)
        await staging.discard()

    chunk = b"x" * 65536
    tracemalloc.start()
    try:
        await asyncio.gather(*(send() for _ in range(16)))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


async def test_files_and_directories_keep_to_the_umask(tmp_path: Path) -> None:
    """A tool under another user may read what the operator's umask lets it."""
    before = os.umask(0o027)
    try:
        shelf = Shelf(tmp_path / "store")
        await shelf.open()
        await put(shelf, upload(), b"x")
        path = Path(shelf.path_of(upload()))
        assert path.stat().st_mode & 0o777 == 0o640
        assert path.parent.stat().st_mode & 0o777 == 0o750
        await shelf.close()
    finally:
        os.umask(before)


async def test_a_root_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    """The failure names the setting and no path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFailed, match=r"storage\.root") as failed:
        await Shelf(tmp_path / "file" / "store").open()
    assert str(tmp_path) not in str(failed.value)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Nothing begins after close, and closing twice is harmless."""
    shelf = Shelf(tmp_path / "store")
    with pytest.raises(StorageFailed, match="not open"):
        await shelf.stage().finish()
    await shelf.open()
    staging = shelf.stage()
    await staging.write(b"x" * MIB)
    await shelf.close()
    await shelf.close()
    await staging.discard()
    with pytest.raises(StorageFailed):
        await shelf.stage().finish()
    assert not list((tmp_path / "store" / "staging").iterdir())


# --- bytes that a thread fetches by itself --------------------------------------------------------------------------


class Pieces:
    """A ContentSource that gives these pieces, each at one time as far as there is room, with a pause behind each. Its
    read of number ``fails`` fails."""

    def __init__(self, *pieces: bytes, fails: int = 0) -> None:
        self.pieces = [*pieces]
        self.fails = fails
        self.reads = 0
        self.threads: set[int] = set()

    def read(self, block: bytearray, most: int) -> int:
        self.threads.add(get_ident())
        self.reads += 1
        if self.reads == self.fails:
            raise OSError(errno.EIO, "cannot be read")
        room, piece = min(most, len(block)), self.pieces.pop(0) if self.pieces else b""
        if len(piece) > room:
            self.pieces.insert(0, piece[room:])
        block[: min(room, len(piece))] = piece[:room]
        return min(room, len(piece))


class Endless:
    """A ContentSource that always has more."""

    def read(self, block: bytearray, most: int) -> int:
        return min(most, len(block), 300_000)


async def test_fetched_bytes_come_behind_written_ones(shelf: Shelf) -> None:
    """Writing and fetching take turns in one file: its bytes, size, digest and beginning are in their order."""
    staging = shelf.stage()
    source = Pieces(b"b" * 600, b"c" * 100_000, b"", b"e" * 300_000)
    await staging.write(b"a" * 100)
    assert await staging.fill(source, 2 * MIB) == 100_600
    await staging.write(b"d" * 20_000)
    assert await staging.fill(source, 2 * MIB) == 300_000
    whole = b"a" * 100 + b"b" * 600 + b"c" * 100_000 + b"d" * 20_000 + b"e" * 300_000
    measure = await staging.finish()
    await shelf.place(staging, upload())

    assert Path(shelf.path_of(upload())).read_bytes() == whole
    assert (measure.size, measure.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert measure.head == whole[:512]
    assert get_ident() not in source.threads


async def test_a_large_file_is_fetched_in_order(shelf: Shelf) -> None:
    """Blocks are fetched ahead of those that are hashed and written, and the system begins to write them to the disk:
    the file and its digest are the ones that came."""
    whole = b"".join(bytes([number]) * (300_000 + number) for number in range(80))
    staging = shelf.stage()
    source = Pieces(whole)
    while await staging.fill(source, 16 * MIB):
        pass
    measure = await staging.finish()
    await shelf.place(staging, upload())
    assert Path(shelf.path_of(upload())).read_bytes() == whole
    assert measure.sha256 == hashlib.sha256(whole).hexdigest()


async def test_no_more_is_fetched_than_was_allowed(shelf: Shelf) -> None:
    """The source is never asked for more bytes than the file may still take."""

    staging = shelf.stage()
    assert await staging.fill(Endless(), 1_000_001) == 1_000_001
    assert staging.size == 1_000_001
    await staging.discard()


async def test_fetching_on_a_full_disk_is_said_to_be_so(shelf: Shelf, root: Path) -> None:
    """What was fetched and could not be written raises StorageFull, and is never taken for a whole file."""
    staging = shelf.stage()
    with no_file_larger_than(MIB), pytest.raises(StorageFull):
        await staging.fill(Pieces(b"x" * (MIB // 2), b"y" * (MIB // 2), b"z"), 4 * MIB)
    with pytest.raises(StorageFailed, match="completely"):
        await staging.finish()
    await staging.discard()
    assert not list(root.glob("staging/*/*"))


async def test_a_source_that_cannot_be_read_is_told(shelf: Shelf, root: Path) -> None:
    """A failure of what is fetched ahead is one of the whole file."""
    staging = shelf.stage()
    source = Pieces(b"x" * 4 * MIB, fails=2)
    with pytest.raises(StorageFailed):
        await staging.fill(source, 4 * MIB)
    assert source.reads == 2
    await staging.discard()
    assert not list(root.glob("staging/*/*"))


async def test_many_files_take_turns(shelf: Shelf) -> None:
    """The more files are written, the less a thread fetches for one of them before it is another's turn."""

    stagings = [shelf.stage() for _ in range(32)]
    assert await stagings[0].fill(Endless(), 4 * MIB) == MIB // 2
    for staging in stagings[1:]:
        await staging.discard()
    assert await stagings[0].fill(Endless(), 4 * MIB) == 4 * MIB
    await stagings[0].discard()


async def test_many_files_are_not_fetched_ahead(shelf: Shelf) -> None:
    """With as many files as processors a second thread for each would only wait: one fetches and writes."""
    stagings = [shelf.stage() for _ in range(PROCESSORS)]
    source = Pieces(*[b"x" * 1000] * 20)
    assert await stagings[0].fill(source, MIB) == 20_000
    assert len(source.threads) == 1
    for staging in stagings:
        await staging.discard()
