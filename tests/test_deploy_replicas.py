"""Three replicas as deploy/ composes them: one configuration, one Redis, one volume, one published port."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import load
from adapter.settings.root import Settings

DEPLOY = Path(__file__).parents[1] / "deploy"
ENVIRONMENT = {"MCP_ADAPTER_TOKEN": "a-long-random-text", "REDIS_URL": "redis://redis:6379/0"}


@pytest.fixture
def services() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())
    named = {
        volume.partition(":")[0]
        for service in composed["services"].values()
        for volume in service["volumes"]
        if not volume.startswith(".")
    }
    assert named == set(composed["volumes"])
    services: dict[str, Any] = composed["services"]
    return services


@pytest.fixture
def settings() -> Settings:
    return load(DEPLOY / "config.replicas.yaml", environ=ENVIRONMENT)


def replicas(services: dict[str, Any]) -> list[str]:
    return [name for name in services if name.startswith("adapter")]


def test_the_configuration_loads(services: dict[str, Any], settings: Settings) -> None:
    """It asks for a token and for Redis, and gets both from the variables that the containers have."""
    assert settings.core.auth.enabled
    assert settings.state_persistence.type == "redis"
    for name in replicas(services):
        assert services[name]["environment"].keys() == ENVIRONMENT.keys()
        assert "redis" in services[name]["depends_on"]
        assert services[name]["environment"]["REDIS_URL"] == ENVIRONMENT["REDIS_URL"]


def test_the_replicas_share_their_files_and_nothing_else(
    services: dict[str, Any], settings: Settings
) -> None:
    """Each replica and the browser have the volume of the files at the same path; only Redis has that of the state."""
    assert len(replicas(services)) == 3
    for name in (*replicas(services), "playwright"):
        assert f"files:{settings.storage.root}" in services[name]["volumes"]
    assert [name for name in services if any("state:" in volume for volume in services[name]["volumes"])] == [
        "redis"
    ]


def test_nginx_knows_each_replica(services: dict[str, Any], settings: Settings) -> None:
    """The load balancer gives requests to all replicas, at the port where they listen, and it alone is published."""
    served = re.findall(r"^ *server ([\w-]+):(\d+)", (DEPLOY / "nginx.conf").read_text(), re.MULTILINE)
    assert served == [(name, str(settings.core.port)) for name in replicas(services)]
    assert [name for name in services if "ports" in services[name]] == ["nginx"]
    assert services["nginx"]["ports"] == [f"127.0.0.1:{settings.core.port}:{settings.core.port}"]
    assert "./nginx.conf:/etc/nginx/conf.d/default.conf:ro" in services["nginx"]["volumes"]


def test_haproxy_knows_each_replica(services: dict[str, Any], settings: Settings) -> None:
    """In both groups, with a check; it listens where nginx does."""
    text = (DEPLOY / "haproxy.cfg").read_text()
    served = re.findall(r"^ *server ([\w-]+) ([\w-]+):(\d+) check$", text, re.MULTILINE)
    assert served == [(name, name, str(settings.core.port)) for name in replicas(services)] * 2
    assert f"bind :{settings.core.port}\n" in text


def test_redis_keeps_what_it_has_acknowledged(services: dict[str, Any]) -> None:
    """A write is on disk before its answer, and no row is evicted."""
    command = services["redis"]["command"]
    asked = dict(zip(command[1::2], command[2::2], strict=True))
    assert (asked["--appendonly"], asked["--appendfsync"]) == ("yes", "always")
    assert asked["--maxmemory-policy"] == "noeviction"


def test_both_compositions_serve_the_same(settings: Settings) -> None:
    """The servers and their files are those of the composition with one adapter."""
    alone = load(DEPLOY / "config.yaml", environ=ENVIRONMENT)
    assert settings.servers == alone.servers
    assert settings.uploads == alone.uploads
