"""What a context factory adds to a call, and what it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapter.pipeline.call import Context, Signal
from adapter.pipeline.code_stages import Gathering
from adapter.rules.results.outcomes import ToolUserError
from tests.pipeline.walking import LOG, Behind, Written, a_call, raising, refused


def gathering(function: Callable[..., Any]) -> Gathering:
    return Gathering("get-user", Written(function), "message", LOG)


async def test_v3_the_factorys_members_join_the_context() -> None:
    """It is told of the request; sync or async, for each call anew."""

    async def build(request: Context) -> dict[str, object]:
        return {"db": f"for {request.tool}", "trace_id": "t-1"}

    behind = Behind()
    await gathering(build)(a_call(), behind)
    await gathering(lambda request: {"db": object()})(a_call(), behind)
    first, second = behind.contexts
    assert (first.db, first["trace_id"]) == ("for get-user", "t-1")
    assert second.trace_id is None
    assert second.db is not first.db


async def test_v3_what_is_the_adapters_to_say_stays() -> None:
    """Neither the request, the signal and the deadline, nor what means something to other languages' objects."""
    behind, call = Behind(), a_call()
    before = call.context
    members = {
        "request": 1,
        "signal": 2,
        "deadline": 3,
        "__proto__": 4,
        "constructor": 5,
        6: 7,
        "user": "ada",
    }
    await gathering(lambda request: members)(call, behind)
    (context,) = behind.contexts
    assert context == {**before, "user": "ada"}
    assert isinstance(context.signal, Signal)
    assert context.given_up is before.given_up
    assert "user" not in before


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising(ValueError("no database at db.internal")), "context unavailable"),
        (raising(TimeoutError("db.internal did not answer")), "context unavailable"),
        (lambda request: None, "context unavailable"),
        (raising(ToolUserError("Come back tomorrow.")), "Come back tomorrow."),
    ],
)
async def test_v3_without_a_context_there_is_no_call(function: Callable[..., Any], said: str) -> None:
    """The design's sentence, at the stage ``context``; why it is so is for the log, unless it was said for callers."""
    behind = Behind()
    failed = await refused(gathering(function), a_call(), behind)
    assert (failed.stage, str(failed)) == ("context", said)
    assert not behind.reached
