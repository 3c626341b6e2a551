"""Fixtures of tests with several replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.relay.replicas.forwarders import Pair, pair
from tests.state.shared import SharedMemory


@pytest.fixture
def memory() -> SharedMemory:
    """The rows that replicas share."""
    return SharedMemory()


@pytest.fixture
async def found() -> AsyncIterator[Pair]:
    """Two replicas that know each other."""
    async with pair() as made:
        yield made
