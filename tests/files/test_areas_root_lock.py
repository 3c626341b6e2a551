"""One root, one adapter: the second waits a while, and then says what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapter.errors import StorageFailed
from adapter.files.shelf import Shelf


async def test_a_second_adapter_is_refused(shelf: Shelf, root: Path) -> None:
    """The sentence advises a root of its own and names no path; the first goes on undisturbed."""
    second = Shelf(root, lock_wait=0.2)
    with pytest.raises(StorageFailed, match=r"set another storage\.root") as refused:
        await second.open()
    assert str(root) not in str(refused.value)
    await shelf.stage().finish()


async def test_a_second_adapter_waits_for_the_first_to_end(shelf: Shelf, root: Path) -> None:
    """A restart that overlaps with the end of the one before succeeds."""
    second = Shelf(root)
    opening = asyncio.create_task(second.open())
    await asyncio.sleep(0)
    await shelf.close()
    await opening
    await second.stage().finish()
    await second.close()


async def test_the_lock_is_its_owner_s_alone(shelf: Shelf, root: Path) -> None:
    """Another user who could open it could keep the adapter from starting; also a file of an earlier version."""
    assert (root / "lock").stat().st_mode & 0o777 == 0o600
    await shelf.close()
    (root / "lock").chmod(0o644)
    again = Shelf(root)
    await again.open()
    assert (root / "lock").stat().st_mode & 0o777 == 0o600
    await again.close()


async def test_without_the_lock_nobody_is_refused(shelf: Shelf, root: Path) -> None:
    """Where the file system has none, its operator keeps others away; a second one opens at once."""
    second = Shelf(root, lock=None)
    await second.open()
    await second.stage().finish()
    await second.close()


async def test_replicas_share_the_lock(root: Path) -> None:
    """Those with the same state; an adapter with a state of its own is kept away, whoever came first."""
    one, two = Shelf(root, lock="shared"), Shelf(root, lock="shared")
    await one.open()
    await two.open()
    with pytest.raises(StorageFailed, match=r"set another storage\.root"):
        await Shelf(root, lock_wait=0.2).open()
    await one.close()
    await two.close()
    alone = Shelf(root)
    await alone.open()
    with pytest.raises(StorageFailed, match="share their state"):
        await Shelf(root, lock="shared", lock_wait=0.2).open()
    await alone.close()
