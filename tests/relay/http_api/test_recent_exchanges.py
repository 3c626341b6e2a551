"""What was asked lately: kept in bounds, told to those who watch, with the stages that were walked."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

import pytest

from adapter.errors import LimitReached
from adapter.pipeline.failures import StageFailed
from adapter.relay.http_api.recent_exchanges import KEPT, STAGES, WAITING, WATCHERS, Recent, begin_stage
from tests.cpu_time import least_cpu


@pytest.fixture
def recent() -> Recent:
    """The exchanges of one process."""
    return Recent()


def line(name: str | None = "weigh", method: str = "tools/call", **more: Any) -> dict[str, Any]:
    """A line as the front door writes it."""
    told = {"at": 1.5, "server": "scales", "http": "POST", "method": method, "name": name}
    return {**told, "status": 200, "outcome": "ok", "ms": 0.25, **more}


def ended(recent: Recent, principal: str | None = "ann:0", **said: Any) -> None:
    recent.begin()
    recent.end(line(**said), principal)


def names(recent: Recent, whose: str | None = None) -> list[str | None]:
    return [each.tool for each in recent.last(whose)]


def test_the_last_ones_are_kept_the_newest_first(recent: Recent) -> None:
    """Of more than 500 the oldest are gone, and names are cut."""
    for number in range(KEPT + 3):
        ended(recent, name=f"tool-{number}")
    assert names(recent)[0] == f"tool-{KEPT + 2}" and names(recent)[-1] == "tool-3"
    assert len(recent.last()) == KEPT
    ended(recent, name="n" * 10_000)
    assert recent.last()[0].tool == "n" * 128
    ended(recent, method="m" * 10_000)
    assert recent.last()[0].method == "m" * 128


def test_an_exchange_is_told_without_whose_it_was(recent: Recent) -> None:
    """Only a tool is named: other names are URIs, which may say more."""
    ended(recent)
    assert recent.last()[0].shown() == {
        "at": 1.5,
        "server": "scales",
        "method": "tools/call",
        "tool": "weigh",
        "entrance": "mcp",
        "outcome": "ok",
        "status": 200,
        "ms": 0.25,
        "stages": [],
    }
    ended(recent, method="resources/read", name="artifact://sessions/1/2/secret.txt")
    ended(recent, method="", name=None, http="GET")
    ended(recent, entrance="http")
    told = [(each.method, each.tool, each.entrance) for each in reversed(recent.last())]
    assert told[1:] == [
        ("resources/read", None, "mcp"),
        ("GET", None, "mcp"),
        ("tools/call", "weigh", "http"),
    ]


async def test_watchers_are_told_of_what_concerns_them(recent: Recent) -> None:
    """One sees everybody's exchanges, the other those of one principal."""
    everybody, ann = recent.subscribe(), recent.subscribe("ann:0")
    ended(recent, "bob:1", name="saw")
    ended(recent, "ann:0", name="weigh")
    ended(recent, None, name="knock")
    all_news, own_news = await everybody.next_news(1), await ann.next_news(1)
    assert all_news is not None and [each.tool for each in all_news.exchanges] == ["saw", "weigh", "knock"]
    assert own_news is not None and [each.tool for each in own_news.exchanges] == ["weigh"]
    assert names(recent, "bob:1") == ["saw"]


async def test_without_news_a_watcher_waits_no_longer_than_it_may() -> None:
    """Then it is told of nothing, and can say that it is still there."""
    watcher = Recent().subscribe()
    assert await watcher.next_news(0.01) == ((), 0)


async def test_a_slow_watcher_loses_the_oldest_and_is_told_how_many(recent: Recent) -> None:
    """What waits for it is bounded; the count begins anew each time."""
    watcher = recent.subscribe()
    for number in range(WAITING + 7):
        ended(recent, name=f"tool-{number}")
    news = await watcher.next_news(1)
    assert news is not None and (news.lost, len(news.exchanges)) == (7, WAITING)
    assert news.exchanges[0].tool == "tool-7"
    ended(recent)
    news = await watcher.next_news(1)
    assert news is not None and (news.lost, len(news.exchanges)) == (0, 1)


async def test_at_the_end_a_watcher_gets_what_waits_and_leaves(recent: Recent) -> None:
    """One that waits is woken; one that comes later leaves at once."""
    watcher, waiting = recent.subscribe(), recent.subscribe("nobody")
    leaving = asyncio.create_task(waiting.next_news(60))
    ended(recent)
    await asyncio.sleep(0)
    recent.close()
    news = await watcher.next_news(60)
    assert news is not None and len(news.exchanges) == 1
    assert await watcher.next_news(60) is None and await leaving is None
    assert await recent.subscribe().next_news(60) is None
    assert recent.watchers == 0


def test_so_many_may_watch_and_no_more(recent: Recent) -> None:
    """Whoever leaves makes room."""
    watchers = [recent.subscribe() for _ in range(WATCHERS)]
    with pytest.raises(LimitReached):
        recent.subscribe()
    recent.unsubscribe(watchers[0])
    recent.unsubscribe(watchers[0])
    recent.subscribe()


# --- stages ---------------------------------------------------------------------------------------------------


def walked(recent: Recent) -> list[tuple[str, str]]:
    recent.end(line(), None)
    return [(stage.name, stage.outcome) for stage in recent.last()[0].stages]


async def test_stages_belong_to_the_exchange_in_which_they_were_walked(recent: Recent) -> None:
    """Also those that tasks of it walk, and none of another exchange at the same time."""

    async def stage(name: str) -> None:
        timing = begin_stage(name)
        await asyncio.sleep(0)
        assert timing is not None
        timing.end(None)

    async def exchange(*stages: str) -> list[tuple[str, str]]:
        recent.begin()
        for name in stages:
            await asyncio.create_task(stage(name))
        return walked(recent)

    found = list(await asyncio.gather(exchange("auth", "execute"), exchange("limits"), exchange()))
    assert found == [[("auth", "ok"), ("execute", "ok")], [("limits", "ok")], []]
    assert Context().run(begin_stage, "auth") is None


async def test_a_stage_says_when_it_began_and_how_it_ended(recent: Recent) -> None:
    """Stages stand in the order they began, in milliseconds since the exchange did; one may be under way still."""
    recent.begin()
    errors: dict[str, BaseException | None] = {
        "limits": StageFailed("limits", "too many", "busy"),
        "cache": ValueError("no"),
        "execute": asyncio.CancelledError(),
    }
    begun = {name: begin_stage(name) for name in (*errors, "presenter")}
    for name in ("cache", "limits", "execute"):
        timing = begun[name]
        assert timing is not None and name in repr(timing)
        timing.end(errors[name])
    assert walked(recent) == [
        ("limits", "busy"),
        ("cache", "failed"),
        ("execute", "cancelled"),
        ("presenter", "unfinished"),
    ]
    stages = recent.last()[0].stages
    starts = [stage.start_ms for stage in stages]
    assert starts == sorted(starts) and starts[0] >= 0
    assert stages[0].ms >= stages[1].ms >= 0


def test_an_exchange_keeps_so_many_stages_and_no_more(recent: Recent) -> None:
    """However often a plan is walked in it, it takes bounded room."""
    recent.begin()
    for _ in range(2 * STAGES):
        timing = begin_stage("s" * 500)
        if timing is not None:
            timing.end(None)
    assert walked(recent) == [("s" * 128, "ok")] * STAGES


def test_an_exchange_without_stages_pays_little(recent: Recent) -> None:
    """Keeping it takes less than 5 µs of the exchange's time, while nobody watches."""

    def thousand() -> None:
        for _ in range(1000):
            recent.begin()
            recent.end(line(), "ann:0")

    assert least_cpu(thousand, attempts=10) < 0.005
