"""The demo's shop: the rows that are generated for it, and the script among its tools."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from adapter.demo import TOOLS
from adapter.hosted.scripts.scripts import CodeLoader
from adapter.pipeline.call import Code
from adapter.rules.results.outcomes import Response, ToolUserError
from adapter.upstream.demo.shop import ORDERS, REGIONS, stock
from tests.hosted.serving import LOG


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite3"
    stock(path)
    return path


@pytest.fixture
def forecast() -> Iterator[Code]:
    scripts = CodeLoader(TOOLS / "forecast", LOG)
    yield scripts.script("handler.py")
    scripts.close()


def rows(database: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


def test_the_same_rows_everywhere(database: Path, tmp_path: Path) -> None:
    """Two places get the same shop, and a second start keeps the one that is there."""
    stock(tmp_path / "again")
    made = (tmp_path / "again").stat().st_mtime_ns
    for table in ("customers", "products", "orders", "order_lines"):
        assert rows(database, f"SELECT * FROM {table}") == rows(tmp_path / "again", f"SELECT * FROM {table}")
    stock(tmp_path / "again")
    assert (tmp_path / "again").stat().st_mtime_ns == made
    assert [entry.name for entry in tmp_path.iterdir()] == ["again"]


def test_the_rows_are_those_of_a_shop(database: Path) -> None:
    """Everything that is referred to is there, and what is on its way was ordered lately."""
    assert rows(database, "PRAGMA foreign_key_check") == []
    assert rows(database, "SELECT count(*) FROM orders") == [(ORDERS,)]
    assert rows(database, "SELECT count(*) FROM order_lines")[0][0] > ORDERS
    assert {region for (region,) in rows(database, "SELECT DISTINCT region FROM customers")} == {*REGIONS}
    [(least,)] = rows(
        database, "SELECT min(placed_on) FROM orders WHERE status IN ('open', 'paid', 'shipped')"
    )
    assert least > "2025-12-10"
    [(first, second)] = rows(database, "SELECT sum(placed_on < '2025'), sum(placed_on >= '2025') FROM orders")
    assert second > first > 0


async def test_a_forecast_goes_on_along_the_trend(forecast: Code) -> None:
    """It tells how far it is, and what it answers holds the figures, a chart and what to make of it."""
    told: list[float] = []

    async def tell(percent: float, message: str | None) -> None:
        told.append(percent)

    payload = {"inputs": {"figures": "1, 2, 3", "months": 2}}
    answer = await forecast.call(payload, None, 5.0, tell)
    assert isinstance(answer, Response)
    result = answer.build()
    assert result.data == {"forecast": [4.0, 5.0], "per_month": 1.0}
    assert [block["text"].partition("\n")[0] for block in result.content[1:]] == [
        '<ui_passthrough type="echarts" title="Forecast">',
        "<llm_directives>",
        "<action_suggestions>",
    ]
    assert told == [10, 50, 90]


@pytest.mark.parametrize(
    ("figures", "months", "said"),
    [
        ("1, two", 3, "numbers with commas"),
        ("1, inf", 3, "numbers with commas"),
        ("", 3, "numbers with commas"),
        ("1", 3, "at least two figures"),
        ("1, 2", 0, "between 1 and 24"),
        ("1, 2", 25, "between 1 and 24"),
    ],
)
async def test_a_forecast_of_nothing_is_refused(forecast: Code, figures: str, months: int, said: str) -> None:
    """With a sentence for the caller."""
    with pytest.raises(ToolUserError, match=said):
        await forecast.call({"inputs": {"figures": figures, "months": months}}, None, 5.0)
