"""Hosted statement tools under attack: how they are declared and called, and what their databases hold before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.app import build, running
from adapter.settings.root import Settings
from adapter.upstream.port import Upstream, UpstreamRequest
from tests.hosted.databases import PASSWORD
from tests.hosted.stating import Asking

BOUND = 4.0
"""Seconds that a statement may take; whatever would wait in a payload waits longer."""

AT_ONCE = 16
"""Calls that run beside each other."""

SECRET = "canary-5d1f"
OTHERS = (SECRET, "Olga of others", "diary of others")
"""What no tool shows."""

MARK = "shibboleth"
"""Stands at the end of every statement, so that a piece of one is known wherever it is told."""

INPUTS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "other": {"type": "string", "default": "\\"},
    "number": {"type": "int", "default": 1},
    "skip": {"type": "int", "default": 0},
    "score": {"type": "float", "default": 0},
    "active": {"type": "boolean", "default": True},
    "born": {"type": "datetime", "default": "2030-01-01"},
    "column": {"type": "string", "enum": ["id", "name"], "default": "id"},
    "way": {"type": "string", "enum": ["asc", "desc"], "default": "asc"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "who": {"type": "object"},
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a call was answered: ``sent`` is the hostile value, ``error`` what ``_meta`` says of a failure."""

    tool: str
    sent: Any
    failed: bool
    text: str
    error: Mapping[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.text)
        return rows

    def harmless(self, *private: str) -> None:
        """It shows nothing of others', was not late, and if it failed tells nothing of the statement, the driver
        and the server; ``private`` are more things that it must not tell."""
        shown = [word for word in OTHERS if word in self.text]
        assert not shown, f"{self.tool} shows {shown} for {self.sent!r}"
        assert self.error.get("reason") != "timeout", f"{self.tool} waited for {self.sent!r}"
        if not self.failed:
            return
        told = [word for word in (*_NEVER_TOLD, *private) if word in self.text]
        assert not told, f"{self.tool} tells {told} for {self.sent!r}: {self.text[:300]}"
        assert self.error.get("stage") in ("validation", "substitution", "connector")


_NEVER_TOLD = (
    *(MARK, PASSWORD, "Traceback", "127.0.0.1", "localhost"),
    *("asyncpg", "aiomysql", "pymysql", "sqlite3.", "redis.exceptions", "pymongo", "bson."),
)


def tool(name: str, statement: str) -> dict[str, Any]:
    """A tool with the inputs that stand in its statement."""
    used = {key: said for key, said in INPUTS.items() if f"inputs.{key}" in statement}
    return {"name": name, "use": "main", "statement": statement, "inputs": used}


@dataclass(frozen=True)
class Attack:
    """A hosted server of statement tools, called as the relay calls it."""

    upstream: Upstream
    session: str

    async def call(self, name: str, sent: Any, **arguments: Any) -> Said:
        """``arguments`` hold the hostile value, which is ``sent``."""
        params = {"name": name, "arguments": arguments}
        reply = await self._post({"id": 1, "method": "tools/call", "params": params})
        said = json.loads(reply)
        assert "result" in said, f"{name} of {sent!r} is answered {said}"
        result = said["result"]
        (block,) = result["content"]
        error = result.get("_meta", {}).get("adapter/error", {})
        return Said(name, sent, result["isError"], block["text"], error)

    async def each(
        self, names: Sequence[str], values: Iterable[Any], argument: str = "text", **fixed: Any
    ) -> list[Said]:
        """Every tool with every value for its ``argument``."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(name: str, value: Any) -> Said:
            async with room:
                return await self.call(name, value, **{argument: value, **fixed})

        return await asyncio.gather(*(one(name, value) for value in values for name in names))

    async def _post(self, message: dict[str, Any]) -> bytes:
        headers = [("Accept", "application/json"), ("Mcp-Session-Id", self.session)]
        # In ASCII, for halves of characters have an escape and no bytes.
        body = json.dumps({"jsonrpc": "2.0", **message}).encode("ascii")
        reply = await self.upstream.send(UpstreamRequest("POST", headers, body), 30)
        assert reply.whole is not None
        return reply.whole


@asynccontextmanager
async def attacked(
    place: Path, kind: str, url: str, tools: Sequence[Mapping[str, Any]], **options: Any
) -> AsyncIterator[Attack]:
    """The adapter with these tools for one database, as long as the block lasts."""
    connector = {"name": "main", "connector": kind, "connection_string": url, "options": options}
    settings = {
        "core": {"port": 0, "shutdown_grace_seconds": 0},
        "storage": {"root": str(place / "files")},
        "connectors": [{**connector, "timeout_seconds": BOUND}],
        "servers": [
            {
                "id": "shop",
                "mount_path": "/mcp",
                "upstream": {"transport": "hosted"},
                "tools": {"define": list(tools)},
            }
        ],
    }
    async with running(app := build(Settings.model_validate(settings))):
        upstream = app.servers["shop"].upstream
        params = {"protocolVersion": "2025-11-25", "capabilities": {}}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        reply = await upstream.send(UpstreamRequest("POST", [], json.dumps(opening).encode()), 10)
        yield Attack(upstream, dict(reply.headers)["Mcp-Session-Id"])


# --- what the databases hold ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the SQL databases. ``number`` is the type of a key that counts by itself, ``bytes_of``
    the bytes of the body of a note, in hexadecimal digits."""

    number: str
    words: str
    quote: str
    tables: str
    bytes_of: str
    members: str
    """A table of the members of ``{{ inputs.tags }}``."""
    more: tuple[str, ...] = ()
    """Further places for a text, only this database has them."""


DIALECTS: Mapping[str, Dialect] = {
    "sqlite": Dialect(
        "integer PRIMARY KEY",
        "text",
        '"',
        "SELECT name FROM sqlite_master ORDER BY name",
        "hex(body)",
        "SELECT value FROM json_each({{ inputs.tags }})",
    ),
    "postgres": Dialect(
        "serial PRIMARY KEY",
        "text",
        '"',
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
        "upper(encode(convert_to(body, 'UTF8'), 'hex'))",
        "SELECT jsonb_array_elements_text({{ inputs.tags }}::jsonb)",
        ("SELECT $${{ inputs.text }}$$ AS said", "SELECT $q${{ inputs.text }}$q$::text AS said"),
    ),
    "mysql": Dialect(
        "int AUTO_INCREMENT PRIMARY KEY",
        "longtext",
        "`",
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'app' ORDER BY 1",
        "hex(body)",
        "SELECT v FROM JSON_TABLE({{ inputs.tags }}, '$[*]' COLUMNS (v longtext PATH '$')) AS t",
        ('SELECT "{{ inputs.text }}" AS said', "SELECT '100%' AS full, '{{ inputs.text }}' AS said"),
    ),
}

MINE = [{"id": 1, "name": "Mia"}, {"id": 2, "name": "' OR '1'='1"}, {"id": 3, "name": "%"}]


async def furnish(database: Asking) -> None:
    """What is to be kept safe: a vault, people of two owners, notes of one."""
    dialect = DIALECTS[database.connector.kind]
    for name in ("vault", "people", "notes"):
        await database.sql(f"DROP TABLE IF EXISTS {name}")
    await database.sql("CREATE TABLE vault (id int, secret varchar(40))")
    await database.sql(
        "CREATE TABLE people (id int, owner varchar(9), name varchar(40), score float, active boolean, "
        "born timestamp)"
    )
    await database.sql(f"CREATE TABLE notes (id {dialect.number}, owner varchar(9), body {dialect.words})")
    await database.sql(f"INSERT INTO vault VALUES (1, '{SECRET}')")
    for row in MINE:
        name = str(row["name"]).replace("'", "''")
        values = f"{row['id']}, 'me', '{name}', 1.5, true, '2024-02-29'"
        await database.sql(f"INSERT INTO people VALUES ({values})")
    await database.sql("INSERT INTO people VALUES (9, 'other', 'Olga of others', 1.5, true, '2024-02-29')")
    await database.sql("INSERT INTO notes (owner, body) VALUES ('other', 'diary of others')")


async def held(database: Asking) -> list[list[dict[str, Any]]]:
    """All that no tool of these may change."""
    questions = (
        DIALECTS[database.connector.kind].tables,
        "SELECT * FROM vault ORDER BY id",
        "SELECT id, owner, name FROM people ORDER BY id",
        "SELECT owner, body FROM notes WHERE owner <> 'me' ORDER BY id",
    )
    return [(await database.sql(question)).rows for question in questions]
