"""The digest of settings: the same where answers are the same, whatever belongs to one machine; nothing of secrets."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.app.replicas import settings_digest
from adapter.settings.root import Settings

ONE = {"id": "one", "mount_path": "/one", "upstream": {"url": "http://u/mcp"}}
TWO = {"id": "two", "mount_path": "/two", "upstream": {"url": "http://u/mcp"}}


def digest(servers: list[dict[str, Any]] | None = None, **sections: Any) -> str:
    entries = [ONE, TWO] if servers is None else servers
    return settings_digest(Settings.model_validate({"servers": entries, **sections}))


SAME = digest()


@pytest.mark.parametrize(
    "sections",
    [
        {"core": {"port": 1, "host": "0.0.0.0", "replica": {"id": "a"}, "log_level": "debug", "workers": 3}},
        {"core": {"shutdown_grace_seconds": 1, "max_connections": 9}},
        {"storage": {"root": "/elsewhere"}},
        {"telemetry": {"enabled": True, "endpoint": "http://o/"}},
        {"state_persistence": {"type": "redis", "redis": {"host": "r"}}},
        {"core": {"max_request_bytes": "4Mi"}},
    ],
)
def test_what_belongs_to_one_machine(sections: dict[str, Any]) -> None:
    """Addresses, logs, telemetry and limits of a process, and a default that stands in the file."""
    assert digest(**sections) == SAME
    assert len(SAME) == 16


def test_order_of_servers() -> None:
    """They are found by their paths."""
    assert digest([TWO, ONE]) == SAME


@pytest.mark.parametrize(
    "sections",
    [
        {"core": {"auth": {"enabled": True, "token": "t" * 20}}},
        {"core": {"tool_definition_pinning": {"mode": "off"}}},
        {"core": {"disabled_tools": ["x"]}},
        {"core": {"code_mode_enabled": True}},
        {"sessions": {"max_active": 3}},
        {"uploads": {"max_files": 3}},
        {"servers": [ONE]},
        {"servers": [ONE, {**TWO, "id": "three"}]},
        {"servers": [ONE, {**TWO, "mount_path": "/three"}]},
        {"servers": [ONE, {**TWO, "upstream": {"url": "http://v/mcp"}}]},
        {"servers": [ONE, {**TWO, "disabled_tools": ["x"]}]},
    ],
)
def test_what_changes_answers(sections: dict[str, Any]) -> None:
    """Servers, their paths and addresses, policies and limits of sessions."""
    assert digest(**sections) != SAME


def test_secrets_have_no_part() -> None:
    """Two tokens give one digest: nobody can guess the token by it."""
    one, other = ({"auth": {"enabled": True, "token": letter * 20}} for letter in "ab")
    assert digest(core=one) == digest(core=other)
    headers = [{**ONE, "upstream": {"url": "http://u/mcp", "static_headers": {"x": each}}} for each in "ab"]
    assert digest([headers[0]]) == digest([headers[1]])
