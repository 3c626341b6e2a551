"""Copies of stored files for tools: whole, writable as the original was, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapter.errors import StorageFailed, StorageFull
from adapter.files.lending import MOST_FILES
from adapter.files.port import Measure
from adapter.files.shelf import Shelf
from adapter.files.sweep import COPY_LASTS
from adapter.rules.files.file_records import Place
from tests.files.storing import SCOPE, artifact, files_below, got, put, upload
from tests.waiting import until

COPY = "c" * 32
MIB = 1 << 20


async def lent(shelf: Shelf, place: Place, measure: Measure, copy: str = COPY) -> Path:
    assert await shelf.lend(place, copy, (measure.size, measure.modified))
    return Path(shelf.path_of(place, copy))


@pytest.mark.parametrize("size", [0, 1, 16 * MIB, 16 * MIB + 1, 33 * MIB])
async def test_a_copy_is_whole(shelf: Shelf, size: int) -> None:
    """Files of one hop and of several."""
    content = os.urandom(size)
    measure = await put(shelf, upload(), content)
    path = await lent(shelf, upload(), measure)
    assert path.read_bytes() == content and path.name == upload().name
    path.write_bytes(b"changed")
    assert await got(shelf, upload(), measure) == content


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, None])
async def test_a_system_that_cannot_copy_by_itself_is_helped(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """Some file systems and kernels refuse, or say that they have copied nothing."""

    def refuse(*_: object) -> int:
        if code is None:
            return 0
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    content = os.urandom(3 * MIB)
    path = await lent(shelf, upload(), await put(shelf, upload(), content))
    assert path.read_bytes() == content


async def test_another_file_than_the_recorded_one_is_not_copied(shelf: Shelf, root: Path) -> None:
    """One of another size or time, and none at all."""
    measure = await put(shelf, upload(), b"12345")
    assert not await shelf.lend(upload(), COPY, (4, measure.modified))
    assert not await shelf.lend(upload(), COPY, (5, measure.modified + 1))
    assert not await shelf.lend(artifact(), COPY, (5, measure.modified))
    assert len(files_below(root)) == 3  # the scope, the id, the file


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o666])
async def test_who_could_write_the_file_can_write_its_copy(shelf: Shelf, mode: int) -> None:
    """A tool may run as another user, in a common group."""
    measure = await put(shelf, artifact(), b"x")
    Path(shelf.path_of(artifact())).chmod(mode)
    path = await lent(shelf, artifact(), measure)
    assert path.stat().st_mode & 0o7777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_copy_belongs_to_the_owner_of_the_file(shelf: Shelf) -> None:
    """A tool of another user wrote an artifact, and may change its copy as it may change the artifact."""
    measure = await put(shelf, artifact(), b"x")
    os.chown(shelf.path_of(artifact()), 12345, 54321)
    status = (await lent(shelf, artifact(), measure)).stat()
    assert (status.st_uid, status.st_gid) == (12345, 54321)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Files cannot grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_leaves_no_part_of_a_copy(shelf: Shelf, root: Path) -> None:
    """The call fails, and the stored file is as it was."""
    content = os.urandom(20 * MIB)
    measure = await put(shelf, upload(), content)
    before = files_below(root)
    with files_of_at_most(17 * MIB), pytest.raises(StorageFull):
        await lent(shelf, upload(), measure)
    assert files_below(root) == before
    assert await got(shelf, upload(), measure) == content


async def test_a_copy_that_was_broken_off_is_never_given(shelf: Shelf, root: Path) -> None:
    """While it is made it does not have its name, so neither a kill nor a cancelled call leaves a half one there for
    the next try of the same round."""
    content = os.urandom(96 * MIB)
    measure = await put(shelf, upload(), content)
    before = files_below(root)
    path = Path(shelf.path_of(upload(), COPY))
    copying = asyncio.create_task(lent(shelf, upload(), measure))
    await until(lambda: files_below(root) != before)
    assert not path.exists()
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert files_below(root) == before
    assert (await lent(shelf, upload(), measure)).read_bytes() == content


async def test_a_failure_leaves_what_an_earlier_round_made(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that has changed its copy and asks its user goes on with it when the next try succeeds."""
    measure = await put(shelf, upload(), b"x")
    path = await lent(shelf, upload(), measure)
    path.write_bytes(b"changed")
    shelf.give_back(upload(), COPY)
    usual = os.open

    def refuse_once(*_: object, **__: object) -> int:
        monkeypatch.setattr(os, "open", usual)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse_once)
    with pytest.raises(StorageFailed):
        await lent(shelf, upload(), measure)
    assert (await lent(shelf, upload(), measure)).read_bytes() == b"changed"


async def test_copies_have_a_limit_together(root: Path) -> None:
    """Those whose calls are over make room; where calls that go on have all of it, the next one is told so."""
    shelf = Shelf(root, copies=25)
    await shelf.open()
    try:
        measure = await put(shelf, upload(), b"0123456789")
        first, second = [await lent(shelf, upload(), measure, digit * 32) for digit in "12"]
        with pytest.raises(StorageFull, match=r"up to 25 bytes together \(storage.max_size\)"):
            await lent(shelf, upload(), measure, "3" * 32)
        shelf.give_back(upload(), "1" * 32)
        third = await lent(shelf, upload(), measure, "3" * 32)
        assert (first.exists(), second.exists(), third.exists()) == (False, True, True)
        await shelf.remove(upload())
        for digit in "23":
            shelf.give_back(upload(), digit * 32)
        measure = await put(shelf, artifact(), bytes(25))
        assert (await lent(shelf, artifact(), measure)).exists()
    finally:
        await shelf.close()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL])
async def test_an_owner_that_cannot_be_set_hinders_no_copy(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A user namespace does not know every owner, and some file systems know none."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    measure = await put(shelf, artifact(), b"x")
    if os.geteuid() == 0:
        os.chown(shelf.path_of(artifact()), 12345, 54321)
    monkeypatch.setattr(os, "fchown", refuse)
    assert (await lent(shelf, artifact(), measure)).read_bytes() == b"x"


async def test_copies_of_many_files_do_not_pile_up(shelf: Shelf) -> None:
    """Of more files than are remembered, the copies of those that were lent longest ago go with the next copy."""
    first = await lent(shelf, upload(), await put(shelf, upload(), b"x"))
    shelf.give_back(upload(), COPY)
    for number in range(MOST_FILES):
        shelf.give_back(upload(file_id=f"{number:032}"), COPY)
    assert first.exists()
    await lent(shelf, artifact(), await put(shelf, artifact(), b"x"))
    assert not first.exists()


async def test_copies_go_with_their_file(shelf: Shelf, root: Path) -> None:
    """Also what a tool has put beside its copy, and the copies of a scope that ends."""
    for place in (upload(), artifact()):
        path = await lent(shelf, place, await put(shelf, place, b"x"))
        (path.parent / "lock").mkdir()
    await shelf.remove(upload())
    assert all(name.startswith("artifacts") for name in files_below(root))
    await shelf.remove_scope(SCOPE)
    assert files_below(root) == set()


async def test_the_sweep_leaves_copies_for_a_day(shelf: Shelf) -> None:
    """Nobody knows if a tool is still at work on one; then what a killed process has left goes too."""
    measure = await put(shelf, upload(), b"x")
    path = await lent(shelf, upload(), measure)

    async def known(place: Place) -> bool:
        return place == upload()

    assert await shelf.sweep(known, time.time() + COPY_LASTS - 60) == 0
    assert path.read_bytes() == b"x"
    assert await shelf.sweep(known, time.time() + COPY_LASTS + 60) == 1
    assert not path.parent.exists()
    assert await got(shelf, upload(), measure) == b"x"


async def test_what_a_tool_made_of_its_copy_is_taken(shelf: Shelf) -> None:
    """The tool goes on to write, and what was taken stays as it was."""
    path = await lent(shelf, upload(), await put(shelf, upload(), b"hello"))
    path.write_bytes(b"changed")
    staging = await shelf.take_copy(upload(), COPY, None)
    assert staging is not None
    path.write_bytes(b"changed once more")
    await shelf.place(staging, artifact())
    assert await got(shelf, artifact(), staging.measure) == b"changed"
