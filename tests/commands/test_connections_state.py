"""The commands of an operator, with state in Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.commands.running import mcp_adapter
from tests.hosted.databases import PASSWORD, URL_PASSWORD, Server
from tests.ports import free_port
from tests.state.redis import servers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.single("--maxmemory-policy", "allkeys-lru") as server:
        yield server


def configure(place: Path, url: str) -> None:
    text = {
        "core": {"port": free_port()},
        "storage": {"root": str(place / "data")},
        "state_persistence": {"type": "redis", "redis": {"url": url}},
        "servers": [{"id": "gone", "upstream": {"url": f"http://127.0.0.1:{free_port()}/mcp"}}],
    }
    (place / "config.yaml").write_text(yaml.safe_dump(text))


def url_of(server: Server) -> str:
    return f"redis://:{URL_PASSWORD}@127.0.0.1:{server.port}/0"


def test_check_tells_if_redis_can_be_reached(tmp_path: Path, server: Server) -> None:
    """With --connect a row is written, and settings of Redis that lose state are named."""
    configure(tmp_path, url_of(server))
    done = mcp_adapter(tmp_path, "check", "--connect", "--json", "--config", "config.yaml")
    state, _ = json.loads(done.stdout)["connections"]
    assert (state["server"], state["reachable"]) == ("state_persistence", True)
    assert "can be written" in state["detail"]
    assert "allkeys-lru" in state["detail"]


def test_check_tells_if_redis_cannot_be_reached(tmp_path: Path) -> None:
    """It ends with status 1 and the reason, without the password."""
    configure(tmp_path, f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    done = mcp_adapter(tmp_path, "check", "--connect", "--config", "config.yaml")
    assert done.returncode == 1
    assert "state_persistence: Redis cannot be reached" in done.stderr
    assert "1 server and state_persistence cannot be reached" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_check_without_network_reads_the_address(tmp_path: Path) -> None:
    """An address that is none is a problem of the settings."""
    configure(tmp_path, "redis://u:s3cret@h/x")
    done = mcp_adapter(tmp_path, "check", "--config", "config.yaml")
    assert done.returncode == 2
    assert "state_persistence.redis.url: must have the number of a database" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_effective_settings_hide_the_password(tmp_path: Path, server: Server) -> None:
    """Neither a URL with a password nor a password by itself is shown."""
    configure(tmp_path, url_of(server))
    done = mcp_adapter(tmp_path, "check", "--effective", "--config", "config.yaml")
    assert done.returncode == 0
    assert PASSWORD not in done.stdout
    assert URL_PASSWORD not in done.stdout
    assert yaml.safe_load(done.stdout)["state_persistence"]["redis"]["key_base"] == "mcp_remote_adapter"


def test_serve_tells_why_it_cannot_start(tmp_path: Path) -> None:
    """Without Redis it ends with status 1 and one event, without the password."""
    configure(tmp_path, f"redis://:s3cret@127.0.0.1:{free_port()}/0")
    done = mcp_adapter(tmp_path, "serve", "--config", "config.yaml")
    assert done.returncode == 1
    assert "the state store cannot be used" in done.stdout + done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_doctor_tells_of_redis(tmp_path: Path, server: Server) -> None:
    """Its finding has the reason if Redis cannot be used."""
    configure(tmp_path, url_of(server))
    found = json.loads(mcp_adapter(tmp_path, "doctor", "--json", "--config", "config.yaml").stdout)
    assert [each["status"] for each in found if each["subject"] == "state"] == ["right"]
    configure(tmp_path, f"redis://:s3cret@127.0.0.1:{server.port}/0")
    done = mcp_adapter(tmp_path, "doctor", "--json", "--config", "config.yaml")
    (finding,) = [each for each in json.loads(done.stdout) if each["subject"] == "state"]
    assert finding["status"] == "wrong"
    assert "refuses the login" in finding["sentence"]
    assert "s3cret" not in done.stdout + done.stderr


def test_pins_are_read_from_redis(tmp_path: Path, server: Server) -> None:
    """The commands on pins use the store of the adapter that runs."""
    configure(tmp_path, url_of(server))
    done = mcp_adapter(tmp_path, "pins", "list", "--seen", "--config", "config.yaml")
    assert "has not seen this server's tools yet" in done.stdout + done.stderr
    servers.command(server, "CONFIG", "SET", "requirepass", "other")
    try:
        done = mcp_adapter(tmp_path, "pins", "list", "--seen", "--config", "config.yaml")
        assert "refuses the login" in done.stdout + done.stderr
    finally:
        servers.command(server, "CONFIG", "SET", "requirepass", PASSWORD, password="other")
