"""The open files that connections take."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from adapter.app.serve import DESCRIPTORS_BESIDE, allow_descriptors
from adapter.edge.http.limits import RESERVE
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


@pytest.mark.usefixtures("few")
def test_each_process_of_a_server_has_three_pipes() -> None:
    """A server over stdio has no connections, but as many processes as it may have."""
    upstream = {"transport": "stdio", "command": "cat", "max_processes": 500}
    core = {"max_connections": 100}
    given = Settings.model_validate({"core": core, "servers": [{"id": "s", "upstream": upstream}]})
    allow_descriptors(given, get_logger("test"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100 + RESERVE + DESCRIPTORS_BESIDE + 1500


HIDDEN = """
import ctypes, sys
from adapter.app.serve import hide_from_programs
from adapter.log import get_logger
from adapter.settings.root import Settings
hide_from_programs(Settings.model_validate_json(sys.argv[1]), get_logger("test"))
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
"""Says whether the system shows the process to others of its user: PR_GET_DUMPABLE of linux/prctl.h."""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has this switch")
@pytest.mark.parametrize(
    ("upstream", "shown"),
    [({"transport": "stdio", "command": "cat"}, "0"), ({"url": "http://127.0.0.1:9/mcp"}, "1")],
)
def test_the_adapter_is_hidden_from_the_programs_it_starts(upstream: dict[str, str], shown: str) -> None:
    """Processes of servers are such programs: they run as its user, and its environment holds every secret."""
    given = json.dumps({"servers": [{"id": "s", "upstream": upstream}]})
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, given], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == shown
