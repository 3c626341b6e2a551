"""Upstreams that are slow to open sessions: no session is left behind, and slowness is no fault."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adapter.relay.sessions.renewal import MOST
from tests.edge.conftest import Adapter, StartAdapter, done
from tests.edge.raw import INITIALIZE, Exchange, RawUpstream, error_of, initialize_result, result
from tests.relay.sessions.test_health_probe import PING, health_when, is_ok, serving
from tests.waiting import until


class Slow:
    """Opens sessions of ``upstream`` when told to, or after ``seconds``."""

    def __init__(self, seconds: float | None = None) -> None:
        self.answer = asyncio.Event()
        self.begun = 0
        self.upstream: RawUpstream | None = None
        self._seconds = seconds

    async def __call__(self, exchange: Exchange) -> None:
        assert self.upstream is not None
        self.begun += 1
        name = f"slow-{self.begun}"
        # An upstream goes on also when nobody waits any more, so the session is there in any case.
        self.upstream.sessions.add(name)
        if self._seconds is None:
            await self.answer.wait()
        else:
            await asyncio.sleep(self._seconds)
        await exchange.json(initialize_result(exchange.message["id"]), f"Mcp-Session-Id: {name}")


def slow_upstream(slow: Slow) -> RawUpstream:
    slow.upstream = RawUpstream(done, opening=slow)
    return slow.upstream


async def left(up: RawUpstream, *sessions: str) -> None:
    """Wait until the upstream has these sessions and no other."""
    await until(lambda: up.sessions == set(sessions))


async def noticed(front: Adapter, count: int) -> None:
    """Wait until the adapter knows that so many clients have left."""
    await until(lambda: repr(front.app.background) == f"<BackgroundTasks: {count} running>")


# --- clients --------------------------------------------------------------------------------------------------


async def test_session_of_a_client_that_left_is_closed(adapter: StartAdapter) -> None:
    """The upstream answers when nobody waits any more; another client's session stays."""
    slow = Slow()
    async with slow_upstream(slow) as up, adapter(up) as front, front.client() as patient:
        async with front.client() as client:
            await client.send("POST", INITIALIZE)
            await up.arrived("initialize")
        await noticed(front, 1)
        waiting = asyncio.create_task(patient.initialize())
        await until(lambda: slow.begun >= 2)
        slow.answer.set()
        await waiting
        await left(up, "slow-2")
        assert (await patient.call())[1] == result(1)


async def test_session_that_opens_after_the_time_out_is_closed(adapter: StartAdapter) -> None:
    """The client is told that the upstream was silent; what comes later is nobody's."""
    slow = Slow()
    core = {"upstream_request_timeout_seconds": 0.1}
    async with slow_upstream(slow) as up, adapter(up, core=core) as front, front.client() as client:
        _, body = await client.request("POST", INITIALIZE)
        assert error_of(body)["code"] == -32013
        slow.answer.set()
        await left(up)
        closing = (await up.arrived("DELETE")).head
        assert (closing["mcp-session-id"], closing["mcp-protocol-version"]) == ("slow-1", "2025-11-25")


async def test_few_late_answers_are_waited_for(adapter: StartAdapter) -> None:
    """Clients that come and go cannot hold more of the upstream's connections than that."""
    slow = Slow()
    async with slow_upstream(slow) as up, adapter(up) as front:
        clients = [await front.client().__aenter__() for _ in range(MOST + 4)]
        for client in clients:
            await client.send("POST", INITIALIZE)
        await until(lambda: slow.begun >= len(clients))
        for client in clients:
            client.close()
        await until(lambda: f": {MOST} active" in repr(front.app.servers["raw"].upstream))
        slow.answer.set()
        await until(lambda: len(up.calls("DELETE")) >= MOST)
        assert len(up.sessions) == 4


# --- pings ----------------------------------------------------------------------------------------------------


async def test_waking_slowly_is_no_fault(tmp_path: Path) -> None:
    """An initialize that takes longer than a ping may is waited for; one session serves all pings from then on."""
    slow = Slow(seconds=1.0)
    async with slow_upstream(slow) as up, serving(tmp_path, {"raw": up.url}) as front:
        _, body = await health_when(front, lambda body: slow.begun == 1)
        assert body["servers"][0]["detail"] == "upstream_starting"
        status, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("ping")) > 3)
        assert (status, slow.begun, up.sessions) == (200, 1, {"slow-1"})
        assert body["servers"][0]["breaker"] == {"state": "closed", "consecutive_failures": 0}
    assert up.sessions == set()


async def test_session_that_opens_too_late_for_a_ping_is_used_by_the_next(tmp_path: Path) -> None:
    """That ping has failed; no second session is asked for meanwhile."""
    slow = Slow(seconds=0.5)
    core = {"upstream_request_timeout_seconds": 0.1, "upstream_ping": {**PING, "failure_threshold": 100}}
    async with slow_upstream(slow) as up, serving(tmp_path, {"raw": up.url}, **core) as front:
        _, body = await health_when(front, lambda body: body["servers"][0]["breaker"]["consecutive_failures"])
        assert "opened no session" in body["servers"][0]["ping"]["last_error"]
        await health_when(front, lambda body: is_ok(body) and len(up.calls("ping")) > 3)
        assert (slow.begun, up.sessions) == (1, {"slow-1"})


@pytest.mark.parametrize("status", [400, 500])
async def test_session_that_pings_fail_in_is_closed_when_another_is_opened(
    tmp_path: Path, status: int
) -> None:
    """A server that refuses pings but not the session is left with one session, not with one for each ping."""

    class Odd(RawUpstream):
        async def _answer(self, exchange: Exchange) -> None:
            if exchange.message.get("method") == "ping":
                await exchange.answer(status, b"")
            else:
                await super()._answer(exchange)

    async with Odd(done) as up, serving(tmp_path, {"raw": up.url}) as front:
        await health_when(front, lambda _: up.opened > 5)
        assert len(up.sessions) <= 1
