"""The adapter in front of a server over stdio, for end-to-end tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.processes import Adapter

Command = tuple[str, list[str]]
"""A program and its arguments."""

PATIENCE = 60.0
"""Seconds for anything: Node needs some to start on a busy machine."""


def settings(place: Path, command: Command, **upstream: Any) -> dict[str, Any]:
    """Settings with one server over stdio at ``/mcp``."""
    program, arguments = command
    transport = {"transport": "stdio", "command": program, "args": arguments, **upstream}
    return {
        "storage": {"root": str(place / "data")},
        "sessions": {"max_active": 1000},
        "servers": [{"id": "child", "mount_path": "/mcp", "upstream": transport}],
    }


@asynccontextmanager
async def serving(place: Path, command: Command, **upstream: Any) -> AsyncIterator[Adapter]:
    """The adapter in front of one server over stdio."""
    front = Adapter(place, settings(place, command, **upstream))
    try:
        await front.start()
        yield front
    finally:
        await front.stop()
