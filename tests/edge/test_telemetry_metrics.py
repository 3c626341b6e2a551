"""The route of metrics, on the adapter's port and on one of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from adapter.app.measuring.parts import AdapterMetrics
from adapter.telemetry.metric_registry import MetricRegistry
from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream, done
from tests.edge.raw import RawClient, call_body
from tests.ports import free_port

ON = {"prometheus": {"enabled": True}}


async def get(
    client: RawClient, path: str = "/metrics", method: str = "GET", **fields: str
) -> tuple[int, bytes]:
    """Status and body of one request."""
    head, body = await client.request(method, b"", path, **fields)
    return head.status, body


async def test_metrics_are_served_on_this_machine(road: StartRoad) -> None:
    """To everybody there, in the form that is asked for, and to no page of another host."""
    async with road(done, telemetry=ON) as (_, _, client):
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


async def test_metrics_that_are_off_are_not_there(road: StartRoad) -> None:
    """As any other path that nobody serves."""
    async with road(done) as (_, front, client):
        assert (await get(client))[0] == 404
        assert front.app.metering is None


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), ("secret-of-an-operator", 200)])
async def test_strangers_need_a_token(road: StartRoad, host: str, token: str | None, status: int) -> None:
    """Wherever there are tokens: on this machine may be a proxy for everybody."""
    core = {
        "host": host,
        "allowed_hosts": ["127.0.0.1"],
        "auth": {"enabled": True, "token": "secret-of-an-operator"},
    }
    fields = {} if token is None else {"authorization": f"Bearer {token}"}
    async with road(done, core=core, telemetry=ON) as (_, _, client):
        assert (await get(client, **fields))[0] == status


@pytest.mark.parametrize(("operators", "status"), [([], 200), (["ann"], 403), (["ann", "bob"], 200)])
async def test_named_operators_alone_scrape(road: StartRoad, operators: list[str], status: int) -> None:
    """Those of ``console.operators``; every token is an operator's while none is named."""
    tokens = [
        {"name": "ann", "token": "secret-of-ann-123456"},
        {"name": "bob", "token": "secret-of-bob-123456"},
    ]
    core = {"host": "0.0.0.0", "allowed_hosts": ["127.0.0.1"], "auth": {"enabled": True, "tokens": tokens}}
    console = {"operators": operators}
    async with road(done, core=core, telemetry=ON, console=console) as (_, _, client):
        for name, expected in (("ann", 200), ("bob", status)):
            assert (await get(client, authorization=f"Bearer secret-of-{name}-123456"))[0] == expected


async def test_a_port_of_its_own_serves_nothing_else(road: StartRoad) -> None:
    """And the adapter's port has no metrics then."""
    port = free_port()
    telemetry = {"prometheus": {"enabled": True, "port": port, "path": "/numbers"}}
    async with road(done, telemetry=telemetry) as (_, _, client):
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
        metering = AdapterMetrics(front.app.settings, MetricRegistry(gather=held), log)
        first = asyncio.create_task(metering.scrape(""))
        assert await asyncio.to_thread(began.acquire, timeout=20)
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.create_task(metering.scrape(""))
        assert not await asyncio.to_thread(began.acquire, timeout=0.2) and running == 1
        end.set()
        assert (await second)[0].startswith("text/plain")


# --- counts of HTTP requests -------------------------------------------------------------------------------------


Numbers = dict[tuple[str, ...], float]


async def numbers(client: RawClient, **fields: str) -> Numbers:
    """The samples by name and the values of their labels, in the order of the labels' names."""
    head, body = await client.request("GET", b"", "/metrics", **fields)
    assert head.status == 200, body
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(body.decode())
        for each in family.samples
    }


async def test_requests_are_counted_by_route_group(in_session: StartRoad) -> None:
    """With their methods and statuses, the time they took, and the bytes of their bodies."""
    async with in_session(done, telemetry=ON) as (_, _, client):
        head, body = await client.request("POST", call_body())
        assert head.status == 200
        await client.request("GET", path="/healthz")
        await client.request("GET", path="/../etc/passwd")
        await client.request("PROPFIND", path="/nowhere")
        found = await numbers(client)
    requests = "adapter_http_requests_total"
    assert found[requests, "POST", "mcp", "raw", "2xx"] >= 2
    assert found[requests, "GET", "health", "", "2xx"] == 1
    assert found[requests, "GET", "other", "", "4xx"] == 1
    assert found[requests, "other", "other", "", "4xx"] == 1
    assert found["adapter_http_request_duration_seconds_count", "POST", "mcp", "raw", "2xx"] >= 2
    assert found["adapter_http_request_body_bytes_total", "mcp", "raw"] > len(call_body())
    assert found["adapter_http_response_body_bytes_total", "mcp", "raw"] > len(body)
    assert found["adapter_http_requests_in_flight", "metrics"] == 1


async def test_refusals_are_counted_by_the_code_of_their_error(road: StartRoad) -> None:
    """Those for want of a credential apart from all others."""
    auth = {"enabled": True, "token": "secret-of-the-caller"}
    fields = {"authorization": "Bearer secret-of-the-caller"}
    async with road(done, core={"auth": auth}, telemetry=ON) as (_, _, client):
        await client.request("POST", call_body())
        await client.request("POST", call_body(), origin="https://elsewhere.example")
        await client.request("POST", b"{}", "/mcp", **fields)
        await client.request("GET", path="/nowhere")
        found = await numbers(client, **fields)
    assert found["adapter_auth_rejections_total", "unauthorized", "mcp", "raw"] == 1
    assert found["adapter_auth_rejections_total", "origin_refused", "mcp", "raw"] == 1
    assert found["adapter_request_rejections_total", "bad_request", "mcp", "raw"] == 1
    assert found["adapter_request_rejections_total", "not_found", "other", ""] == 1


async def test_what_is_no_request_is_counted_too(road: StartRoad) -> None:
    """By its status: it has neither a method nor a path."""
    async with road(done, telemetry=ON) as (_, front, client):
        for broken in (
            b"this is no request\r\n\r\n",
            b"GET / HTTP/2.0\r\nHost: here\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: gzip\r\n\r\n",
        ):
            async with front.client() as stranger:
                await stranger.send_more(broken)
                assert (await stranger.head()).status >= 400
        found = await numbers(client)
    refused = {key[1]: value for key, value in found.items() if key[0] == "adapter_request_rejections_total"}
    assert refused == {"http_400": 1, "http_505": 1, "http_501": 1}


async def test_clients_for_whom_there_is_no_place_are_counted(in_session: StartRoad) -> None:
    """By the path that they asked for."""
    async with in_session(done, core={"max_connections": 1}, telemetry=ON) as (_, front, client):
        async with front.client() as other:
            head, _ = await other.request("POST", call_body())
            assert head.status == 503
        found = await numbers(client)
    assert found["adapter_request_rejections_total", "connections_taken", "mcp", "raw"] == 1
