"""The configurations of remote-mcp-adapter's scenarios load here, and ask for what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from adapter.app.build import build
from adapter.app.run import running
from adapter.settings.cautions import cautions
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from tests.state.redis import servers

SCENARIOS = Path(__file__).parent / "scenarios"


def scenario(
    name: str, data: Path, flags: Mapping[str, str] = {}, *, redis_port: int = 6379, redis_password: str = "x"
) -> Settings:
    environ = {
        "DATA": str(data),
        "MCP_ADAPTER_TOKEN": "token",
        "MCP_ADAPTER_SIGNING_SECRET": "signing-secret-of-32-characters!",
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(redis_port),
        "REDIS_PASSWORD": redis_password,
    }
    return load(SCENARIOS / f"{name}.yaml", environ=environ, overrides=flags)


@pytest.mark.parametrize("name", ["local-dev", "distributed-production", "ha-adapter"])
def test_scenario_loads(tmp_path: Path, name: str) -> None:
    """Every key is known, no value asks for what is not there, and none of the state store does nothing."""
    settings = scenario(name, tmp_path)
    state = settings.state_persistence
    assert (state.type, state.unavailable_policy) == {
        "local-dev": ("memory", "fallback_memory"),
        "distributed-production": ("redis", "fail_closed"),
        "ha-adapter": ("redis", "exit"),
    }[name]
    assert [each for each in cautions(settings) if each.path.startswith("state_persistence.")] == []


async def test_local_development_starts(tmp_path: Path) -> None:
    """With a file that keeps its memory, as the interval asks for it."""
    flags = {"core.port": "0", "core.host": "127.0.0.1", "core.upstream_ping.enabled": "false"}
    app = build(scenario("local-dev", tmp_path, flags))
    async with running(app) as (_, port):
        assert port and "Sqlite" in repr(app.store)
    assert (tmp_path / "state" / "snapshot.sqlite3").exists()


@pytest.mark.parametrize("name", ["distributed-production", "ha-adapter"])
async def test_scenario_with_redis_starts(tmp_path: Path, name: str) -> None:
    """Two replicas serve at the same time on one Redis and one folder."""
    password = "scenario"
    flags = {
        "core.port": "0",
        "core.host": "127.0.0.1",
        "core.upstream_ping.enabled": "false",
        "telemetry.enabled": "false",
        "core.shutdown_grace_seconds": "0",
    }
    if name == "distributed-production":
        flags["state_persistence.redis.password"] = password
    with servers.single("--requirepass", password) as server:
        assert server.port is not None
        settings = scenario(name, tmp_path, flags, redis_port=server.port, redis_password=password)
        one, other = build(settings), build(settings)
        async with running(one) as (_, first), running(other) as (_, second):
            assert first != second
            await one.store.put("pins", "x", b"1")
            assert await other.store.get("pins", "x") is not None
