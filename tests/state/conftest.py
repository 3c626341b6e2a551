"""The Redis servers that tests of the store share: each starts once, and each test has keys of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosted.databases import Server
from tests.state.redis import servers


@pytest.fixture(scope="session")
def redis_single(redis_server: Server) -> list[Server]:
    """One server."""
    return [redis_server]


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[list[Server]]:
    """Three servers that are a cluster."""
    with servers.cluster() as nodes:
        yield nodes
