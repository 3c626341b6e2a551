"""Scenarios that every server is asked to play; a test says in which words of its server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed, QueryFailed, QueryTimedOut
from tests.hosted.databases import Server
from tests.hosted.stating import Asking, opened
from tests.waiting import until

GOOD = {"mysql": "SELECT 1", "postgres": "SELECT 1", "redis": "PING"}


async def still_answers(database: Asking) -> None:
    """Ask for one row, and get it."""
    assert (await database.sql("SELECT 1 AS one")).rows == [{"one": 1}]


async def answers(database: Asking) -> bool:
    """Tell whether the server can be asked, for a wait until it can."""
    try:
        await database.ask(GOOD[database.connector.kind])
    except QueryFailed:
        return False
    return True


async def writes_and_shows_rows(database: Asking, insert: str, update: str, value: str) -> None:
    """``insert`` takes two names and returns its rows; ``update`` writes ``value`` into all of them."""
    inserted = await database.sql(insert, "Ada", "Alan")
    assert inserted.rows == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Alan"}]
    updated = await database.sql(update, value)
    assert (updated.rows, updated.affected) == ([{"rows_affected": 2}], 2)
    assert (await database.sql("SELECT id FROM people WHERE id = 9")).rows == []


async def crowds_a_pool_of_two(small: Asking, numbered: str, endless: str) -> None:
    """Ten calls get their own numbers; beside two that do not end a third one waits too long."""
    answers = await asyncio.gather(*(small.ask(numbered, n) for n in range(10)))
    assert [str([*answer.rows[0].values()][-1]) for answer in answers] == [str(n) for n in range(10)]
    busy = [asyncio.create_task(small.ask(endless)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QueryTimedOut):
        await small.ask(GOOD[small.connector.kind], timeout=0.2)
    for call in busy:
        call.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def sends_a_thousand(leaky: Asking) -> None:
    """Statements that are good, bad and cancelled, a hundred at once."""
    good = GOOD[leaky.connector.kind]
    for _ in range(10):
        calls = [asyncio.create_task(leaky.ask(good if n % 7 else "SELEC")) for n in range(100)]
        await asyncio.sleep(0)
        for call in calls[::10]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert await answers(leaky)


async def loses_its_server(
    server: Server, database: Asking, endless: str, runs: Callable[[Asking], Awaitable[bool]]
) -> None:
    """The call of that time fails, and so does the next; after the start calls are answered."""
    call = asyncio.create_task(database.ask(endless))
    async with opened(server) as watching:
        await until(lambda: runs(watching))
    server.stop()
    with pytest.raises(QueryFailed):
        await call
    with pytest.raises(QueryFailed, match="nothing listens at the configured address"):
        await database.ask(GOOD[server.kind])
    server.start()
    await until(lambda: answers(database))


async def cannot_open(kind: str, wrong: Mapping[str, str]) -> None:
    """Each connection string of ``wrong`` fails with its reason and nothing else."""
    for url, why in wrong.items():
        with pytest.raises(ConnectorFailed) as failure:
            await connector_for(kind, "main", url).open()
        assert str(failure.value) == f"connector 'main' ({kind}): {why}"
