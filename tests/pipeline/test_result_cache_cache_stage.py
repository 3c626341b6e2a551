"""What is kept of the answers of upstreams' tools: for whom, when, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from adapter.pipeline.call import AuthRequest, CallClient, Context, PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome, StageFailed
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.pipeline.result_cache import OUTCOMES, CacheStage, ResultCache, purge, varying
from adapter.rules.access.principals import Caller
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.results.outcomes import text_block
from adapter.rules.text.expressions import Glob


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Upstream:
    """Answers with numbers, one for each request, at once or when told; ``gone`` lists those given up."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone: list[str] = []
        self.changed = asyncio.Event()
        self.silent = False
        self.exchanges: dict[str, asyncio.Future[None]] = {}
        self.raises: Exception | None = None
        self.result: dict[str, Any] = {}

    async def __call__(self, call: PlannedCall) -> Outcome:
        name = call.client.session or "?"
        self.asked.append(name)
        number = len(self.asked)
        self.changed.set()
        try:
            if self.silent:
                self.exchanges[name] = asyncio.get_running_loop().create_future()
                await self.exchanges[name]
        except asyncio.CancelledError:
            self.gone.append(name)
            raise
        if self.raises is not None:
            raise self.raises
        return Outcome({"content": [text_block(str(number))], "_meta": {"n": number}, **self.result})

    def speak(self) -> None:
        """Answer every request, and those to come at once."""
        self.silent = False
        for exchange in self.exchanges.values():
            if not exchange.done():
                exchange.set_result(None)

    async def was_asked(self, times: int) -> None:
        """Return when so many requests have come so far."""
        async with asyncio.timeout(20):
            while len(self.asked) < times:
                self.changed.clear()
                await self.changed.wait()


def called(
    upstream: Upstream,
    session: str = "s",
    arguments: Mapping[str, Any] | None = None,
    *,
    identity: Any = None,
    principal: str = "anonymous",
    fields: Mapping[str, str] | None = None,
) -> PlannedCall:
    caller = Caller(principal, fields=fields or {})
    call = PlannedCall(
        server="web",
        tool="page",
        arguments={"url": "/"} if arguments is None else arguments,
        execute=upstream,
        given=Context.of(AuthRequest.of("web", "page", caller)),
        client=CallClient(caller, session),
    )
    call.identity = identity
    return call


async def reads(_: PlannedCall) -> bool:
    return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> ResultCache:
    return ResultCache(1 << 20, clock)


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


def caching(cache: ResultCache, *vary: str, digest: str = "d1", ttl: float = 30) -> ToolPlan:
    """A plan that keeps answers and does nothing else."""
    stage = CacheStage("page", cache, ttl, varying(vary), reads, digest)
    return ToolPlan("page", "proxied", [Step(Slot.CACHE, "30 s", stage)], ErrorStyle())


@pytest.fixture
def plan(cache: ResultCache) -> ToolPlan:
    return caching(cache)


async def begun(plan: ToolPlan, upstream: Upstream, names: Iterable[str]) -> list[asyncio.Task[Outcome]]:
    """Calls at once, of sessions with these names: the first has asked an upstream that is silent, the others wait."""
    upstream.silent = True
    walks = [asyncio.create_task(plan.walk(called(upstream, name))) for name in names]
    await upstream.was_asked(1)
    await settle()
    return walks


def text(outcome: Outcome) -> str:
    return str(outcome.result["content"][0]["text"])


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- what is kept ---------------------------------------------------------------------------------------------


async def test_h26_an_answer_is_kept_for_its_seconds(
    plan: ToolPlan, clock: Clock, upstream: Upstream
) -> None:
    """The same question within them is answered from here with the whole result, and the call's notes say so."""
    calls = [called(upstream) for _ in range(3)]
    first = await plan.walk(calls[0])
    clock.now = 29.9
    assert await plan.walk(calls[1]) == first
    clock.now = 30.0
    assert text(await plan.walk(calls[2])) == "2"
    assert [call.notes["cache"] for call in calls] == ["miss", "hit", "miss"]


async def test_w6_everybody_has_a_copy(plan: ToolPlan, upstream: Upstream) -> None:
    """What is done to one result, at any depth, is seen in no other."""
    for _ in range(3):
        outcome = await plan.walk(called(upstream))
        assert outcome.result["content"] == [text_block("1")]
        outcome.result["content"].append("more")
        outcome.result["_meta"]["n"] = 0


@pytest.mark.parametrize(
    "result",
    [
        {"isError": True},
        {"resultType": "input_required", "inputRequests": {}},
        {"task": {"taskId": "1"}, "resultType": "task"},
    ],
)
async def test_h27_what_is_no_success_is_not_kept(
    plan: ToolPlan, upstream: Upstream, result: dict[str, Any]
) -> None:
    """Neither an error nor a question back nor a task is anybody's but its caller's."""
    upstream.result = result
    assert text(await plan.walk(called(upstream))) == "1"
    upstream.result = {}
    assert text(await plan.walk(called(upstream))) == "2"
    assert text(await plan.walk(called(upstream))) == "2"


async def test_h27_what_fails_is_passed_on_and_not_kept(plan: ToolPlan, upstream: Upstream) -> None:
    """The caller gets the very exception, and the next call asks again."""
    upstream.raises = ConnectionError("gone")
    with pytest.raises(ConnectionError) as raised:
        await plan.walk(called(upstream))
    assert raised.value is upstream.raises
    upstream.raises = None
    assert text(await plan.walk(called(upstream))) == "2"


async def test_arguments_that_are_no_json_are_not_kept(
    cache: ResultCache, plan: ToolPlan, upstream: Upstream
) -> None:
    """Whatever a mapper made of them goes on as it is."""
    for number in ("1", "2"):
        assert text(await plan.walk(called(upstream, arguments={"of": object()}))) == number
    assert len(cache) == 0


# --- for whom -------------------------------------------------------------------------------------------------


async def test_w6_results_differ_by_arguments_and_configuration(
    cache: ResultCache, upstream: Upstream
) -> None:
    """Other values, other types and another configuration are other questions; the order of members is not."""
    assert text(await caching(cache).walk(called(upstream, arguments={"a": 1, "b": 2}))) == "1"
    assert text(await caching(cache).walk(called(upstream, arguments={"b": 2, "a": 1}))) == "1"
    assert text(await caching(cache).walk(called(upstream, arguments={"a": "1", "b": 2}))) == "2"
    assert text(await caching(cache).walk(called(upstream, arguments={"a": 1, "b": 2, "c": None}))) == "3"
    assert text(await caching(cache, digest="d2").walk(called(upstream, arguments={"a": 1, "b": 2}))) == "4"


@pytest.mark.parametrize(
    ("vary", "same", "other"),
    [
        ("identity", {"identity": {"sub": "ann"}, "principal": "q"}, {"identity": {"sub": "bob"}}),
        ("principal", {"principal": "p", "identity": "x"}, {"principal": "q", "identity": {"sub": "ann"}}),
        ("session", {"principal": "p", "identity": "x"}, {"principal": "p", "session": "t"}),
        ("session", {"principal": "p"}, {"principal": "q"}),
        ("header:Accept-Language", {"fields": {"accept-language": "de"}}, {"fields": {"X": "de"}}),
        (
            "header:Accept-Language",
            {"fields": {"ACCEPT-LANGUAGE": "de"}},
            {"fields": {"Accept-Language": ""}},
        ),
    ],
)
async def test_w6_results_vary_by_what_is_said(
    cache: ResultCache, upstream: Upstream, vary: str, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """One caller's result is never given to one who differs in it, and given to all who do not."""
    plan = caching(cache, vary)
    ann = called(
        upstream, identity={"sub": "ann"}, principal="p", fields={"Accept-Language": "de", "Other": "1"}
    )
    assert text(await plan.walk(ann)) == "1"
    assert text(await plan.walk(called(upstream, **same))) == "1"
    assert text(await plan.walk(called(upstream, **other))) == "2"


async def test_w6_who_has_no_identity_is_told_apart_by_principal(
    cache: ResultCache, upstream: Upstream
) -> None:
    """Nobody's result is that of somebody who is called like a principal, nor another principal's."""
    plan = caching(cache, "identity")
    vary = varying(["identity"])
    assert text(await plan.walk(called(upstream, principal="p"))) == "1"
    assert text(await plan.walk(called(upstream, principal="q"))) == "2"
    assert vary(called(upstream, principal="p")) != vary(called(upstream, identity="p"))


@pytest.mark.parametrize("word", ["Identity", "header:", "header:a b", "header", "cookie", ""])
def test_w6_an_unknown_word_is_refused(word: str) -> None:
    """A misspelt word would make one caller's result everybody's, so nothing starts with one."""
    with pytest.raises(ValueError, match="vary must be identity"):
        varying([word])


async def test_h28_what_stands_around_the_cache_works_on_every_call(
    cache: ResultCache, upstream: Upstream
) -> None:
    """A check refuses in spite of a kept result, and a mapper's change shows on the next hit."""

    class Around:
        allowed = True
        greeting = "hello"

        async def __call__(self, call: PlannedCall, forward: Any) -> Outcome:
            if not self.allowed:
                raise StageFailed("auth", "unauthorized")
            outcome: Outcome = await forward(call)
            return outcome.with_content([text_block(self.greeting + text(outcome))])

    around = Around()
    stage = CacheStage("page", cache, 30, varying(()), reads, "d1")
    plan = ToolPlan(
        "page", "proxied", [Step(Slot.AUTH, "", around), Step(Slot.CACHE, "", stage)], ErrorStyle()
    )
    assert text(await plan.walk(called(upstream))) == "hello1"
    around.greeting = "bye"
    assert text(await plan.walk(called(upstream))) == "bye1"
    around.allowed = False
    assert text(await plan.walk(called(upstream))) == "unauthorized"


# --- who waits for whom ---------------------------------------------------------------------------------------


async def test_w6_callers_at_once_ask_the_upstream_once(plan: ToolPlan, upstream: Upstream) -> None:
    """A hundred callers, one request, a hundred copies."""
    walks = await begun(plan, upstream, map(str, range(100)))
    upstream.speak()
    outcomes = await asyncio.gather(*walks)
    assert {text(outcome) for outcome in outcomes} == {"1"}
    assert len({id(outcome.result["content"]) for outcome in outcomes}) == 100
    assert upstream.asked == ["0"]


async def test_w6_the_request_ends_with_the_caller_who_made_it(plan: ToolPlan, upstream: Upstream) -> None:
    """It is cancelled with its own client; the next of those who wait makes one, and the rest wait for that."""
    walks = await begun(plan, upstream, "abcd")
    walks[0].cancel()
    await upstream.was_asked(2)
    await settle()
    assert (upstream.asked, upstream.gone) == (["a", "b"], ["a"])
    upstream.speak()
    assert [text(outcome) for outcome in await asyncio.gather(*walks[1:])] == ["2", "2", "2"]


async def test_w6_an_exchange_that_ends_takes_only_its_own_caller_along(
    plan: ToolPlan, upstream: Upstream
) -> None:
    """Where the work is cancelled from behind, as when a client's connection ends, the others go on."""
    walks = await begun(plan, upstream, "ab")
    upstream.exchanges["a"].cancel()
    await upstream.was_asked(2)
    upstream.speak()
    assert text(await walks[1]) == "2"
    with pytest.raises(asyncio.CancelledError):
        await walks[0]


async def test_w6_a_failure_is_its_own_callers(plan: ToolPlan, upstream: Upstream) -> None:
    """Those who waited for what failed ask by themselves, all at once: none waits for the others' failures."""
    upstream.raises = ConnectionError("gone")
    walks = await begun(plan, upstream, "abc")
    upstream.exchanges["a"].set_result(None)
    await upstream.was_asked(3)
    upstream.raises = None
    upstream.speak()
    with pytest.raises(ConnectionError):
        await walks[0]
    assert {text(await walks[1]), text(await walks[2])} == {"2", "3"}


async def test_w6_an_error_result_is_its_own_callers(plan: ToolPlan, upstream: Upstream) -> None:
    """What is not kept is not shared either: a task or a question belongs to the session that made it."""
    upstream.result = {"task": {"taskId": "1"}, "resultType": "task"}
    walks = await begun(plan, upstream, "abc")
    upstream.speak()
    assert {text(outcome) for outcome in await asyncio.gather(*walks)} == {"1", "2", "3"}


async def test_w6_one_who_waits_may_leave(plan: ToolPlan, upstream: Upstream) -> None:
    """A waiting caller that is cancelled costs neither the request nor anybody else's answer."""
    walks = await begun(plan, upstream, "abc")
    walks[1].cancel()
    await settle()
    upstream.speak()
    assert [text(await walks[0]), text(await walks[2])] == ["1", "1"]
    assert (upstream.asked, upstream.gone) == (["a"], [])


# --- what becomes stale ---------------------------------------------------------------------------------------


async def test_w6_what_was_asked_before_a_change_is_not_kept_after_it(
    cache: ResultCache, plan: ToolPlan, upstream: Upstream
) -> None:
    """A request under way may have seen the old state: who waits for it gets that, nobody who comes later."""
    before = await begun(plan, upstream, "ab")
    purge({"web": cache}, Invalidation("post", (Glob("web.*"),)))
    after = [asyncio.create_task(plan.walk(called(upstream, "c")))]
    await upstream.was_asked(2)
    upstream.exchanges["a"].set_result(None)
    assert [text(outcome) for outcome in await asyncio.gather(*before)] == ["1", "1"]
    after.append(asyncio.create_task(plan.walk(called(upstream, "d"))))
    await settle()
    upstream.speak()
    assert [text(outcome) for outcome in await asyncio.gather(*after)] == ["2", "2"]
    assert upstream.asked == ["a", "c"]


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (Outcome({"content": [text_block("é")], "structuredContent": {"n": 2**70}, "more": [1.0]}), True),
        (Outcome({"content": []}, final=True), False),
        (Outcome({"content": []}, data=1), False),
    ],
)
async def test_the_outcome_of_a_hit_is_equal_in_every_member(
    cache: ResultCache, outcome: Outcome, kept: bool
) -> None:
    """A result comes back as it was; what is more than a result is not kept."""

    async def answer(_: PlannedCall) -> Outcome:
        return outcome

    stage = CacheStage("page", cache, 30, varying(()), reads, "d1")
    for _ in range(2):
        assert await stage(called(Upstream()), answer) == outcome
    assert len(cache) == kept


@pytest.mark.parametrize("wrong", [b"[]", b"{", b"\xff"])
def test_bytes_of_another_version_are_no_result(wrong: bytes) -> None:
    """A replica may read what another version has written."""
    with pytest.raises(ValueError, match=r"no (JSON|result)"):
        OUTCOMES.decode(wrong)
