"""The open files that connections take."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from adapter.app.serve import allow_descriptors
from adapter.log import get_logger
from adapter.settings.root import Settings


@pytest.fixture
def few() -> Iterator[int]:
    """A soft limit of 1,024 open files, as most systems begin with; the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def settings(connections: int) -> Settings:
    server = {"id": "s", "upstream": {"url": "http://127.0.0.1:9/mcp"}}
    core = {"max_connections": connections, "upstream": {"max_connections": 100}}
    return Settings.model_validate({"core": core, "servers": [server]})


def test_the_process_may_open_what_its_connections_need(few: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of clients, with their reserve, and those to upstreams; no warning where that can be had."""
    wanted = min(2000, few - 1000)
    allow_descriptors(settings(wanted), get_logger("test"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(few, wanted + 100)
    assert capsys.readouterr().err == ""


def test_what_the_system_does_not_allow_is_told(few: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The setting is named, for the system's limit may not be the operator's to change."""
    if few == resource.RLIM_INFINITY:
        pytest.skip("this system allows any number of open files")
    allow_descriptors(settings(few), get_logger("test"))
    assert "core.max_connections" in capsys.readouterr().err
