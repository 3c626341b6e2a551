"""The routes of files with their defaults, and a session, as most tests begin with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.rules.access.principals import Scope
from tests.edge.filing import Desk, filing


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with filing(tmp_path) as desk:
        yield desk


@pytest.fixture
async def scope(desk: Desk) -> Scope:
    """The scope of a session."""
    return (await desk.session())[1]
