"""Removed files take their directories along, whatever tools have made of them."""

from __future__ import annotations

import os
from pathlib import Path

from adapter.files.shelf import Shelf
from tests.files.storing import SCOPE, artifact, put, upload


async def test_removing_leaves_no_directories(shelf: Shelf, root: Path) -> None:
    """The last file of a scope takes its directories along; removing again is harmless."""
    first, second = upload(file_id="1" * 32), upload(file_id="2" * 32)
    for place in (first, second):
        await put(shelf, place, b"x")
    await shelf.remove(first)
    assert Path(shelf.path_of(second)).exists()
    await shelf.remove(second)
    await shelf.remove(second)
    assert not list((root / "uploads").iterdir())


async def test_many_files_go_at_once(shelf: Shelf, root: Path, tmp_path: Path) -> None:
    """Of all kinds and scopes; one that is not there, or lies behind a link, keeps none of the others."""
    places = [
        upload(file_id=str(number) * 32, scope=scope) for scope in ("b", "c", "d") for number in range(3)
    ]
    places.append(artifact())
    for place in places:
        await put(shelf, place, b"x")
    (root / "uploads" / "c").rename(tmp_path / "c")
    (root / "uploads" / "c").symlink_to(tmp_path / "c")
    await shelf.remove(upload(file_id="9" * 32, scope="b"), *places)
    assert [entry.name for entry in (root / "uploads").iterdir()] == ["c"]
    assert not list((root / "artifacts").iterdir())
    assert len(list((tmp_path / "c").iterdir())) == 3


async def test_a_scope_goes_with_all_that_tools_made(shelf: Shelf, root: Path, tmp_path: Path) -> None:
    """Trees deeper than any stack and links to elsewhere go; where links lead stays."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"mine")
    directory = Path(await shelf.allocate(artifact())).parent
    (directory / "link").symlink_to(tmp_path / "outside")
    (directory / "dir").mkdir()
    depth = os.open(directory / "dir", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=depth)
        deeper = os.open("d", os.O_RDONLY, dir_fd=depth)
        os.close(depth)
        depth = deeper
    os.close(depth)
    await put(shelf, upload(), b"x")
    await shelf.remove_scope(SCOPE)
    await shelf.remove_scope(SCOPE)
    assert not list((root / "artifacts").iterdir())
    assert not list((root / "uploads").iterdir())
    assert (tmp_path / "outside" / "file").read_bytes() == b"mine"
