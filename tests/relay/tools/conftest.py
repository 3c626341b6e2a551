"""What most tests of guards begin with."""

from __future__ import annotations

import pytest

from adapter.state.sqlite import MemoryStore
from tests.relay.guarding import CLICK, Shop


@pytest.fixture
def shop() -> Shop:
    """A server with one tool."""
    return Shop(CLICK)


@pytest.fixture
def store() -> MemoryStore:
    """A store that outlives the processes of a test."""
    return MemoryStore()
