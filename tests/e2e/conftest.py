"""What end-to-end tests ask for by name; each skips, with the reason, where it cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e import provision
from tests.e2e.disks import IN_NAMESPACE
from tests.e2e.talk import Command, commands


@pytest.fixture(scope="session")
def node() -> Path:
    """Node 22, with the npm packages of the end-to-end tests installed."""
    return provision.node()


@pytest.fixture(scope="session")
def server_packages() -> Path:
    """The npm packages of servers over stdio."""
    return provision.server_packages()


@pytest.fixture(scope="session")
def bundle_packages() -> Path:
    """The npm package that checks bundles of Claude Desktop."""
    return provision.bundle_packages()


@pytest.fixture(scope="session")
def servers_python() -> Path:
    """A Python with servers over stdio."""
    return provision.venv("servers")


@pytest.fixture(scope="session")
def office_python() -> Path:
    """A Python with servers that edit documents and workbooks."""
    return provision.venv("office")


@pytest.fixture(scope="session")
def texteditor_python() -> Path:
    """A Python with a server that edits texts."""
    return provision.venv("texteditor")


@pytest.fixture(scope="session")
def mcp1_python() -> Path:
    """A Python with the SDK 1.x."""
    return provision.venv("mcp1")


@pytest.fixture(scope="session")
def fastmcp4_python() -> Path:
    """A Python with FastMCP 4."""
    return provision.venv("fastmcp4")


@pytest.fixture(scope="session")
def command(node: Path, mcp1_python: Path, fastmcp4_python: Path) -> Command:
    """Every official client is there."""
    return commands(node, mcp1_python, fastmcp4_python)


@pytest.fixture(scope="session")
def schemathesis_python() -> Path:
    """A Python with Schemathesis."""
    return provision.venv("schemathesis")


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser of the system."""
    return provision.chromium()


@pytest.fixture(scope="session")
def oauth_programs(node: Path) -> None:
    """Node 22 and the authorization server."""
    provision.oauth_packages()


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Disks of one's own may be mounted here."""
    tried = subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no disk can be mounted: {tried.stderr.strip()}")
