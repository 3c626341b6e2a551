"""What tools write below the artifact area is taken for hostile: no link, no pipe, no way out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adapter.errors import FileTooLarge, StorageFailed
from adapter.files.areas import open_at
from adapter.files.capture import FileBytes, measured
from adapter.files.port import CaptureLimit
from adapter.files.shelf import Shelf
from adapter.rules.files.file_records import FileKind, Place
from tests.files.storing import OTHER_SCOPE, SCOPE, artifact, got, put, upload

SECRET = b"root:x:0:0"
NO_LIMIT = None


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is nobody's business, laid out as an artifact's way is."""
    directory = tmp_path / "outside"
    file = directory / SCOPE / artifact().id / artifact().name
    file.parent.mkdir(parents=True)
    file.write_bytes(SECRET)
    return directory


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    directory = tmp_path / "allowed"
    directory.mkdir()
    return directory


@pytest.fixture
async def wide(root: Path, allowed: Path, tmp_path: Path) -> AsyncIterator[Shelf]:
    """A store beside a directory that tools may name files in, the whole of the test's directory too."""
    private = tmp_path / "elsewhere" / "state.db"
    private.parent.mkdir()
    shelf = Shelf(root, allowed_roots=[allowed, tmp_path, root / "uploads"], private=[private])
    await shelf.open()
    yield shelf
    await shelf.close()


async def taken(shelf: Shelf, path: str | Path, *, since: float = 0, scope: str = SCOPE) -> bytes | None:
    """What take copies of a path that a tool named, placed and read."""
    copy = await shelf.take(str(path), scope, since, NO_LIMIT)
    if copy is None:
        return None
    place = upload("copy", scope=scope)
    await shelf.place(copy, place)
    return await got(shelf, place, copy.measure)


def link_component(shelf: Shelf, place: Place, depth: int, outside: Path) -> None:
    """Turn one component of the way to an artifact into a link: 0 the area, 3 the file."""
    names = ("artifacts", place.scope, place.id, place.name)
    targets = (outside, outside / SCOPE, outside / SCOPE / place.id, outside / SCOPE / place.id / place.name)
    component = Path(shelf.roots[0]).joinpath(*names[: depth + 1])
    if component.exists():
        component.rename(component.with_name("moved"))
    component.symlink_to(targets[depth])


# --- at an allocated place ----------------------------------------------------------------------------------------


async def test_a_huge_file_is_not_read_to_be_refused(shelf: Shelf) -> None:
    """A sparse file of a tebibyte takes no room on the disk, and would take many minutes to hash."""
    path = Path(await shelf.allocate(artifact()))
    path.touch()
    os.truncate(path, 1 << 40)
    async with asyncio.timeout(20):
        with pytest.raises(FileTooLarge):
            await shelf.adopt(artifact(), CaptureLimit(1 << 30, "a_setting"))
        with pytest.raises(FileTooLarge):
            await shelf.take(str(path), SCOPE, 0, CaptureLimit(1 << 30, "a_setting"))


async def test_a_file_that_grows_is_read_to_its_limit(shelf: Shelf) -> None:
    """What is written behind what was read already counts too, so a tool that never stops does not keep it busy."""
    path = Path(await shelf.allocate(artifact()))
    size = 32 << 20
    path.touch()
    os.truncate(path, size)
    adopting = asyncio.ensure_future(shelf.adopt(artifact(), CaptureLimit(192 << 20, "a_setting")))
    async with asyncio.timeout(20):
        while not adopting.done():
            size += 8 << 20
            os.truncate(path, size)
            await asyncio.sleep(0.005)
    with pytest.raises(FileTooLarge):
        adopting.result()


def test_a_copy_of_a_growing_file_has_one_byte_above_its_limit(tmp_path: Path) -> None:
    """However much was appended since its size was looked at."""
    path = tmp_path / "growing.bin"
    path.write_bytes(b"x" * 10)
    limit = CaptureLimit(9 << 20, "a_setting")
    directory = os.open(tmp_path, os.O_RDONLY)
    found = open_at(directory, (), path.name)
    os.close(directory)
    assert found is not None
    os.truncate(path, 64 << 20)
    source, done, block = FileBytes(found), 0, bytearray(1 << 20)
    while (most := source.piece(limit)) and done <= limit.size:
        done += source.read(block, min(most, len(block)))
    assert done == limit.size + 1
    found.descriptor.close()


def test_a_file_that_grows_is_measured_a_slice_at_a_time(tmp_path: Path) -> None:
    """Whatever its size was when it was opened: whoever gives up waits for one slice."""
    path = tmp_path / "growing.bin"
    path.write_bytes(b"x" * 20_000)
    directory = os.open(tmp_path, os.O_RDONLY)
    found = open_at(directory, (), path.name)
    os.close(directory)
    assert found is not None
    os.truncate(path, 64 << 20)
    steps = measured(found, CaptureLimit(40 << 20, "a_setting"))
    assert (next(steps), next(steps)) == (None, None)
    with pytest.raises(FileTooLarge):
        next(steps)
    found.descriptor.close()


@pytest.mark.parametrize("where", ["there", "named"])
async def test_reading_a_large_file_can_be_given_up(shelf: Shelf, where: str) -> None:
    """Whoever is cancelled is so within one slice, and nobody goes on reading what would take a minute."""
    path = Path(await shelf.allocate(artifact()))
    path.touch()
    os.truncate(path, 64 << 30)
    reading = shelf.adopt(artifact(), None) if where == "there" else shelf.take(str(path), SCOPE, 0, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await reading
    began = time.thread_time_ns(), time.process_time_ns()
    await asyncio.sleep(0.3)
    # Other threads used no processor since.
    assert time.process_time_ns() - began[1] - (time.thread_time_ns() - began[0]) < 50_000_000


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
async def test_no_component_may_be_a_link(shelf: Shelf, outside: Path, depth: int) -> None:
    """A link anywhere on the way to a file: it is not there for adopt, open_file, holds, lend and take."""
    path = Path(await shelf.allocate(artifact()))
    link_component(shelf, artifact(), depth, outside)
    assert path.read_bytes() == SECRET
    assert await shelf.adopt(artifact(), NO_LIMIT) is None
    assert await taken(shelf, path) is None
    status = path.stat()
    opened = await shelf.open_file(artifact(), (status.st_size, status.st_mtime_ns))
    assert opened is None
    assert not await shelf.holds(artifact(), (status.st_size, status.st_mtime_ns))
    assert not await shelf.lend(artifact(), "c" * 32, (status.st_size, status.st_mtime_ns))
    assert await shelf.missing([artifact()]) == ([artifact()] if depth < 3 else [])


async def test_nothing_is_placed_or_removed_through_an_area_that_is_a_link(
    shelf: Shelf, outside: Path
) -> None:
    """Placing, allocating and removing stay inside the store; what an operator has linked stays linked."""
    await shelf.allocate(artifact())
    link_component(shelf, artifact(), 0, outside)
    with pytest.raises(StorageFailed):
        await put(shelf, artifact(), b"mine")
    with pytest.raises(StorageFailed):
        await shelf.allocate(artifact())
    await shelf.remove(artifact())
    await shelf.remove_scope(SCOPE)
    assert (outside / SCOPE / artifact().id / artifact().name).read_bytes() == SECRET


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_link_in_a_directorys_place_stops_nobody(shelf: Shelf, outside: Path, depth: int) -> None:
    """A tool spoils its scope's directory: files of that scope come in as before, and nothing through the link."""
    await shelf.allocate(artifact())
    link_component(shelf, artifact(), depth, outside)
    await shelf.remove(artifact())
    path = Path(await shelf.allocate(artifact()))
    path.write_bytes(b"told")
    assert await shelf.adopt(artifact(), NO_LIMIT) is not None
    path.parent.parent.rename(path.parent.parent.with_name("gone"))
    link_component(shelf, artifact(), 1, outside)
    assert await got(shelf, artifact(), await put(shelf, artifact(), b"mine")) == b"mine"
    assert (outside / SCOPE / artifact().id / artifact().name).read_bytes() == SECRET


@pytest.mark.parametrize("kind", [artifact(), upload()], ids=["artifacts", "uploads"])
@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b"x"), os.mkfifo])
async def test_a_file_in_a_scopes_place_stops_nobody(
    shelf: Shelf, root: Path, kind: Place, make: Callable[[Path], None]
) -> None:
    """Whatever stands where the scope's directory belongs, also when several files come at once."""
    area = "artifacts" if kind.kind is FileKind.ARTIFACT else "uploads"
    make(root / area / SCOPE)
    places = [kind._replace(id=str(number) * 32) for number in range(8)]
    measures = await asyncio.gather(*(put(shelf, place, b"mine") for place in places))
    for place, measure in zip(places, measures, strict=True):
        assert await got(shelf, place, measure) == b"mine"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).symlink_to("/dev/zero")])
async def test_what_is_no_file_does_not_block(shelf: Shelf, make: Callable[[str], None]) -> None:
    """A pipe that nobody writes to, a directory or a link to a device is refused at once."""
    path = await shelf.allocate(artifact())
    make(path)
    assert await shelf.adopt(artifact(), NO_LIMIT) is None
    assert await taken(shelf, path) is None
    assert await shelf.open_file(artifact(), (0, 0)) is None
    await shelf.remove(artifact())
    assert not Path(path).parent.exists()


# --- a path that a tool named -------------------------------------------------------------------------------------


async def test_a_named_file_of_the_scope_is_copied(shelf: Shelf, root: Path) -> None:
    """A file anywhere in the scope's artifact area may be named, and stays as it is."""
    path = Path(await shelf.allocate(artifact())).with_name("чертёж.pdf")
    path.write_bytes(b"%PDF")
    assert await taken(shelf, path, since=time.time() - 5) == b"%PDF"
    assert path.read_bytes() == b"%PDF"


async def test_another_spelling_of_the_root_is_the_same_root(tmp_path: Path) -> None:
    """A root behind a link may be named by either path; the one that was configured is told to tools."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    shelf = Shelf(tmp_path / "link" / "store")
    await shelf.open()
    path = Path(await shelf.allocate(artifact()))
    path.write_bytes(b"here")
    assert path.is_relative_to(tmp_path / "link" / "store")
    assert await taken(shelf, path) == b"here"
    assert await taken(shelf, path.resolve()) == b"here"
    assert set(shelf.roots) == {str(tmp_path / "link" / "store"), str(tmp_path / "real" / "store")}
    await shelf.close()


async def test_an_older_file_is_not_this_calls(shelf: Shelf) -> None:
    """A file that has not changed since the call began does not count, whatever time its maker gave it."""
    path = Path(await shelf.allocate(artifact()))
    path.write_bytes(b"old")
    os.utime(path, (time.time() + 1000, time.time() + 1000))
    assert await taken(shelf, path, since=time.time() + 500) is None
    os.utime(path, (0, 0))
    assert await taken(shelf, path, since=time.time() - 5) == b"old"


async def test_a_named_file_over_the_limit_is_refused(shelf: Shelf, root: Path) -> None:
    """A file over the limit is FileTooLarge, and no copy stays."""
    path = Path(await shelf.allocate(artifact()))
    path.write_bytes(b"12345")
    with pytest.raises(FileTooLarge):
        await shelf.take(str(path), SCOPE, 0, CaptureLimit(4, "a_setting"))
    assert not list(root.glob("staging/*/*"))


async def test_the_rest_of_the_store_is_never_reached(wide: Shelf, root: Path) -> None:
    """Other scopes' artifacts, uploads, the state, the lock and what tools left outside any scope are nobody's to
    name, also under an allowed root that holds the store or lies in it."""
    (root / "state").mkdir()
    (root / "state" / "adapter.db").write_bytes(SECRET)
    await put(wide, upload(), SECRET)
    await put(wide, artifact(scope=OTHER_SCOPE), SECRET)
    area = root / "artifacts" / SCOPE
    area.mkdir()
    litter = [root / "page.yml", root / "artifacts" / "page.yml", root / "artifacts" / "out" / "page.yml"]
    litter[-1].parent.mkdir()
    for file in litter:
        file.write_bytes(SECRET)
    named: tuple[str | Path, ...] = (
        *litter,
        root / "state" / "adapter.db",
        root / "lock",
        wide.path_of(upload()),
        wide.path_of(artifact(scope=OTHER_SCOPE)),
        f"{area}/../{OTHER_SCOPE}/{artifact().id}/{artifact().name}",
        f"{area}/./../../state/adapter.db",
        f"{area}//../../state/adapter.db",
        root,
        area,
    )
    for path in named:
        assert await taken(wide, path) is None, path


async def test_allowed_roots_are_allowed(wide: Shelf, allowed: Path, tmp_path: Path) -> None:
    """A file below an allowed root may be named; a link below it leads nowhere, a private file is none."""
    (allowed / "deep").mkdir()
    (allowed / "deep" / "file").write_bytes(b"wanted")
    (allowed / "link").symlink_to("deep")
    private = tmp_path / "elsewhere" / "state.db"
    private.write_bytes(SECRET)
    private.with_name("state.db-wal").write_bytes(SECRET)
    assert await taken(wide, allowed / "deep" / "file") == b"wanted"
    assert await taken(wide, allowed / "link" / "file") is None
    assert await taken(wide, private) is None
    assert await taken(wide, private.with_name("state.db-wal")) is None


@pytest.mark.parametrize(
    "path", ["", "/", "relative", "..", "/etc/hostname", "C:\\x", "/a\0b", "/\ud800", "/" + "x" * 5000]
)
async def test_any_other_text_is_no_file(shelf: Shelf, root: Path, path: str) -> None:
    """Whatever a result holds where a path is looked for, it is None or a file of the scope."""
    assert await taken(shelf, path) is None
    assert await taken(shelf, f"{root}/artifacts/{SCOPE}{path}") is None
