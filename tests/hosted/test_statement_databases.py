"""The databases of a configuration are opened together or not at all, and one that is away is asked for again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from adapter.hosted.connectors.port import ConnectorFailed, Rows
from adapter.hosted.statement import Database, opened
from adapter.rules.statements.statements import Bound, Kind
from tests.hosted.serving import LOG

BOUND = Bound("SELECT 1", ())


@dataclass
class Scripted:
    """A connector that opens as it is told, and notes what was asked of it."""

    name: str = "main"
    kind: Kind = "sqlite"
    there: bool = True
    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def open(self) -> None:
        self.asked.append("open")
        self.began.set()
        await self.go.wait()
        if not self.there:
            raise ConnectorFailed(f"{self.name} is away")

    async def close(self) -> None:
        self.asked.append("close")

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        self.asked.append(f"{bound.text} in {timeout:g} s")
        return Rows([{"max": max_rows}])


def scripted(name: str = "main", *, there: bool = True) -> Scripted:
    """One whose server answers at once."""
    connector = Scripted(name, there=there)
    connector.go.set()
    return connector


def database(connector: Scripted, timeout: float = 5, *, required: bool = True) -> Database:
    return Database(connector, timeout=timeout, max_rows=7, required=required)


async def test_all_are_open_while_the_block_lasts() -> None:
    """Each is opened once and closed once, and statements keep to its limit of rows."""
    connectors = [scripted("one"), scripted("two")]
    databases = [database(connector) for connector in connectors]
    async with opened(databases, LOG):
        assert (await databases[0].run(BOUND, 2)).rows == [{"max": 7}]
    assert connectors[0].asked == ["open", "SELECT 1 in 2 s", "close"]
    assert connectors[1].asked == ["open", "close"]


async def test_one_that_is_away_leaves_none_open() -> None:
    """The reasons of all are told in one line."""
    connectors = [scripted("one"), scripted("two", there=False), scripted("three", there=False)]
    with pytest.raises(ConnectorFailed, match=r"^two is away; three is away$"):
        async with opened([database(connector) for connector in connectors], LOG):
            pass
    assert [connector.asked for connector in connectors] == [["open", "close"]] * 3


async def test_one_that_never_answers_is_away() -> None:
    """After the time that its statements have."""
    silent = Scripted()
    with pytest.raises(ConnectorFailed, match=r"connector 'main' \(sqlite\): no answer within 0.01 s"):
        await database(silent, timeout=0.01).open()
    assert silent.asked == ["open", "close"]


async def test_all_who_ask_wait_for_one_attempt() -> None:
    """Or each would wait for those before it; whoever leaves takes nothing from the others."""
    connector = Scripted()
    away = database(connector, required=False)
    asking = [asyncio.create_task(away.run(BOUND, 2)) for _ in range(3)]
    await connector.began.wait()
    asking[0].cancel()
    await asyncio.wait(asking[:1])
    connector.go.set()
    assert [len((await one).rows) for one in asking[1:]] == [1, 1]
    assert connector.asked.count("open") == 1
    await away.close()


async def test_an_attempt_ends_with_the_adapter() -> None:
    """Nothing is left that would open a connection later."""
    connector = Scripted()
    away = database(connector, required=False)
    asking = asyncio.create_task(away.run(BOUND, 2))
    await connector.began.wait()
    await away.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ConnectorFailed, match="is closed"):
        await away.run(BOUND, 2)
    assert connector.asked == ["open", "close"]
