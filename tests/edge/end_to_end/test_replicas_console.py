"""Callers of the HTTP API before several replicas: each request may meet another one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson

from adapter.relay.http_api.caller_session import table_of
from tests.edge.conftest import StartUpstream
from tests.edge.consoling import Shop, tool
from tests.edge.replicating import PATIENCE, Replica, Site, site

CONSOLE = {"enabled": True, "allow_execute": True}
TAB = {"x_adapter_session": "tab"}
TABLE = table_of("raw")


async def api_call(replica: Replica, tool: str) -> Any:
    """The result of a call without arguments."""
    async with replica.client() as client, asyncio.timeout(PATIENCE):
        head, body = await client.request("POST", b"{}", f"/explorer/raw/tools/{tool}/call", **TAB)
        assert head.status == 200, body
        return orjson.loads(body)


async def row_of(found: Site) -> Any:
    """The one row of callers."""
    (row,) = await found.memory.rows.scan(TABLE)
    return row


async def test_a_caller_has_one_process_behind_all_replicas(tmp_path: Path) -> None:
    """A server that is a process serves it where its session began, whichever replica is asked."""
    async with site(tmp_path, console=CONSOLE) as found:
        a, b = await found.start("a"), await found.start("b")
        for each in (a, b, b, a):
            assert (await api_call(each, "who"))["isError"] is False
            assert (a.processes, b.processes) == (1, 0)


async def test_a_session_that_was_left_ends_where_nobody_opened_the_console(
    tmp_path: Path, upstream: StartUpstream
) -> None:
    """Its replica has stopped; another one, whose console nobody has asked for, ends it when it is due."""
    async with (
        upstream(Shop(tool("weigh"))) as up,
        site(tmp_path, {"upstream": {"url": up.url}}, console=CONSOLE) as found,
    ):
        a, b = await found.start("a"), await found.start("b")
        await api_call(a, "weigh")
        await found.stop("a")
        (session,) = {each.head["mcp-session-id"] for each in up.calls("tools/call")}
        await b.app.cleanup.run_once()
        assert session in up.sessions
        row = await row_of(found)
        await found.memory.rows.put(TABLE, row.key, row.value, due=0.0)
        await b.app.cleanup.run_once()
        assert session not in up.sessions
        assert await found.memory.rows.scan(TABLE) == []


async def test_a_session_outlasts_a_cleanup_that_comes_seldom(tmp_path: Path) -> None:
    """Only the cleanup tells the others of a call that runs for long."""
    async with site(tmp_path, console=CONSOLE, core={"cleanup_interval_seconds": 3600}) as found:
        await api_call(await found.start("a"), "who")
        assert (await row_of(found)).due > time.time() + 3600
