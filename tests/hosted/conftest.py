"""The servers that tests of connectors ask for by name; each starts once, for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosted import databases
from tests.hosted.databases import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with databases.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    with databases.mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    with databases.redis() as server:
        yield server


@pytest.fixture(scope="session")
def mongodb() -> Iterator[Server]:
    with databases.mongodb() as server:
        yield server
