"""Mark ``timed`` for all attacks, because their bystander measures time: few of them run at once."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of this folder, also where all folders are collected together."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timed)
