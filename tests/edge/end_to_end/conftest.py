"""What tests of the whole adapter start by name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.edge.company import StartCompany, company_of
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.oauth.protected import answer
from tests.oauth.token_serving import ProtectedUpstream, TokenServer
from tests.telemetry.collectors import Collector, http_collector


@pytest.fixture
async def up() -> AsyncIterator[ProtectedUpstream]:
    """An upstream that takes t1 and no other token."""
    async with ProtectedUpstream(answer) as raw:
        raw.protect("t1")
        yield raw


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    """The token endpoint."""
    async with TokenServer() as server:
        yield server


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector of OTLP over HTTP."""
    async with http_collector() as found:
        yield found


@pytest.fixture
def company(upstream: StartUpstream, adapter: StartAdapter) -> StartCompany:
    """See ``company_of``."""
    return company_of(upstream, adapter)
