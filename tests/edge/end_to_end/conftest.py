"""What tests of the whole adapter start by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.hostile import StartScene, scene_of


@pytest.fixture
def hostilities(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> StartScene:
    """``async with hostilities() as scene``: an adapter under attack, and the checks of what the attack left."""
    return partial(scene_of, upstream, adapter, tmp_path, capsys)
