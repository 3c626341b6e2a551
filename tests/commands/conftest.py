"""What tests of commands start by name."""

from __future__ import annotations

import pytest

from tests.commands.signing import protected, tokens
from tests.edge.conftest import StartAdapter, StartUpstream, adapter, upstream
from tests.edge.granting import StartScene, scene_of

__all__ = ["adapter", "protected", "tokens", "upstream"]


@pytest.fixture
def scene(upstream: StartUpstream, adapter: StartAdapter) -> StartScene:
    """See ``scene_of``."""
    return scene_of(upstream, adapter)
