"""Workers and servers that are processes: a session is served by the one that has it, whichever worker is asked."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.e2e.supervised import PATIENCE, Supervised, supervised
from tests.edge.raw import RawClient
from tests.edge.replicating import call, child_server

CONNECTIONS = 12


async def pids(one: Supervised, session: str | None, number: int) -> set[Any]:
    """The child that answered, on many connections."""
    found = set()
    for place in range(CONNECTIONS):
        client = RawClient(one.port)
        client.session = session
        async with client:
            found.add((await call(client, "who", 100 * number + place))["result"]["pid"])
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
        (before,) = await pids(one, session, 1)
        await one.until(lambda: len({line["worker"] for line in one.logged("exchange")}) > 1)
        owner = worker_of(before, one.workers)
        os.kill(owner, signal.SIGKILL)
        await one.until(lambda: owner not in one.workers)
        async with asyncio.timeout(PATIENCE):
            (after,) = await pids(one, session, 2)
            assert after != before
            await one.serving(4)
            assert await pids(one, session, 3) == {after}
