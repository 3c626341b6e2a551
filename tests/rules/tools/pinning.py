"""Definitions as they would be pinned."""

from __future__ import annotations

from typing import Any

from adapter.rules.tools.definitions import PinnedTool, pinned, read_tool
from adapter.wire.envelope import dump


def pin_of(value: dict[str, Any]) -> PinnedTool:
    """The pin of a definition."""
    tool = read_tool(dump(value), value)
    assert tool is not None
    return pinned(tool)
