"""A supervisor for each test, and a way to start children that end with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from structlog import get_logger

from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import Start, starting


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """The process that starts children, for one test."""
    supervisor = Supervisor(get_logger())
    yield supervisor
    await supervisor.close()


@pytest.fixture
def start(supervisor: Supervisor) -> Start:
    """Starts a Python program as a child."""
    return starting(supervisor)
