"""Tests of connections, pipes and children run on both event loops: their transports differ in what they promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from adapter.upstream.http import HttpUpstream
from tests.upstream.raw_peer import Site
from tests.upstream.raw_peer import site as listening

ABOVE_TRANSPORTS = frozenset(
    (
        "local",
        "sse",
        "test_authorized",
        "test_demo_server",
        "test_server",
        "test_server_eras",
        "test_server_shared",
    )
)
"""Folders and modules of what never meets a transport itself, and runs on the loop of the adapter alone."""


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asked by pytest-asyncio: each loop, by the name it has in the test's id."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if ABOVE_TRANSPORTS.isdisjoint((item.path.parent.name, item.path.stem)):
        loops["asyncio"] = asyncio.new_event_loop
    return loops


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
