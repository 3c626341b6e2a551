"""Every test here runs on both event loops: their transports differ in what they promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from adapter.upstream.http import HttpUpstream
from tests.upstream.raw_peer import Site
from tests.upstream.raw_peer import site as listening


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asked by pytest-asyncio: each loop, by the name it has in the test's id."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A server on loopback that says nothing by itself."""
    async with listening() as server:
        yield server


@pytest.fixture
async def upstream(site: Site) -> AsyncIterator[HttpUpstream]:
    """The client under test, with its default limits."""
    client = HttpUpstream(site.url())
    yield client
    await client.close()
