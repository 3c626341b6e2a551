"""The route of metrics, on the adapter's port and on one of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric as Family

from adapter.app.measuring.parts import Metering
from adapter.telemetry.metric_registry import MetricRegistry
from tests.edge.conftest import StartAdapter, StartUpstream, done
from tests.edge.raw import RawClient
from tests.ports import free_port

ON = {"prometheus": {"enabled": True}}


async def get(
    client: RawClient, path: str = "/metrics", method: str = "GET", **fields: str
) -> tuple[int, bytes]:
    """Status and body of one request."""
    head, body = await client.request(method, b"", path, **fields)
    return head.status, body


async def test_metrics_are_served_on_this_machine(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """To everybody there, in the form that is asked for, and to no page of another host."""
    async with upstream(done) as up, adapter(up, telemetry=ON) as front, front.client() as client:
        head, body = await client.request("GET", path="/metrics")
        assert head["content-type"].startswith("text/plain; version=0.0.4")
        assert head["cache-control"] == "no-store"
        assert b"adapter_build_info{" in body
        head, body = await client.request("GET", path="/metrics", accept="application/openmetrics-text")
        assert head["content-type"].startswith("application/openmetrics-text") and body.endswith(b"# EOF\n")
        assert (await get(client, method="POST"))[0] == 405
        assert (await get(client, "/metrics/below"))[0] == 404
        assert (await get(client, origin="https://elsewhere.example"))[0] == 403
        assert (await get(client, host="elsewhere.example"))[0] == 421


async def test_metrics_that_are_off_are_not_there(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """As any other path that nobody serves."""
    async with upstream(done) as up, adapter(up) as front, front.client() as client:
        assert (await get(client))[0] == 404
        assert front.app.metering is None


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), ("secret-of-an-operator", 200)])
async def test_strangers_need_a_token(
    upstream: StartUpstream, adapter: StartAdapter, host: str, token: str | None, status: int
) -> None:
    """Wherever there are tokens: on this machine may be a proxy for everybody."""
    core = {
        "host": host,
        "allowed_hosts": ["127.0.0.1"],
        "auth": {"enabled": True, "token": "secret-of-an-operator"},
    }
    fields = {} if token is None else {"authorization": f"Bearer {token}"}
    async with upstream(done) as up, adapter(up, core=core, telemetry=ON) as front, front.client() as client:
        assert (await get(client, **fields))[0] == status


@pytest.mark.parametrize(("operators", "status"), [([], 200), (["ann"], 403), (["ann", "bob"], 200)])
async def test_named_operators_alone_scrape(
    upstream: StartUpstream, adapter: StartAdapter, operators: list[str], status: int
) -> None:
    """Those of ``console.operators``; every token is an operator's while none is named."""
    tokens = [
        {"name": "ann", "token": "secret-of-ann-123456"},
        {"name": "bob", "token": "secret-of-bob-123456"},
    ]
    core = {
        "host": "0.0.0.0",
        "allowed_hosts": ["127.0.0.1"],
        "auth": {"enabled": True, "tokens": tokens},
    }
    console = {"operators": operators}
    async with (
        upstream(done) as up,
        adapter(up, core=core, telemetry=ON, console=console) as front,
        front.client() as client,
    ):
        for name, expected in (("ann", 200), ("bob", status)):
            assert (await get(client, authorization=f"Bearer secret-of-{name}-123456"))[0] == expected


async def test_a_port_of_its_own_serves_nothing_else(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """And the adapter's port has no metrics then."""
    port = free_port()
    telemetry = {"prometheus": {"enabled": True, "port": port, "path": "/numbers"}}
    async with upstream(done) as up, adapter(up, telemetry=telemetry) as front, front.client() as client:
        assert (await get(client, "/numbers"))[0] == 404
        async with RawClient(port) as scraper:
            status, body = await get(scraper, "/numbers")
            assert status == 200 and b"adapter_build_info{" in body
            assert (await get(scraper, "/healthz"))[0] == 404
            assert (await get(scraper, "/mcp", method="POST"))[0] == 404
            assert (await get(scraper, "/numbers", method="DELETE"))[0] == 405
            assert (await get(scraper, "/numbers", host="elsewhere.example"))[0] == 421


async def test_scrapers_that_leave_start_no_second_writing(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The next one waits for the thread of the one before, whoever left."""
    began, end, running = threading.Semaphore(0), threading.Event(), 0

    def held() -> Iterator[Family]:
        nonlocal running
        running += 1
        began.release()
        end.wait(20)
        running -= 1
        yield from ()

    async with upstream(done) as up, adapter(up, telemetry=ON) as front:
        log = front.app.log
        metering = Metering(front.app.settings, MetricRegistry(gather=held), log)
        first = asyncio.create_task(metering.scrape(""))
        assert await asyncio.to_thread(began.acquire, timeout=20)
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.create_task(metering.scrape(""))
        assert not await asyncio.to_thread(began.acquire, timeout=0.2) and running == 1
        end.set()
        assert (await second)[0].startswith("text/plain")
