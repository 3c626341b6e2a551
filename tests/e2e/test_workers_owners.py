"""Workers and servers that are processes: a session is served by the one that has it, whichever worker is asked."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from pathlib import Path
from typing import Any

from tests.e2e.supervised import PATIENCE, Supervised, supervised
from tests.edge.raw import RawClient
from tests.edge.replicating import call, child_server

CONNECTIONS = 12


async def pid(one: Supervised, session: str | None, number: int) -> Any:
    """The child that answers a call on a connection of its own."""
    client = RawClient(one.port)
    client.session = session
    async with client:
        return (await call(client, "who", number))["result"]["pid"]


async def pids(one: Supervised, session: str | None, number: int) -> set[Any]:
    """The child that answered, on many connections."""
    return {await pid(one, session, 100 * number + place) for place in range(CONNECTIONS)}


async def pids_by_many(one: Supervised, session: str | None) -> set[Any]:
    """The same, on as many connections as it takes until two workers have got some."""
    found = await pids(one, session, 1)
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count(1000):
            if len({line["worker"] for line in one.logged("exchange")}) > 1:
                break
            found.add(await pid(one, session, number))
    return found


def worker_of(child: int, workers: list[int]) -> int:
    """The worker above a process."""
    while child not in workers:
        child = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    return child


async def test_a_session_has_one_process_behind_all_workers(tmp_path: Path) -> None:
    """Killed with its worker it is started again by another one, and killed by nobody it stays."""
    async with supervised(tmp_path, workers=3, access_log=True, server=child_server(tmp_path)) as one:
        async with RawClient(one.port) as opener:
            await opener.initialize()
            session = opener.session
        (before,) = await pids_by_many(one, session)
        owner = worker_of(before, one.workers)
        os.kill(owner, signal.SIGKILL)
        await one.until(lambda: owner not in one.workers)
        async with asyncio.timeout(PATIENCE):
            (after,) = await pids(one, session, 2)
            assert after != before
            await one.serving(4)
            assert await pids(one, session, 3) == {after}
