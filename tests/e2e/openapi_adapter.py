"""The adapter that Schemathesis is let loose on: tools of several kinds, files, and a server that is away."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

TOKEN = "token-of-olga"
NOWHERE = "http://127.0.0.1:9/mcp"

SCRIPTS = """
from adapter.api import ToolUserError, progress, success


async def greet(payload, context):
    return {"tool": payload["tool"], "inputs": payload["inputs"], "server": context.request.server}


async def steps(payload):
    yield progress(50, "half")
    yield success("done")


def refuse(payload):
    raise ToolUserError("Pick another day.")


def fail(payload):
    raise RuntimeError("cannot connect to postgres://me:hunter2@db/x")
"""

_INPUTS = {
    "name": {"type": "string"},
    "size": {"type": "int", "optional": True},
    "at": {"type": "datetime", "optional": True},
}
_GREET = {"handler": "tools.py#greet", "inputs": _INPUTS}
_TOOLS: list[dict[str, Any]] = [
    {
        "name": "find",
        "use": "main",
        "statement": "SELECT id, name FROM users WHERE name LIKE '%{{ inputs.part }}%'",
        "inputs": {"part": {"type": "string", "default": ""}},
        "annotations": {"readOnlyHint": True},
        "cache": {"enabled": True, "ttl": 30},
    },
    {
        "name": "rename",
        "use": "main",
        "statement": "UPDATE users SET name = {{ inputs.name }} WHERE id = {{ inputs.user_id }}",
        "inputs": {"user_id": {"type": "int"}, "name": {"type": "string"}},
        "annotations": {"destructiveHint": True},
    },
    {"name": "greet", **_GREET},
    {"name": "locked", **_GREET, "auth": {"plugin": "api_key", "policy": {"value": "opensesame"}}},
    {"name": "rare", **_GREET, "limits": {"rate": {"window": 3600, "max": 3}}},
    {"name": "steps", "handler": "tools.py#steps"},
    {"name": "refuse", "handler": "tools.py#refuse"},
    {"name": "fail", "handler": "tools.py#fail"},
]
_FILES = [
    {"type": "upload_consumer", "tools": ["digest"], "file_path_argument": "path"},
    {"type": "artifact_producer", "tools": ["draw"], "output_path_argument": "filename"},
]


def furnished(place: Path, files: str, *, auth: bool) -> dict[str, Any]:
    """The settings, and in ``place`` what they name. ``files`` is the URL of ``tests.e2e.files_server``."""
    (place / "tools.py").write_text(SCRIPTS)
    with closing(sqlite3.connect(place / "shop.sqlite3")) as database, database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO users (name) VALUES (?)", [("ann",), ("bob",), ("eve",), ("eva",)])
    main = {
        "name": "main",
        "connector": "sqlite",
        "connection_string": str(place / "shop.sqlite3"),
        "max_rows": 3,
    }
    shop = {"transport": "hosted"}
    return {
        "core": {
            "allow_artifacts_download": True,
            "auth": {"enabled": True, "tokens": [{"name": "olga", "token": TOKEN}]} if auth else {},
        },
        "console": {"enabled": True, "allow_execute": True, "operators": ["olga"] if auth else []},
        "storage": {"root": str(place / "data")},
        "connectors": [main],
        "servers": [
            {"id": "shop", "mount_path": "/mcp/shop", "upstream": shop, "tools": {"define": _TOOLS}},
            {"id": "files", "mount_path": "/mcp/files", "upstream": {"url": files}, "adapters": _FILES},
            {"id": "away", "mount_path": "/mcp/away", "upstream": {"url": NOWHERE}},
        ],
    }
