"""The settings and the tools of the kept states. A version is started with these, and so is this one on its state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]

TOOLS: list[Json] = [
    {
        "name": "send",
        "description": "Sends a file.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string", "pattern": "^/", "description": "A path."}},
            "required": ["path"],
        },
        "outputSchema": {"type": "object", "properties": {"size": {"type": "integer"}}},
    },
    {
        "name": "draw",
        "description": "Draws a picture.",
        "inputSchema": {"type": "object", "properties": {"filename": {"type": "string"}}},
    },
    {
        "name": "rows",
        "description": "Lists rows.",
        "inputSchema": {"type": "object", "properties": {"table": {"type": "string"}}},
        "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "click", "inputSchema": {"type": "object"}, "_meta": {"vendor": 1}},
]

OWN_TOOL = {
    "name": "people",
    "description": "Finds people.",
    "use": "here",
    "statement": "SELECT 1 AS id, {{ inputs.name }} AS name",
    "inputs": {"name": {"type": "string", "description": "A name"}},
    "presenter": "row",
}

OWN = "/own"
"""The mount of the server that the adapter hosts."""


def settings(place: Path, upstream: str, pinning: Mapping[str, Any], **more: Any) -> Json:
    """The settings for an adapter whose data are in ``place``; ``more`` are the upstream's own."""
    # An empty file is a database of SQLite.
    (place / "own.sqlite3").touch()
    return {
        "core": {
            "tool_definition_pinning": dict(pinning),
            "auth": {"signing_secret": "of tests", "signed_upload_ttl_seconds": 3_000_000_000},
        },
        "storage": {"root": str(place / "data")},
        "uploads": {"ttl_seconds": None},
        "artifacts": {"ttl_seconds": None},
        "presenters": {"row": {"schema": {"id": "int"}, "select": True}},
        "state_sync": {"policies": [{"match": "rows", "cache_control": "no-store"}]},
        "connectors": [
            {"name": "here", "connector": "sqlite", "connection_string": str(place / "own.sqlite3")}
        ],
        "servers": [
            {
                "id": "up",
                "mount_path": "/mcp",
                "upstream": {"url": upstream},
                "adapters": [
                    {"type": "upload_consumer", "tools": ["send"], "file_path_argument": "path"},
                    {"type": "artifact_producer", "tools": ["draw"], "output_path_argument": "filename"},
                ],
                "stages": {"rows": {"presenter": "row"}},
                **more,
            },
            {
                "id": "own",
                "mount_path": "/own",
                "upstream": {"transport": "hosted"},
                "tools": {"define": [OWN_TOOL]},
            },
        ],
    }
