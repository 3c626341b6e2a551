"""A store on the real disk, in a directory of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.files.shelf import Shelf


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def shelf(root: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(root)
    await shelf.open()
    yield shelf
    await shelf.close()
