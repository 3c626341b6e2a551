"""Values that ask for nothing special are accepted, and those that would do nothing are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.settings.file.load import SettingsError, load

CONSUMER = {"type": "upload_consumer", "tools": ["t"], "file_path_argument": "p"}
SERVER: dict[str, Any] = {"id": "a", "upstream": {"url": "http://127.0.0.1:1/mcp"}}

ACCEPTED = [
    ("servers.0.upstream.transport", "sse"),
    ("servers.0.adapters", [CONSUMER]),
    ("servers.0.code_mode_enabled", False),
    ("servers.0.tool_definition_pinning.mode", False),
    ("servers.0.tool_definition_pinning.mode", None),
    ("core.tool_metadata_sanitization.mode", "off"),
    ("core.tool_description_policy.mode", "preserve"),
    ("state_persistence.unavailable_policy", "exit"),
    ("state_persistence.unavailable_policy", "fallback_memory"),
    ("state_persistence.refresh_on_startup", True),
    ("state_persistence.type", "memory"),
    ("storage.lock_mode", "file"),
]


def with_setting(key: str, value: object) -> None:
    load(
        None, environ={}, overrides={"servers": [SERVER | {"upstream": dict(SERVER["upstream"])}], key: value}
    )


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_a_value_is_accepted(key: str, value: object) -> None:
    """Off, none, null, empty and what is there are accepted."""
    with_setting(key, value)


def test_redis_is_loaded(tmp_path: Path) -> None:
    """A complete Redis section is understood, and locks of files in Redis."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "servers: [{id: a, upstream: {url: 'http://u/'}}]\nstate_persistence: {type: redis, redis: {host: r}}"
    )
    settings = load(file, overrides={"storage.lock_mode": "redis"}, environ={})
    assert (settings.state_persistence.redis.host, settings.storage.lock_mode) == ("r", "redis")


def test_memory_with_a_file_is_kept() -> None:
    """Memory with a path asks for a file that keeps it, which there is."""
    overrides = {
        "servers": [SERVER],
        "state_persistence.type": "memory",
        "state_persistence.disk.local_path": "x",
    }
    assert load(None, environ={}, overrides=overrides).snapshot_path == Path("x")


def test_lock_of_a_store_that_is_not_used_is_refused() -> None:
    """It would lock nothing: the compare-and-set of the store is what keeps replicas apart."""
    with pytest.raises(
        SettingsError, match=r"^storage\.lock_mode: redis needs state_persistence\.type redis"
    ):
        with_setting("storage.lock_mode", "redis")
