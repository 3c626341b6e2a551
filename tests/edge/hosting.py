"""A folder with a configuration of hosted tools, the adapter on it, and what its results say."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from mcp.types import CallToolResult

from adapter.app import build, running
from adapter.settings.file.load import load
from tests.hosted.serving import Front

CONFIG = """
core: {port: 0, shutdown_grace_seconds: 0}
connectors:
  - {name: main, connector: sqlite, connection_string: "{{ env.FOLDER }}/shop.db", max_rows: 3}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    disabled_tools: [hidden]
    tools:
      cache: {ttl: 60}
      define:
        - name: get-user
          title: A user
          description: Get one user
          annotations: {readOnlyHint: true}
          use: main
          statement: "SELECT id, name FROM users WHERE id = {{ inputs.user_id }}"
          inputs: {user_id: {type: int, description: Primary key}}
          cache: {enabled: true, ttl: 30s}
        - name: find
          use: main
          statement: "SELECT id FROM users WHERE name LIKE '%{{ inputs.part }}%' AND name <> '{{ inputs.but }}'"
          inputs: {part: {type: string}, but: {type: string, default: ""}}
        - {name: all, use: main, statement: SELECT id FROM users ORDER BY id}
        - name: rename
          use: main
          statement: "UPDATE users SET name = {{ inputs.name }} WHERE id = {{ inputs.user_id }}"
          inputs: {user_id: {type: int}, name: {type: string, enum: [ann, eve]}}
          annotations: {destructiveHint: true}
        - {name: hidden, use: main, statement: SELECT 1}
        - name: greet
          handler: app/scripts.py#greet
          inputs: {name: {type: string}, at: {type: datetime, optional: true}}
        - {name: read, handler: app/scripts.py#read, inputs: {path: {type: string}}}
        - name: twice
          handler: app/twice.py
          runtime: subprocess
          inputs: {n: {type: int}}
        - {name: spin, handler: app/spin.py, runtime: subprocess, limits: {timeout: 0.3}}
"""

SCRIPTS = """
from pathlib import Path


def greet(payload, context):
    return {"tool": payload["tool"], "inputs": payload["inputs"], "server": context.request.server}


def read(payload):
    return Path(payload["inputs"]["path"]).read_text()
"""

TWICE = """
import json, sys
print(json.dumps({"twice": 2 * json.loads(sys.stdin.readline())["inputs"]["n"]}))
"""

PEOPLE = ((1, "ann"), (2, "bob' OR '1'='1"), (3, "{{ inputs.part }}"), (4, "eve"), (5, "eve%"))


def furnished(folder: Path) -> Path:
    """The folder, made, with the configuration, its database and its scripts."""
    (folder / "app").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "app" / "scripts.py").write_text(SCRIPTS)
    (folder / "app" / "twice.py").write_text(TWICE)
    (folder / "app" / "spin.py").write_text("while True: pass\n")
    (folder / "data").mkdir()
    with closing(sqlite3.connect(folder / "data" / "shop.db")) as database, database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO users VALUES (?, ?)", PEOPLE)
    return folder


@asynccontextmanager
async def serving(place: Path, **overrides: Any) -> AsyncIterator[Front]:
    """The adapter on the configuration of ``place``."""
    said = {"storage.root": str(place / "files")} | {
        key.replace("__", "."): v for key, v in overrides.items()
    }
    async with running(app := build(load(place / "config.yaml", overrides=said, environ={}))) as (_, port):
        yield Front(app, port)


def text_of(result: CallToolResult) -> str:
    """The one text of a result."""
    (block,) = result.content
    assert block.type == "text"
    return block.text
