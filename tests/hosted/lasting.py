"""Tools whose work lasts, each with the view that its own server, or the kernel, has of that work."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.app import build, running
from adapter.settings.root import Settings
from tests.hosted.databases import Server
from tests.hosted.serving import Front
from tests.hosted.stating import Asking, opened
from tests.hosted.wire import lasting_server

MARK = "lasting-7d1c"
"""Stands in the statements, for the views that list them."""

FAMILY = """#!/bin/sh
cd "$(dirname "$0")"
sleep 600 &
echo $! > child.pid
echo $$ > self.pid
wait
"""
"""A program and a child of its own, and where their numbers are."""

TELLING = """
import os, subprocess
from pathlib import Path
from adapter.api import progress


def run(payload):
    here = Path(__file__).parent
    child = subprocess.Popen(["sleep", "600"])
    yield progress(10, "begun")
    (here / "child.pid").write_text(f"{child.pid}\\n")
    (here / "self.pid").write_text(f"{os.getpid()}\\n")
    child.wait()
"""
"""The same, called as a function that has told of its progress, so that its answer is a stream."""


@dataclass(frozen=True)
class Lasting:
    """``running`` is how much of the work goes on, none of it being 0; ``whole`` how much there is of it."""

    tool: Mapping[str, Any]
    running: Callable[[], Awaitable[int]]
    connector: Mapping[str, Any] | None = None
    quick: str | None = None
    """A statement that ends at once, for the only connection that there is."""

    whole: int = 1
    patience: float = 0.5
    """Seconds in which it has surely begun."""

    async def begun(self) -> bool:
        return await self.running() == self.whole

    async def over(self) -> bool:
        return await self.running() == 0

    @asynccontextmanager
    async def served(self, place: Path, timeout: float) -> AsyncIterator[Front]:
        """The adapter with the tools ``last``, which has ``timeout`` seconds, and ``quick``."""
        tools = [{"name": "last", **self.tool, "limits": {"timeout": timeout}}]
        if self.quick is not None:
            tools.append({"name": "quick", "use": "main", "statement": self.quick})
        settings = {
            "core": {"port": 0, "shutdown_grace_seconds": 0},
            "storage": {"root": str(place / "files")},
            "connectors": [] if self.connector is None else [{"name": "main", **self.connector}],
            "servers": [
                {
                    "id": "hosted",
                    "mount_path": "/mcp",
                    "upstream": {"transport": "hosted"},
                    "tools": {"define": tools},
                }
            ],
        }
        async with running(app := build(Settings.model_validate(settings))) as (_, port):
            yield Front(app, port)


@asynccontextmanager
async def in_sql(server: Server, statement: str, listed: str) -> AsyncIterator[Lasting]:
    """``listed`` counts, as ``n``, the statements with the mark that the server runs."""
    async with opened(server, pool_size=1) as watching:
        yield Lasting(
            {"use": "main", "statement": f"{statement} /* {MARK} */"},
            lambda: _counted(watching, listed),
            _connector(server.kind, server.url),
            "SELECT 1 AS one",
        )


def in_postgres(server: Server) -> Any:
    listed = "SELECT count(*) AS n FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"
    return in_sql(server, "SELECT pg_sleep(600)", listed)


def in_mariadb(server: Server) -> Any:
    listed = "SELECT count(*) AS n FROM information_schema.processlist WHERE info LIKE %s AND id <> connection_id()"
    return in_sql(server, "SELECT SLEEP(600)", listed)


async def _counted(watching: Asking, listed: str) -> int:
    (row,) = (await watching.sql(listed, f"SELECT%{MARK}%")).rows
    return int(row["n"])


@asynccontextmanager
async def in_redis(server: Server) -> AsyncIterator[Lasting]:
    async with opened(server, pool_size=1) as watching:

        async def blocked() -> int:
            (row,) = (await watching.redis("INFO", "clients")).rows
            return int(row["value"].partition("blocked_clients:")[2].split()[0])

        tool = {"use": "main", "statement": f"BLPOP {MARK} 0"}
        yield Lasting(tool, blocked, _connector("redis", server.url), "ECHO 1")


@asynccontextmanager
async def in_sqlite(file: Path) -> AsyncIterator[Lasting]:
    """A file has no server: what runs is in the connector's threads."""
    with closing(file.open("ab")):
        pass

    async def executing() -> int:
        threads = {one.ident for one in threading.enumerate() if one.name.startswith("sqlite-main")}
        frames = [frame for ident, frame in sys._current_frames().items() if ident in threads]
        # In the C of a statement the innermost frame is who executes it; a thread that waits is in its pool's.
        return sum(Path(frame.f_code.co_filename).name == "sqlite.py" for frame in frames)

    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    yield Lasting(
        {"use": "main", "statement": endless}, executing, _connector("sqlite", str(file)), "SELECT 1 AS one"
    )


@asynccontextmanager
async def in_mongodb() -> AsyncIterator[Lasting]:
    async with lasting_server() as (server, url):

        async def lasting() -> int:
            return server.running

        tool = {"use": "main", "statement": '{"command": {"last": 1}}'}
        yield Lasting(tool, lasting, _connector("mongodb", url), '{"command": {"ping": 1}}')


@asynccontextmanager
async def in_processes(place: Path, source: str, reference: str) -> AsyncIterator[Lasting]:
    """A script and a child that it has."""
    path = place / reference.partition("#")[0]
    path.write_text(source)
    path.chmod(0o755)

    async def alive() -> int:
        return sum(_alive(place / name) for name in ("self.pid", "child.pid"))

    tool = {"handler": f"{place}/{reference}", "runtime": "subprocess"}
    yield Lasting(tool, alive, whole=2, patience=2.0)


def _alive(noted: Path) -> bool:
    text = noted.read_text() if noted.exists() else ""
    if not text.endswith("\n"):
        return False
    try:
        state = Path(f"/proc/{int(text)}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # dead, and whoever adopted it has not looked yet


def _connector(kind: str, url: str) -> dict[str, Any]:
    return {"connector": kind, "connection_string": url, "options": {"pool_size": 1}}
