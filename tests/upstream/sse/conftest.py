"""A scripted HTTP+SSE server, and the upstream in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.upstream.sse.clients import Front
from tests.upstream.sse.scripted_server import SseSite, sse_site


@pytest.fixture
async def site() -> AsyncIterator[SseSite]:
    """A server that says nothing by itself, but accepts every message."""
    async with sse_site() as server:
        yield server


@pytest.fixture
async def front(site: SseSite) -> AsyncIterator[Front]:
    """The upstream under test."""
    front = Front(site)
    yield front
    await front.close()
