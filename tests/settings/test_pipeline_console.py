"""``console``: what holds unless it is said, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.settings.loading import loaded, proxied, refusal

TOKENS = {"auth": {"enabled": True, "tokens": [{"name": "ann", "token": "t"}]}}


def test_it_is_off_and_calls_nothing(file: Path) -> None:
    """Who turns it on gets a page that looks, and neither calls tools nor accepts pins for others."""
    console = loaded(file, proxied({})).console
    assert (console.enabled, console.path, console.title) == (False, "/explorer", "MCP Tool Explorer")
    assert (console.allow_execute, console.auth_hook, console.discovery_auth) == (False, None, False)
    assert (console.invalid_json, console.max_body, console.operators) == ("empty", 1 << 20, [])


def test_operators_are_names_of_tokens(file: Path) -> None:
    """A name that nobody has would be a typing error that only shows when somebody needs it."""
    written = {"enabled": True, "operators": ["ann"], "discovery_auth": True, "auth_hook": "hook.py#who"}
    console = loaded(file, proxied({}, console=written, core=TOKENS)).console
    assert (console.operators, console.auth_hook) == (["ann"], "hook.py#who")
    said = refusal(file, proxied({}, console={"operators": ["ann", "bob"]}, core=TOKENS))
    assert said == "console.operators[1]: no entry of core.auth.tokens has the name bob"


@pytest.mark.parametrize(
    ("console", "said"),
    [
        ({"allow_exec": True}, "allow_exec: is not a known key; the nearest is allow_execute"),
        ({"path": "/"}, "path: must be a path below /"),
        ({"title": ""}, "title: must not be empty"),
        ({"invalid_json": "ignore"}, "invalid_json: must be empty or reject"),
        ({"max_body": "much"}, "max_body: must be a byte size such as"),
        (
            {"discovery_auth": True},
            "discovery_auth: requires a token, but core.auth is not enabled: enable core.auth",
        ),
        ({"enabled": True, "path": "/mcp/a"}, "path: /mcp/a is not free: /mcp/a is the mount_path of a"),
        ({"enabled": True, "path": "/mcp"}, "path: /mcp is not free: /mcp/a is the mount_path of a"),
        (
            {"enabled": True, "path": "/livez"},
            "path: /livez is not free: /livez is a route of the adapter itself",
        ),
        ({"enabled": True, "path": "/artifacts/x"}, "path: /artifacts/x is not free: /artifacts is a route"),
        ({"enabled": True, "path": "/upload/x"}, "path: /upload/x is not free: /upload is core.upload_path"),
    ],
)
def test_a_mistake_in_the_console_is_told_at_its_place(
    file: Path, console: dict[str, Any], said: str
) -> None:
    """In a sentence."""
    assert refusal(file, proxied({}, console=console)).startswith(f"console.{said}")


def test_a_console_that_is_off_takes_no_path(file: Path) -> None:
    """A server may be mounted where the console would be."""
    assert loaded(file, proxied({}, console={"path": "/mcp/a"})).console.path == "/mcp/a"


def test_without_tokens_it_is_for_this_machine_only(file: Path) -> None:
    """Bound to the network it needs core.auth, as whoever reaches it might run tools."""
    open_to_all = proxied({}, console={"enabled": True}, core={"host": "0.0.0.0"})
    assert refusal(file, open_to_all).startswith("console.enabled: is not allowed, because core.host is")
    behind_proxy = proxied({}, console={"enabled": True}, core={"public_base_url": "https://tools.example"})
    assert refusal(file, behind_proxy).startswith(
        "console.enabled: is not allowed, because core.public_base_url"
    )
    guarded = proxied({}, console={"enabled": True}, core={**TOKENS, "host": "0.0.0.0"})
    assert loaded(file, guarded).console.enabled
