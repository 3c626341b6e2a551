"""The user's code around a call: what it may change, what it may answer, and whose failure is whose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapter.pipeline.call import PlannedCall
from adapter.pipeline.code_stages import CodeFailures, Middleware
from adapter.pipeline.failures import CallRefused, Outcome, StageFailed
from adapter.rules.results.outcomes import error
from tests.pipeline.walking import LOG, Behind, Written, a_call, answered, refused

TOOLS_RESULT = Outcome(
    {"content": [{"type": "text", "text": '{"n":1}'}], "structuredContent": {"n": 1}, "_meta": {"k": "v"}}
)


def middleware(function: Callable[..., Any], *, structured: bool = False) -> Middleware:
    failures = CodeFailures("middleware", "get-user", "message", LOG)
    return Middleware(Written(function), failures, structured=structured)


def text_of(outcome: Outcome) -> str:
    (block,) = outcome.result["content"]
    return str(block["text"])


# --- raw ----------------------------------------------------------------------------------------------------------


async def test_v6_what_next_gave_passes_exactly_as_it_is() -> None:
    """Returned, awaited late, or not returned at all: the result of an upstream keeps every byte."""

    async def returned(ctx: Any, args: Any, next: Any) -> Any:
        given = await next()
        given.data["n"] = 2
        given.content.clear()
        return given

    async def forgotten(ctx: Any, args: Any, next: Any) -> Any:
        await next()

    async def unawaited(ctx: Any, args: Any, next: Any) -> Any:
        return next()

    for function in (returned, forgotten, unawaited):
        assert await middleware(function)(a_call(), Behind(TOOLS_RESULT)) is TOOLS_RESULT
    assert TOOLS_RESULT.result["structuredContent"] == {"n": 1}


async def test_v6_a_middleware_sees_what_came() -> None:
    """The content, whether it is a failure, and the data as mappers see it."""
    seen = []

    async def look(ctx: Any, args: Any, next: Any) -> Any:
        given = await next()
        seen.append((ctx.request.tool, args, given.is_error, given.data, given.content))
        return given

    await middleware(look)(a_call(id=7), Behind(TOOLS_RESULT))
    content = TOOLS_RESULT.result["content"]
    assert seen == [("get-user", {"id": 7}, False, {"n": 1}, content)]
    failure = Outcome.of(error("no"))
    assert await middleware(look)(a_call(), Behind(failure)) is failure
    assert seen[1][2] is True


async def test_v6_the_arguments_are_those_of_the_call_unless_next_is_given_others() -> None:
    """Changing what the middleware was given changes nothing."""

    async def spoil(ctx: Any, args: Any, next: Any) -> Any:
        args["id"] = 8
        return await next()

    async def replace(ctx: Any, args: Any, next: Any) -> Any:
        return await next({**args, "id": 9})

    behind, call = Behind(), a_call(id=7)
    sent = call.arguments
    await middleware(spoil)(call, behind)
    await middleware(replace)(call, behind)
    assert behind.arguments == [{"id": 7}, {"id": 9}]
    assert behind.arguments[0] is sent


async def test_v6_what_a_middleware_makes_of_the_data_is_the_tools_data() -> None:
    """So mappers and presenters work on it; other members of the result stay."""

    async def doubled(ctx: Any, args: Any, next: Any) -> Any:
        given = await next()
        given.data["n"] *= 2
        return given.data

    outcome = await middleware(doubled)(a_call(), Behind(TOOLS_RESULT))
    assert (text_of(outcome), outcome.data, outcome.shapable) == ('{"n":2}', {"n": 2}, True)
    assert outcome.result["_meta"] == {"k": "v"}
    assert "structuredContent" not in outcome.result
    proxied = await middleware(doubled, structured=True)(a_call(), Behind(TOOLS_RESULT))
    assert proxied.result["structuredContent"] == {"n": 2}


async def test_v6_a_middleware_may_answer_itself() -> None:
    """Nothing behind it is reached, and nobody works on what it said."""

    async def cached(ctx: Any, args: Any, next: Any) -> Any:
        return {"cached": True}

    behind = Behind()
    outcome = await middleware(cached)(a_call(), behind)
    assert (text_of(outcome), outcome.final, outcome.shapable) == ('{"cached":true}', True, False)
    assert not behind.reached


async def test_v6_what_it_says_in_place_of_a_failure_is_its_own() -> None:
    """There is no data of the tool's to present."""

    async def comfort(ctx: Any, args: Any, next: Any) -> Any:
        given = await next()
        return "try tomorrow" if given.is_error else given

    outcome = await middleware(comfort)(a_call(), Behind(Outcome.of(error("no"))))
    assert (text_of(outcome), outcome.final, outcome.is_error) == ('"try tomorrow"', True, False)


async def test_v6_returning_nothing_without_calling_next_is_a_failure() -> None:
    """It is no result that reads ``undefined``."""

    async def nothing(ctx: Any, args: Any, next: Any) -> Any:
        return None

    failed = await refused(middleware(nothing), a_call(), Behind())
    assert (failed.stage, str(failed)) == (
        "middleware",
        "middleware failed for tool get-user: "
        "the middleware returned nothing: it must return a result, or the return value of next",
    )


async def test_v6_a_call_is_executed_once() -> None:
    """Calling next again says so; whoever catches that still has the first result."""

    async def twice(ctx: Any, args: Any, next: Any) -> Any:
        await next()
        await next()

    behind = Behind()
    failed = await refused(middleware(twice), a_call(), behind)
    assert str(failed).endswith("next was called twice: a call is executed only once")
    assert len(behind.arguments) == 1


async def test_v6_next_takes_an_object_only() -> None:
    """No other arguments exist."""

    async def wrong(ctx: Any, args: Any, next: Any) -> Any:
        return await next([1])

    behind = Behind()
    failed = await refused(middleware(wrong), a_call(), behind)
    assert str(failed).endswith("next must be called with an object of arguments, not list")
    assert not behind.reached


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raised",
    [StageFailed("connector", "tool execution failed"), CallRefused(-32602, "unknown"), OSError("gone")],
)
async def test_v6_what_fails_behind_it_is_not_its_failure(raised: Exception) -> None:
    """It passes as the very exception it was, through any number of them, and clean-up runs."""
    cleaned = []

    async def tidy(ctx: Any, args: Any, next: Any) -> Any:
        try:
            return await next()
        finally:
            cleaned.append("outer")

    async def relabel(ctx: Any, args: Any, next: Any) -> Any:
        return await next()

    inner = middleware(relabel)

    async def behind(call: PlannedCall) -> Outcome:
        return await inner(call, Behind(raised))

    with pytest.raises(type(raised)) as seen:
        await middleware(tidy)(a_call(), behind)
    assert seen.value is raised
    assert cleaned == ["outer"]


async def test_v6_a_cancelled_call_stays_cancelled() -> None:
    """No middleware's failure is made of it."""

    async def around(ctx: Any, args: Any, next: Any) -> Any:
        return await next()

    reached = asyncio.Event()

    async def hang(call: PlannedCall) -> Outcome:
        reached.set()
        await asyncio.get_running_loop().create_future()
        return answered("never")

    walk = asyncio.ensure_future(middleware(around)(a_call(), hang))
    await reached.wait()
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk


def test_v6_a_raw_middleware_that_cannot_await_next_is_refused_at_once() -> None:
    """At the start, and not in the first call."""

    def sync(ctx: Any, args: Any, next: Any) -> Any:
        return next()

    class Object:
        async def __call__(self, ctx: Any, args: Any, next: Any) -> Any:
            return await next()

    with pytest.raises(ValueError, match="takes next, so it must be async"):
        middleware(sync)
    middleware(Object())


# --- deriving -----------------------------------------------------------------------------------------------------


async def test_v6_a_middleware_without_next_adds_to_the_context() -> None:
    """In a new view: whoever held the one before sees nothing of it."""
    behind, call = Behind(answered("done")), a_call(id=7)
    before = call.context
    await middleware(lambda ctx: {"tenant": ctx.request.server, "request": None, "__proto__": 1})(
        call, behind
    )
    await middleware(lambda ctx, args: {"seen": [ctx.tenant, args["id"]]})(call, behind)
    first, second = behind.contexts
    assert first.tenant == "users"
    assert second.seen == ["users", 7]
    assert first.request is before.request
    assert "__proto__" not in first
    assert "tenant" not in before


async def test_v6_deriving_nothing_is_fine_and_may_be_async() -> None:
    """A check that only raises has nothing to say."""

    async def check(ctx: Any) -> None:
        await asyncio.sleep(0)

    outcome = answered("done")
    assert await middleware(check)(a_call(), Behind(outcome)) is outcome


async def test_v6_deriving_anything_else_is_a_failure() -> None:
    """So is what it raises; the failure of what is behind it is not."""
    behind = Behind()
    failed = await refused(middleware(lambda ctx: "user"), a_call(), behind)
    assert str(failed) == (
        "middleware failed for tool get-user: a middleware without next must return a mapping, not str"
    )
    raising = await refused(middleware(lambda ctx: ctx.nothing), a_call(), behind)
    assert str(raising) == "middleware failed for tool get-user: there is no 'nothing' here (AttributeError)"
    assert not behind.reached
    with pytest.raises(OSError, match="gone"):
        await middleware(lambda ctx: None)(a_call(), Behind(OSError("gone")))
