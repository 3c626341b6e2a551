"""What tests of grants start by name."""

from __future__ import annotations

import pytest

from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.granting import StartScene, scene_of


@pytest.fixture
def scene(upstream: StartUpstream, adapter: StartAdapter) -> StartScene:
    """See ``scene_of``."""
    return scene_of(upstream, adapter)
