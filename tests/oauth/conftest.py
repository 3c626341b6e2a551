"""An authorization server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.oauth.authorization_server import AuthorizationServer, authorization_server
from tests.pipeline.issuer import Clock


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    async with authorization_server() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    """Unix seconds."""
    return Clock()
