"""A generated shop in SQLite: the same rows on every machine, and nobody's real business.

Two years of orders, with a trend, a season before the turn of the year, and few customers who buy most. Its e-mail
addresses and phone numbers are of ranges that are set aside for examples.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

ORDERS = 2400

REGIONS = ("north", "east", "south", "west")

_LAST_DAY = date(2025, 12, 31)
_MONTHS = 24
_SEASON = (0.8, 0.8, 0.9, 1.0, 1.0, 1.0, 0.9, 0.85, 1.0, 1.1, 1.4, 1.7)
_GROWTH = 0.03
"""The part of the first month's orders by which each month has more than the one before it."""

_PLACES = (
    *("Harbour", "Meadow", "Station", "Castle", "Bridge", "Garden", "Market", "Mill", "Orchard", "Park"),
    *("Quarry", "River", "School", "Tower", "Valley", "Village", "Abbey", "Canal", "Forge", "Lake"),
)
_BUSINESSES = (
    *("Bakery", "Books", "Cafe", "Clinic", "Gallery", "Hostel", "Hotel", "Library", "Museum", "Studio"),
    *("Theatre", "Workshop"),
)
_MATERIALS = {
    "Ash": 1.0,
    "Brass": 1.6,
    "Cork": 0.7,
    "Glass": 1.2,
    "Linen": 0.9,
    "Oak": 1.4,
    "Steel": 1.1,
    "Walnut": 1.8,
}
_THINGS = {
    "Desk Lamp": ("lighting", 4_900),
    "Floor Lamp": ("lighting", 11_900),
    "Lantern": ("lighting", 3_400),
    "Armchair": ("seating", 24_900),
    "Stool": ("seating", 6_900),
    "Bench": ("seating", 17_900),
    "Shelf": ("storage", 8_900),
    "Cabinet": ("storage", 32_900),
    "Box": ("storage", 1_900),
    "Tray": ("table", 2_400),
    "Side Table": ("table", 12_900),
    "Table": ("table", 44_900),
}

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


class _Product(NamedTuple):
    sku: str
    name: str
    category: str
    price_cents: int
    stock: int


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
    customers = list(_customers(dice))
    products = list(_products(dice))
    connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", customers)
    connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?)", products)
    for number, placed_on in enumerate(_days(dice), start=1):
        order = f"O-{number:05}"
        # The power leans towards the first: few customers place most orders, as in any shop.
        customer = customers[int(len(customers) * dice.random() ** 2.5)][0]
        row = (order, customer, placed_on.isoformat(), _status(placed_on, dice))
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", row)
        connection.executemany(
            "INSERT INTO order_lines VALUES (?, ?, ?, ?, ?)", _lines(order, products, dice)
        )


def _customers(dice: random.Random) -> Iterator[tuple[str, ...]]:
    names = list(product(_PLACES, _BUSINESSES))
    dice.shuffle(names)
    for number, (place, business) in enumerate(names, start=1):
        yield (
            f"C-{number:03}",
            f"{place} {business}",
            dice.choice(REGIONS),
            f"office@{place}-{business}.example".lower(),
            f"+44 20 7946 0{number:03}",
            (date(2015, 1, 1) + timedelta(days=dice.randrange(3_200))).isoformat(),
        )


def _products(dice: random.Random) -> Iterator[_Product]:
    numbers = count(1)
    for (thing, (category, cents)), (material, dearness) in product(_THINGS.items(), _MATERIALS.items()):
        price = round(cents * dearness * dice.uniform(0.9, 1.1), -2) - 10
        yield _Product(
            f"P-{next(numbers):03}", f"{material} {thing}", category, int(price), dice.randrange(60)
        )


def _days(dice: random.Random) -> list[date]:
    """The day of each order, in order: more towards the end, and most before the turn of a year."""
    weights = [(1 + _GROWTH * month) * _SEASON[month % 12] for month in range(_MONTHS)]
    first_year = _LAST_DAY.year - _MONTHS // 12 + 1
    months = dice.choices(range(_MONTHS), weights, k=ORDERS)
    return sorted(date(first_year + month // 12, month % 12 + 1, dice.randint(1, 28)) for month in months)


def _status(placed_on: date, dice: random.Random) -> str:
    """The last weeks' orders are on their way; what is older has come to its end."""
    if (_LAST_DAY - placed_on).days < 21:
        return dice.choice(("open", "paid", "shipped"))
    return dice.choices(("delivered", "returned", "cancelled", "overdue"), (88, 5, 5, 2))[0]


def _lines(
    order: str, products: list[_Product], dice: random.Random
) -> Iterator[tuple[str, int, str, int, int]]:
    chosen = dice.sample(products, dice.choices((1, 2, 3, 4), (4, 3, 2, 1))[0])
    for line, bought in enumerate(chosen, start=1):
        yield order, line, bought.sku, min(int(dice.paretovariate(1.2)), 24), bought.price_cents
