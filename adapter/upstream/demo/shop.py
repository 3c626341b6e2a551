"""A generated shop in SQLite: the same rows on every machine, and nobody's real business.

Two years of orders, more of them towards the end. Its e-mail addresses and phone numbers are of ranges that are set
aside for examples.
"""

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

ORDERS = 2400

REGIONS = ("north", "east", "south", "west")

_LAST_DAY = date(2025, 12, 31)
_PLACES = ("Harbour", "Meadow", "Station", "Castle", "Bridge", "Garden", "Market", "Mill", "Orchard", "Park")
_BUSINESSES = ("Bakery", "Books", "Cafe", "Clinic", "Gallery", "Hostel", "Hotel", "Library", "Studio")
_MATERIALS = ("Ash", "Brass", "Cork", "Glass", "Linen", "Oak", "Steel", "Walnut")
_THINGS = {"Lantern": "lighting", "Stool": "seating", "Bench": "seating", "Box": "storage", "Tray": "table"}

_SETTLED = (*["delivered"] * 16, "returned", "cancelled", "overdue")

_SCHEMA = """
CREATE TABLE customers (
    code TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    email TEXT NOT NULL,
    phone TEXT NOT NULL,
    customer_since TEXT NOT NULL
) STRICT;
CREATE TABLE products (
    sku TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    stock INTEGER NOT NULL
) STRICT;
CREATE TABLE orders (
    number TEXT PRIMARY KEY,
    customer TEXT NOT NULL REFERENCES customers (code),
    placed_on TEXT NOT NULL,
    status TEXT NOT NULL
) STRICT;
CREATE TABLE order_lines (
    order_number TEXT NOT NULL REFERENCES orders (number),
    line INTEGER NOT NULL,
    sku TEXT NOT NULL REFERENCES products (sku),
    quantity INTEGER NOT NULL,
    unit_cents INTEGER NOT NULL,
    PRIMARY KEY (order_number, line)
) STRICT, WITHOUT ROWID;
CREATE INDEX orders_by_customer ON orders (customer, placed_on);
"""


_ORDERS = """
SELECT o.number, o.customer, c.name, o.placed_on, sum(l.quantity), sum(l.quantity * l.unit_cents), o.status
FROM orders o JOIN customers c ON c.code = o.customer JOIN order_lines l ON l.order_number = o.number
WHERE c.code = :customer OR instr(lower(c.name), lower(:customer)) > 0
GROUP BY o.number ORDER BY o.placed_on DESC, o.number DESC LIMIT :limit
"""
_MONTHS_SOLD = """
SELECT substr(o.placed_on, 1, 7), count(DISTINCT o.number), sum(l.quantity * l.unit_cents)
FROM orders o JOIN order_lines l ON l.order_number = o.number GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Order:
    """``placed_on`` is an ISO date, ``pieces`` and ``total_cents`` are of the whole order."""

    number: str
    customer: str
    customer_name: str
    placed_on: str
    pieces: int
    total_cents: int
    status: str


@dataclass(frozen=True, slots=True)
class Month:
    """``month`` is ``YYYY-MM``."""

    month: str
    orders: int
    total_cents: int


class OrderBook:
    """The orders of a shop's database, which is made where it is missing.

    Every method opens its own read-only connection, so any thread may call it.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        stock(database)

    def of_customer(self, customer: str, limit: int) -> list[Order]:
        """The customer's newest orders, at most ``limit``. ``customer`` is a code, or a part of the name."""
        return [Order(*row) for row in self._rows(_ORDERS, {"customer": customer, "limit": limit})]

    def months(self) -> list[Month]:
        """The orders of each month, oldest first."""
        return [Month(*row) for row in self._rows(_MONTHS_SOLD, {})]

    def _rows(self, statement: str, values: dict[str, str | int]) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, values).fetchall()


def stock(database: Path) -> None:
    """Make the shop's database, unless the file is there."""
    if database.exists():
        return
    # Written beside and renamed: a start that is cut short leaves no half-filled database to be reused.
    unfinished = database.with_name(f"{database.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as connection, connection:
        connection.executescript(_SCHEMA)
        _fill(connection, random.Random(1962))  # noqa: S311 - sample rows, the same everywhere; nothing secret
    unfinished.rename(database)


def _fill(connection: sqlite3.Connection, dice: random.Random) -> None:
    names = list(product(_PLACES, _BUSINESSES))
    for number, (place, business) in enumerate(names, start=1):
        connection.execute(
            "INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)",
            (
                f"C-{number:03}",
                f"{place} {business}",
                dice.choice(REGIONS),
                f"office@{place}-{business}.example".lower(),
                f"+44 20 7946 0{number:03}",
                (date(2015, 1, 1) + timedelta(days=dice.randrange(3_200))).isoformat(),
            ),
        )
    prices: dict[str, int] = {}
    for number, (thing, material) in enumerate(product(_THINGS, _MATERIALS), start=1):
        sku, price = f"P-{number:03}", 100 * dice.randint(15, 450) - 10
        row = (sku, f"{material} {thing}", _THINGS[thing], price, dice.randrange(60))
        connection.execute("INSERT INTO products VALUES (?, ?, ?, ?, ?)", row)
        prices[sku] = price
    # More towards the end, as in a shop that grows.
    days = sorted(_LAST_DAY - timedelta(days=int(730 * dice.random() ** 1.3)) for _ in range(ORDERS))
    for number, placed_on in enumerate(days, start=1):
        order, lately = f"O-{number:05}", (_LAST_DAY - placed_on).days < 21
        status = dice.choice(("open", "paid", "shipped") if lately else _SETTLED)
        customer = f"C-{1 + int(len(names) * dice.random() ** 2.5):03}"
        row_of_order = (order, customer, placed_on.isoformat(), status)
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", row_of_order)
        for line, sku in enumerate(dice.sample([*prices], dice.randint(1, 4)), start=1):
            row_of_line = (order, line, sku, dice.randint(1, 6), prices[sku])
            connection.execute("INSERT INTO order_lines VALUES (?, ?, ?, ?, ?)", row_of_line)
