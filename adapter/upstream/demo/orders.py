"""A generated order book in SQLite: the same rows on every machine, and nobody's real business."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any

CUSTOMERS = 120
ORDERS = 3000

_FIRST_DAY, _DAYS = date(2025, 1, 1), 365
_COLOURS = (
    "Amber",
    "Cobalt",
    "Crimson",
    "Indigo",
    "Ivory",
    "Jade",
    "Ochre",
    "Russet",
    "Slate",
    "Teal",
    "Umber",
    "Violet",
)
_TRADES = (
    "Bearings",
    "Castings",
    "Fasteners",
    "Fittings",
    "Gaskets",
    "Hinges",
    "Pumps",
    "Seals",
    "Springs",
    "Valves",
)
_REGIONS = ("north", "east", "south", "west")
_STATES = ("open", "packed", "shipped", "shipped", "shipped", "returned")

_SCHEMA = """
CREATE TABLE customers (code TEXT PRIMARY KEY, name TEXT NOT NULL, region TEXT NOT NULL) STRICT;
CREATE TABLE orders (
    number TEXT PRIMARY KEY,
    customer TEXT NOT NULL REFERENCES customers (code),
    placed_on TEXT NOT NULL,
    article TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    unit_cents INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE INDEX orders_by_customer ON orders (customer, placed_on);
"""


@dataclass(frozen=True, slots=True)
class Order:
    """``placed_on`` is an ISO date, ``total_cents`` the whole order."""

    number: str
    customer: str
    customer_name: str
    placed_on: str
    article: str
    quantity: int
    total_cents: int
    state: str


@dataclass(frozen=True, slots=True)
class Month:
    """``month`` is ``YYYY-MM``."""

    month: str
    orders: int
    total_cents: int


class OrderBook:
    """Every method opens its own read-only connection, so any thread may call it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        if not database.exists():
            _generate(database)

    def of_customer(self, customer: str, limit: int) -> list[Order]:
        """The customer's newest orders, at most ``limit``. ``customer`` is a code, or a part of the name."""
        rows = self._rows(
            "SELECT o.number, o.customer, c.name, o.placed_on, o.article, o.quantity,"
            " o.quantity * o.unit_cents, o.state FROM orders o JOIN customers c ON c.code = o.customer"
            " WHERE c.code = :customer OR instr(lower(c.name), lower(:customer)) > 0"
            " ORDER BY o.placed_on DESC, o.number DESC LIMIT :limit",
            {"customer": customer, "limit": limit},
        )
        return [Order(*row) for row in rows]

    def months(self) -> list[Month]:
        """The orders of each month, oldest first."""
        rows = self._rows(
            "SELECT substr(placed_on, 1, 7), count(*), sum(quantity * unit_cents)"
            " FROM orders GROUP BY 1 ORDER BY 1",
            {},
        )
        return [Month(*row) for row in rows]

    def _rows(self, statement: str, values: dict[str, str | int]) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, values).fetchall()


def _generate(database: Path) -> None:
    # Written beside and renamed: a start that is cut short leaves no half-filled database to be reused.
    unfinished = database.with_name(f"{database.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as connection, connection:
        connection.executescript(_SCHEMA)
        _fill(connection, random.Random(2025))  # noqa: S311 - sample rows, the same everywhere; nothing secret
    unfinished.rename(database)


def _fill(connection: sqlite3.Connection, dice: random.Random) -> None:
    names = [f"{colour} {trade}" for colour, trade in product(_COLOURS, _TRADES)]
    customers = [
        (f"C-{n:04}", name, dice.choice(_REGIONS)) for n, name in enumerate(names[:CUSTOMERS], start=1)
    ]
    connection.executemany("INSERT INTO customers VALUES (?, ?, ?)", customers)
    prices = {f"A-{n:03}": dice.randrange(150, 24_000) for n in range(1, 81)}
    articles = sorted(prices)
    for n in range(1, ORDERS + 1):
        article = dice.choice(articles)
        # Few customers place most orders, as in any order book.
        customer = customers[min(int(dice.paretovariate(0.9)) - 1, CUSTOMERS - 1)][0]
        placed_on = _FIRST_DAY + timedelta(days=dice.randrange(_DAYS))
        row = (f"O-{n:05}", customer, placed_on.isoformat(), article, dice.randrange(1, 60), prices[article])
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, dice.choice(_STATES)))
