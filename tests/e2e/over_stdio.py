"""The adapter in front of a server over stdio, for end-to-end tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.processes import Adapter

Command = tuple[str, list[str]]
"""A program and its arguments."""

PATIENCE = 60.0
"""Seconds for anything: Node needs some to start on a busy machine."""


def settings(
    place: Path,
    command: Command,
    entry: Mapping[str, Any] | None = None,
    sessions: Mapping[str, Any] | None = None,
    **upstream: Any,
) -> dict[str, Any]:
    """Settings with one server over stdio at ``/mcp``, called ``upstream``; ``entry`` has more of its keys."""
    program, arguments = command
    transport = {"transport": "stdio", "command": program, "args": arguments, **upstream}
    return {
        "storage": {"root": str(place / "data")},
        "sessions": {"max_active": 1000, **(sessions or {})},
        "servers": [{"id": "upstream", "mount_path": "/mcp", "upstream": transport, **(entry or {})}],
    }


def serving(
    place: Path,
    command: Command,
    entry: Mapping[str, Any] | None = None,
    sessions: Mapping[str, Any] | None = None,
    **upstream: Any,
) -> Adapter:
    """The adapter in front of one server over stdio; see ``settings``."""
    return Adapter(place, settings(place, command, entry, sessions, **upstream))
