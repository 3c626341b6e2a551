"""The Redis servers that tests of the store share: each starts once, and each test has keys of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosted.databases import Missing, Server
from tests.state.redis import servers


@pytest.fixture(scope="session")
def redis_server() -> Iterator[list[Server]]:
    """One server."""
    try:
        with servers.single() as server:
            yield [server]
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[list[Server]]:
    """Three servers that are a cluster."""
    try:
        with servers.cluster() as nodes:
            yield nodes
    except Missing as missing:
        pytest.skip(str(missing))
