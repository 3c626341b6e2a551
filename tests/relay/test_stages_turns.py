"""Large answers in their stages, while the loop looks after others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from adapter.relay.replies import LARGE
from adapter.relay.stages import Call, Stage, walk_response


class Noting:
    """A stage that notes in which turn of the loop it had an answer."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self._turn = 0

    async def count(self) -> None:
        """Count the turns of the loop."""
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def answer(self, call: Any, response: bytes) -> bytes:
        self.turns.append(self._turn)
        return response


@pytest.mark.parametrize(("size", "turns"), [(LARGE + 1, 8), (LARGE, 1)], ids=["large", "small"])
async def test_large_answers_that_come_together_share_no_turn(size: int, turns: int) -> None:
    """Each takes milliseconds for a megabyte; small ones do not wait for one another."""
    noting = Noting()
    counting = asyncio.create_task(noting.count())
    await asyncio.sleep(0)
    stages, call = cast(list[Stage], [noting, noting]), cast(Call, None)
    await asyncio.gather(*(walk_response(stages, call, b"x" * size) for _ in range(4)))
    counting.cancel()
    assert len(noting.turns) == 8
    assert len(set(noting.turns)) == turns
