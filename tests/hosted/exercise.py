"""Calls of every kind to hosted tools of a running adapter, and what it holds between them.

Statements, scripts in process and in processes of their own, failures, timeouts, and streams with progress. It runs in
the process of the test, so that its tasks and threads can be counted too; what the clients hold is in the numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.app import App, build, running
from adapter.hosted.scripts.inprocess import IDLE_AT_MOST
from adapter.settings.root import Settings
from tests.bench.load import Address, Client
from tests.bench.process import open_descriptors
from tests.plans import plans_of

AT_ONCE = 8
WARM_UP = 600
"""Calls before the first reading: they fill pools, caches and arenas."""

SLACK_OBJECTS = 400
"""Objects that come and go: entries of caches that are not full, counters of the driver."""

POOLS = {"script": IDLE_AT_MOST, "sqlite": 5, "asyncio": min(32, (os.cpu_count() or 1) + 4)}
"""Threads that each pool may keep for the next call, by how their names begin: a pool starts one where all that it has
are at work, which may happen at any time."""

SETTLE = 10.0
"""Seconds in which what was cancelled has to have ended."""

SCRIPTS = """
import asyncio

from adapter.api import ToolUserError, progress


def add(payload):
    return payload["inputs"]["n"] + 1


async def later(payload):
    await asyncio.sleep(0)
    return {"n": payload["inputs"]["n"]}


async def steps(payload):
    for percent in (10, 50, 90):
        yield progress(percent, "on the way")
    yield "there"


def wrong(payload):
    raise ToolUserError("Pick another day.")


def broken(payload):
    raise RuntimeError("password=hunter2")


async def wait(payload):
    await asyncio.Event().wait()
"""

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def settings(place: Path) -> Settings:
    """Hosted tools over a database of SQLite's, both of them made in ``place``."""
    (place / "scripts.py").write_text(SCRIPTS)
    (place / "program.sh").write_text("#!/bin/sh\nread line\necho '\"done\"'\n")
    (place / "program.sh").chmod(0o755)
    with contextlib.closing(sqlite3.connect(place / "app.db")) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        rows = ((number, f"person {number}") for number in range(200))
        database.executemany("INSERT INTO people VALUES (?, ?)", rows)
    number = {"n": {"type": "int"}}
    one = "SELECT id, name FROM people WHERE id = {{ inputs.n }}"
    connector = {"name": "main", "connector": "sqlite", "connection_string": str(place / "app.db")}
    tools: list[dict[str, Any]] = [
        {"name": "row", "use": "main", "statement": one, "inputs": number},
        {"name": "kept", "use": "main", "statement": one, "inputs": number, "cache": {"enabled": True}},
        {"name": "nowhere", "use": "main", "statement": "SELECT * FROM nowhere"},
        {"name": "endless", "use": "main", "statement": ENDLESS, "limits": {"timeout": 0.01}},
        {"name": "program", "handler": f"{place}/program.sh", "runtime": "subprocess"},
        {"name": "late", "handler": f"{place}/scripts.py#wait", "limits": {"timeout": 0.01}},
        *(
            {"name": name, "handler": f"{place}/scripts.py#{name}", "inputs": inputs}
            for name, inputs in (("add", number), ("later", number), ("steps", {}))
        ),
        *({"name": name, "handler": f"{place}/scripts.py#{name}"} for name in ("broken", "wrong")),
    ]
    return Settings.model_validate(
        {
            "core": {"port": 0, "shutdown_grace_seconds": 0, "log_level": "error"},
            "storage": {"root": str(place / "data")},
            "connectors": [connector],
            "servers": [
                {
                    "id": "bench",
                    "mount_path": "/mcp",
                    "upstream": {"transport": "hosted"},
                    "tools": {"define": tools},
                }
            ],
        }
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """What this process holds between calls. ``threads`` are those that this run started, without what POOLS may keep.

    ``running`` are calls whose tool has not ended, ``left_over`` threads of scripts that were given up.
    """

    objects: int
    descriptors: int
    threads: int
    tasks: int
    sessions: int
    running: int
    left_over: int

    def quiet_after(self, before: Holding) -> bool:
        """Whether nothing is going on that was not before."""
        return (
            self.tasks <= before.tasks
            and self.descriptors <= before.descriptors
            and self.sessions <= before.sessions
            and self.threads <= before.threads
            and self.running == self.left_over == 0
        )


class Exercise:
    """Calls of every kind to a running adapter, in a fixed order."""

    def __init__(self, app: App, port: int, older: Set[threading.Thread]) -> None:
        self._app = app
        self._older = older
        self._address = Address(port, "/mcp")
        self._kinds: tuple[Callable[[Client, int], Awaitable[None]], ...] = (
            *(_calling("row", n=True) for _ in range(4)),
            *(_calling("add", n=True) for _ in range(4)),
            *(_calling("later", n=True) for _ in range(2)),
            *(_calling("kept", n=True) for _ in range(2)),
            *(_calling(name) for name in ("steps", "steps", "nowhere", "wrong", "broken", "row", "late")),
            _calling("endless"),
        )

    async def calls(self, number: int) -> None:
        """That many, spread over sessions that end with them."""

        async def share(first: int) -> None:
            client = await Client.connect(self._address)
            await client.initialize()
            for turn in range(first, number, AT_ONCE):
                # A process takes a thousand times as long as a row, so one in a hundred calls is one.
                kind = _calling("program") if turn % 100 == 99 else self._kinds[turn % len(self._kinds)]
                await kind(client, turn)
            await client.delete()
            client.close()

        await asyncio.gather(*(share(first) for first in range(AT_ONCE)))

    async def holding(self, before: Holding | None = None) -> Holding:
        """What is held now, or as soon as it is no more than ``before``, or when SETTLE is over."""
        deadline = asyncio.get_running_loop().time() + SETTLE
        while True:
            await asyncio.sleep(0.05)
            gc.collect()
            found = self._found()
            wanted = found if before is None else before
            if found.quiet_after(wanted) or asyncio.get_running_loop().time() > deadline:
                return found

    def _found(self) -> Holding:
        me, hosting = os.getpid(), plans_of(self._app)
        upstream = hosting.servers["bench"]
        sessions = re.search(r"(\d+) sessions", repr(upstream))
        assert sessions is not None
        return Holding(
            len(gc.get_objects()),
            open_descriptors([me]),
            threads_beyond_pools(set(threading.enumerate()) - self._older),
            len(asyncio.all_tasks()),
            int(sessions[1]),
            upstream.server.running,
            hosting.planning.loading.workers.leftover,
        )


def threads_beyond_pools(threads: Set[threading.Thread]) -> int:
    """The number of threads that are of no pool, or more than their pool may keep."""
    kinds = Counter(re.split("[^a-z]", thread.name)[0] for thread in threads)
    return sum(max(0, number - POOLS.get(kind, 0)) for kind, number in kinds.items())


def _calling(tool: str, *, n: bool = False) -> Callable[[Client, int], Awaitable[None]]:
    async def call(client: Client, turn: int) -> None:
        await client.call(tool, **({"n": turn % 150} if n else {}))

    return call


@contextlib.asynccontextmanager
async def exercising(place: Path) -> AsyncIterator[Exercise]:
    """An adapter to be called, warmed up."""
    older = set(threading.enumerate())
    async with running(app := build(settings(place))) as (_, port):
        exercise = Exercise(app, port, older)
        await exercise.calls(WARM_UP)
        yield exercise
