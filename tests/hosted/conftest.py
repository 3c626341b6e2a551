"""The servers that tests of connectors ask for by name; each starts once, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.hosted import databases
from tests.hosted.databases import Server


def _or_skip(serving: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    try:
        with serving() as server:
            yield server
    except databases.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    yield from _or_skip(databases.postgres)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    yield from _or_skip(databases.mariadb)


@pytest.fixture(scope="session")
def redis() -> Iterator[Server]:
    yield from _or_skip(databases.redis)


@pytest.fixture(scope="session")
def mongodb() -> Iterator[Server]:
    yield from _or_skip(databases.mongodb)
