"""Listeners of a store: each is told, whatever another one does."""

from __future__ import annotations

import asyncio
from operator import methodcaller
from typing import Any

from adapter.state.port import tell_all


class Ear:
    """A listener that notes that it was told, and may fail then."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self.told = 0

    def row_changed(self, table: str, key: str) -> None:
        raise AssertionError(table, key)

    def rows_unknown(self) -> None:
        self.told += 1
        if self._fails:
            raise ValueError("a fault of its own")

    def announced(self, topic: str, body: bytes) -> None:
        raise AssertionError(topic, body)


async def test_a_listener_that_fails_makes_no_other_deaf() -> None:
    """The failure is reported, once."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    ears = [Ear(fails=True), Ear(fails=False)]
    tell_all(ears, methodcaller("rows_unknown"))
    assert [ear.told for ear in ears] == [1, 1]
    assert [str(report["exception"]) for report in reports] == ["a fault of its own"]
