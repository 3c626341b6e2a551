"""What hosts show of a result, by the name that they give themselves."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.rules.clients.hosts import (
    HOST_LIMITS,
    IN_INITIALIZE,
    MOST_CHARACTERS,
    SMALLEST,
    client_info,
    host_limit,
)
from adapter.wire.envelope import dump


@pytest.mark.parametrize(
    ("client", "most"),
    [
        ({"name": "claude-code", "version": "2.1.91"}, 50_000),
        ({"name": "claude-ai"}, 150_000),
        ({"name": "Anthropic/ClaudeAI", "version": "1.0.0"}, 150_000),
        ({"name": "copilot-cli", "version": "0.0.401"}, 10 << 10),
        ({"name": "copilot-cli", "version": "1.0.25"}, 30_000),
        ({"name": "copilot-cli", "version": "next"}, 30_000),
        ({"name": "github-copilot-developer", "version": "0.0.401"}, None),
        ({"name": "inspector"}, None),
        ({"name": 1}, None),
        ({"name": "copilot-cli", "version": {"no": "text"}}, 30_000),
        (None, None),
        ("claude-code", None),
    ],
)
def test_host_is_known_by_its_name(client: object, most: int | None) -> None:
    """A name that several hosts share says nothing."""
    opened = dump({"params": {"clientInfo": client}})
    assert host_limit(client_info(opened, IN_INITIALIZE)) == most


@pytest.mark.parametrize(
    ("declared", "most"),
    [(120_000, 120_000), (10**9, 500_000), (1000, 50_000), (True, 50_000), ("9", 50_000)],
)
def test_tool_may_declare_more_to_one_host(declared: Any, most: int) -> None:
    """Claude Code shows as much as the tool says, up to its own bound."""
    definition = {"_meta": {MOST_CHARACTERS: declared}}
    assert host_limit({"name": "claude-code"}, definition) == most
    assert host_limit({"name": "claude-ai"}, definition) == 150_000


def test_smallest_limit_is_below_all_others() -> None:
    """A result of so many bytes is shown by every host."""
    assert all(each.most >= SMALLEST for each in HOST_LIMITS) and SMALLEST >= 8192
