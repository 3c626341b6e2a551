"""What tests of OAuth ask for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.oauth.protection import Command, commands


@pytest.fixture(scope="session")
def command(node: Path, mcp1_python: Path, fastmcp4_python: Path) -> Command:
    """Every client is there."""
    return commands(node, mcp1_python, fastmcp4_python)
