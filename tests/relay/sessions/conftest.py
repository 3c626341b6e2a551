"""Fixtures of tests with shared sessions."""

from __future__ import annotations

import pytest

from tests.relay.sharing import LiveUpstream, Sharing, sharing


@pytest.fixture
def upstream() -> LiveUpstream:
    """A server with sessions."""
    return LiveUpstream()


@pytest.fixture
def process(upstream: LiveUpstream) -> Sharing:
    """An adapter process whose principals share sessions at that server."""
    return sharing(upstream)
