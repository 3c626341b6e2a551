"""Large answers in their stages, while the loop looks after others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from adapter.errors import AnswerTooLarge
from adapter.relay.replies import LARGE, LONG, long_response_to
from adapter.relay.stages import Call, CallOrigin, Stage, walk_response
from adapter.rules.access.principals import Scope
from adapter.wire.envelope import Envelope, parse, read_envelope
from adapter.wire.long_messages import MOST_VALUES


class Noting:
    """A stage that notes in which turn of the loop it had an answer."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.turn = 0

    async def count(self) -> None:
        """Count the turns of the loop."""
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def answer(self, call: Any, response: bytes) -> bytes:
        self.turns.append(self.turn)
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


def long_answer(inside: bytes) -> bytes:
    """A response to request 1 with this text."""
    return b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"%b"}]}}' % inside


async def test_a_long_answer_is_parsed_over_many_turns() -> None:
    """Others have theirs meanwhile, and the outcome is the one of a parser that takes it at once."""
    noting = Noting()
    counting = asyncio.create_task(noting.count())
    body = long_answer(b"line\\n" * (4 << 20))
    assert await long_response_to(body, 1) == parse(body)
    counting.cancel()
    assert noting.turn > 5
    assert await long_response_to(body, 2) is None
    assert await long_response_to(body[:-1], 1) is None


async def test_a_long_answer_of_too_many_values_is_refused() -> None:
    """The collector would look at all of them at once; the refusal says how many may come."""
    body = b'{"jsonrpc":"2.0","id":1,"result":{"x":[%b]}}' % b",".join([b"10"] * (MOST_VALUES + 1))
    with pytest.raises(AnswerTooLarge, match=f"{len(body)} bytes and more than the {MOST_VALUES} values"):
        await long_response_to(body, 1)


class Editing:
    """A stage that puts another text into an answer, and says whether it was parsed when it came."""

    parsed: bool

    async def answer(self, call: Call, response: bytes) -> bytes:
        assert call.came is not None
        self.parsed = call.came[0] is response and call.parsed(response) == parse(response)
        return long_answer(b"y" * LONG)


async def test_a_long_answer_that_a_stage_edited_is_parsed_before_the_next() -> None:
    """Each stage finds the value of what it gets, so that none has to parse all of it at once."""
    asked = read_envelope(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}')
    assert isinstance(asked, Envelope)
    call = Call(CallOrigin("s"), Scope("a", "a"), asked, asked.body)
    body = long_answer(b"x" * LONG)
    call.came = body, await long_response_to(body, 1)
    stages = [Editing(), Editing()]
    await walk_response(cast(list[Stage], stages), call, body)
    assert [stage.parsed for stage in stages] == [True, True]
