"""Statements whose results are kept: a hit is what the database said, and nobody's rows are another's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter import log
from adapter.hosted.connectors import connector_for
from adapter.hosted.statement import TRUNCATED_KEY, Database, ResultKeeper, StatementRunner
from adapter.pipeline.call import AuthRequest, Context, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.result_cache import ResultCache
from adapter.pipeline.tracing import CACHE
from adapter.rules.access.principals import NOBODY
from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import compile_statement

LONG = 2**62 + 1
STATEMENT = (
    "SELECT {{ inputs.name }} AS name, 4611686018427387905 AS long, 0.5 AS half UNION ALL SELECT 'b', 2, NULL"
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    connector = connector_for("sqlite", "shop", ":memory:", {}, base=tmp_path)
    database = Database(connector, timeout=5, max_rows=1, required=True)
    await database.open()
    yield database
    await database.close()


def asking(database: Database, *, kept: bool) -> StatementRunner:
    inputs = {"name": Input("string")}
    keeping = ResultKeeper(ResultCache(1 << 20, time.monotonic), 60, lambda _: []) if kept else None
    statement = compile_statement(STATEMENT, "sqlite", inputs, lambda _: None)
    return StatementRunner("find", statement, database, 5, keeping, "message", log.get_logger("test"))


async def asked(ask: StatementRunner, name: str = "ann") -> tuple[Outcome, str | None]:
    """The outcome of a call, and whether it was kept already."""
    context = Context.of(AuthRequest.of("shop", "find", NOBODY))
    call = PlannedCall("shop", "find", {"name": name}, ask, context)
    outcome = await ask(call)
    return outcome, call.notes.get(CACHE)


async def test_a_hit_is_equal_to_what_is_not_kept(database: Database) -> None:
    """In what is sent, in what mappers and presenters see, and in the word that there are more rows."""
    plain, _ = await asked(asking(database, kept=False))
    ask = asking(database, kept=True)
    for word in ("miss", "hit", "hit"):
        outcome, how = await asked(ask)
        assert how == word
        assert outcome.result == plain.result
        assert outcome.payload == plain.payload == [{"name": "ann", "long": LONG, "half": 0.5}]
        assert outcome.result["_meta"] == {TRUNCATED_KEY: {"max_rows": 1}}
    assert (await asked(ask, "bob"))[1] == "miss"


async def test_the_rows_of_a_hit_are_its_own(database: Database) -> None:
    """Whatever is done to what one call was given, the next is given what the database said."""
    ask = asking(database, kept=True)
    for _ in range(3):
        outcome, _ = await asked(ask)
        assert outcome.payload[0]["name"] == "ann"
        outcome.payload[0]["name"] = "changed"
        outcome.result["content"][0]["text"] = "changed"
