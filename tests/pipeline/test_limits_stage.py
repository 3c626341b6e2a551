"""How often a tool may be called, how many calls of it run at once, and for how long."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from adapter.pipeline.call import AuthRequest, CallClient, Context, PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.limits_stage import Concurrency, Rate, RateKey, SharedRate, rate_key
from adapter.rules.access.principals import Caller
from adapter.rules.results.outcomes import text_block
from adapter.state.sqlite import MemoryStore

DONE = Outcome({"content": [text_block("done")]})


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """What stands behind a limit: counts what runs, and lets each call go on when told."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.most = 0
        self.changed = asyncio.Event()

    async def __call__(self, call: PlannedCall) -> Outcome:
        name = str(call.arguments["name"])
        self.begun.append(name)
        self.running[name] = go = asyncio.Event()
        self.most = max(self.most, len(self.running))
        self.changed.set()
        try:
            await go.wait()
        finally:
            del self.running[name]
        if call.arguments.get("fails"):
            raise StageFailed("handler", "no")
        return DONE

    async def has_begun(self, *names: str) -> None:
        """Return when all of these calls have come so far."""
        async with asyncio.timeout(20):
            while not set(names) <= set(self.begun):
                self.changed.clear()
                await self.changed.wait()

    def finish(self, name: str) -> None:
        self.running[name].set()


async def answer(_: PlannedCall) -> Outcome:
    """Work that is done at once."""
    return DONE


def called(
    name: str = "one",
    *,
    principal: str = "anonymous",
    session: str | None = None,
    identity: Any = None,
    fails: bool = False,
) -> PlannedCall:
    caller = Caller(principal)
    call = PlannedCall(
        server="users",
        tool="bz",
        arguments={"name": name, "fails": fails},
        execute=answer,
        given=Context.of(AuthRequest.of("users", "bz", caller)),
        client=CallClient(caller, session),
    )
    call.identity = identity
    return call


def started(limit: Concurrency, work: Work, *names: str) -> list[asyncio.Task[Outcome]]:
    """Calls under way, in this order."""
    return [asyncio.create_task(limit(called(name), work)) for name in names]


# --- how often ------------------------------------------------------------------------------------------------


async def test_v21_a_rate_refuses_and_says_when_to_come_again() -> None:
    """The third call in a window of two is refused in its envelope, with whole seconds that suffice."""
    clock = Clock()
    rate = Rate("bz", 2, 60, rate_key("tool"), clock)
    await rate(called(), answer)
    clock.now = 10.5
    await rate(called(), answer)
    with pytest.raises(StageFailed) as refused:
        await rate(called(), answer)
    assert (refused.value.stage, refused.value.reason, refused.value.retry_after) == ("limits", "rate", 50.0)
    assert str(refused.value) == 'Tool "bz" allows 2 calls in 60 seconds.'
    assert refused.value.text == (
        '<tool_error code="RATE_LIMITED" severity="error">\n'
        '<message>Tool "bz" allows 2 calls in 60 seconds.</message>\n'
        "<retry_after>50 seconds</retry_after>\n"
        "</tool_error>"
    )
    clock.now += 50
    assert await rate(called(), answer) is DONE


ANN: dict[str, Any] = {"principal": "p", "session": "s", "identity": {"sub": "ann"}}


@pytest.mark.parametrize(
    ("key", "other", "together"),
    [
        ("tool", {"principal": "q", "session": "t", "identity": "bob"}, True),
        ("principal", {"principal": "p", "session": "t", "identity": "bob"}, True),
        ("principal", {"principal": "q", "session": "s", "identity": {"sub": "ann"}}, False),
        ("session", {"principal": "p", "session": "s", "identity": "bob"}, True),
        ("session", {"principal": "p", "session": "t", "identity": {"sub": "ann"}}, False),
        ("session", {"principal": "q", "session": "s"}, False),
        ("identity", {"principal": "q", "session": "t", "identity": {"sub": "ann"}}, True),
        ("identity", {"principal": "p", "session": "s", "identity": {"sub": "bob"}}, False),
        ("identity", {"principal": "p", "session": "s"}, False),
    ],
)
async def test_v21_a_rate_counts_callers_apart(key: RateKey, other: dict[str, Any], together: bool) -> None:
    """By what the settings say: only those who are the same in that share a window."""
    rate = Rate("bz", 1, 60, rate_key(key), Clock())
    await rate(called(**ANN), answer)
    if together:
        with pytest.raises(StageFailed):
            await rate(called(**other), answer)
    else:
        assert await rate(called(**other), answer) is DONE


async def test_shared_rate_counts_in_what_replicas_share() -> None:
    """Two replicas have one count for each caller, and refuse in the words of a rate of one."""
    store = MemoryStore()

    async def spend(key: str, most: int, window: float) -> float:
        return await store.spend("rates", key, most, window)

    replicas = [SharedRate("one", "bz", (2, 60.0), rate_key("principal"), spend) for _ in range(2)]
    for rate in replicas:
        assert await rate(called(**ANN), answer) is DONE
    for rate in replicas:
        with pytest.raises(StageFailed) as refused:
            await rate(called(**ANN), answer)
        assert (refused.value.stage, refused.value.reason) == ("limits", "rate")
    assert await replicas[0](called(principal="q"), answer) is DONE
    other = SharedRate("one", "other", (2, 60.0), rate_key("principal"), spend)
    assert await other(called(**ANN), answer) is DONE
    # It remembers nothing itself, so it may be dropped with its plan.
    assert other.idle


# --- how many at once -----------------------------------------------------------------------------------------


async def test_v21_a_call_too_many_is_refused() -> None:
    """Without a queue the second call hears at once that the tool is busy, in the golden words."""
    limit, work = Concurrency("bz", 1), Work()
    (first,) = started(limit, work, "a")
    await work.has_begun("a")
    with pytest.raises(StageFailed) as refused:
        await limit(called("b"), work)
    assert (refused.value.stage, refused.value.reason) == ("limits", "busy")
    assert str(refused.value) == ('Tool "bz" is at capacity (1 active, 0 queued). Retry after a short delay.')
    assert refused.value.text.startswith('<tool_error code="SERVER_BUSY" severity="error">\n')
    work.finish("a")
    assert await first is DONE
    assert repr(limit) == "<Concurrency of 'bz': 0 active, 0 queued>"


async def test_v21_calls_that_wait_go_on_in_their_order() -> None:
    """First come, first served, and never more at once than allowed; one beyond the queue is refused."""
    limit, work = Concurrency("bz", 2, 3), Work()
    calls = started(limit, work, *"abcde")
    await work.has_begun("a", "b")
    assert repr(limit) == "<Concurrency of 'bz': 2 active, 3 queued>"
    with pytest.raises(StageFailed, match=r"2 active, 3 queued"):
        await limit(called("f"), work)
    for name, following in zip("abcde", ("c", "d", "e", "e", "e"), strict=True):
        work.finish(name)
        await work.has_begun(following)
    assert await asyncio.gather(*calls) == [DONE] * 5
    assert (work.begun, work.most) == (list("abcde"), 2)


async def test_v4_a_call_that_is_cancelled_leaves_the_queue_at_once() -> None:
    """Its place in the queue is free for a call of the very same moment, and it never runs."""
    limit, work = Concurrency("bz", 1, 1), Work()
    first, second = started(limit, work, "a", "b")
    await work.has_begun("a")
    second.cancel()
    assert limit.queued == 0
    asyncio.get_running_loop().call_soon(work.finish, "a")
    assert await limit(called("c"), answer) is DONE
    assert await first is DONE
    assert (second.cancelled(), work.begun) == (True, ["a"])


@pytest.mark.parametrize("seed", range(20))
async def test_v21_whatever_comes_and_goes_no_place_is_lost(seed: int) -> None:
    """Calls that come, end, fail and are cancelled at any moment: never too many at once, and all come to an end."""
    chance = random.Random(seed)
    allowed = chance.randint(1, 4)
    limit, work = Concurrency("bz", allowed, chance.randint(0, 5)), Work()
    calls: list[asyncio.Task[Outcome]] = []
    for number in range(300):
        match chance.randrange(5):
            case 0 | 1:
                fails = chance.random() < 0.2
                calls.append(asyncio.create_task(limit(called(str(number), fails=fails), work)))
            case 2 if calls:
                chance.choice(calls).cancel()
            case 3 if work.running:
                work.finish(chance.choice(list(work.running)))
            case _:
                await asyncio.sleep(0)
        assert limit.active <= allowed
    while not all(call.done() for call in calls):
        for name in list(work.running):
            work.finish(name)
        await asyncio.wait([call for call in calls if not call.done()], timeout=0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert work.most <= allowed
    assert (limit.active, limit.queued) == (0, 0)
    assert all(isinstance(result, Outcome | StageFailed | asyncio.CancelledError) for result in results)


async def test_v21_destructive_calls_run_one_after_the_other() -> None:
    """However many wait, none is refused and none overtakes."""
    limit, work = Concurrency("bz", 1, None), Work()
    names = [str(number) for number in range(50)]
    calls = started(limit, work, *names)
    for name in names:
        await work.has_begun(name)
        work.finish(name)
    assert await asyncio.gather(*calls) == [DONE] * 50
    assert (work.begun, work.most) == (names, 1)


def test_limits_that_make_no_sense_are_refused() -> None:
    """Nothing is limited to no call at all, nor to no time."""
    for make in (
        lambda: Rate("t", 0, 60, rate_key("tool"), Clock()),
        lambda: Rate("t", 1, 0, rate_key("tool"), Clock()),
        lambda: Concurrency("t", 0),
        lambda: Concurrency("t", 1, -1),
    ):
        with pytest.raises(ValueError, match=r"\.$"):
            make()
