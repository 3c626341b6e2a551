"""Counts of HTTP requests."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.edge.conftest import StartAdapter, StartUpstream, done
from tests.edge.raw import RawClient, call_body

ON = {"prometheus": {"enabled": True}}
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


async def test_requests_are_counted_by_route_group(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """With their methods and statuses, the time they took, and the bytes of their bodies."""
    async with upstream(done) as up, adapter(up, telemetry=ON) as front, front.client() as client:
        await client.initialize()
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


async def test_refusals_are_counted_by_the_code_of_their_error(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Those for want of a credential apart from all others."""
    auth = {"enabled": True, "token": "secret-of-the-caller"}
    fields = {"authorization": "Bearer secret-of-the-caller"}
    async with (
        upstream(done) as up,
        adapter(up, core={"auth": auth}, telemetry=ON) as front,
        front.client() as client,
    ):
        await client.request("POST", call_body())
        await client.request("POST", call_body(), origin="https://elsewhere.example")
        await client.request("POST", b"{}", "/mcp", **fields)
        await client.request("GET", path="/nowhere")
        found = await numbers(client, **fields)
    assert found["adapter_auth_rejections_total", "unauthorized", "mcp", "raw"] == 1
    assert found["adapter_auth_rejections_total", "origin_refused", "mcp", "raw"] == 1
    assert found["adapter_request_rejections_total", "bad_request", "mcp", "raw"] == 1
    assert found["adapter_request_rejections_total", "not_found", "other", ""] == 1


async def test_what_is_no_request_is_counted_too(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """By its status: it has neither a method nor a path."""
    async with upstream(done) as up, adapter(up, telemetry=ON) as front, front.client() as client:
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


async def test_clients_for_whom_there_is_no_place_are_counted(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """By the path that they asked for."""
    async with (
        upstream(done) as up,
        adapter(up, core={"max_connections": 1}, telemetry=ON) as front,
        front.client() as client,
    ):
        await client.initialize()
        async with front.client() as other:
            head, _ = await other.request("POST", call_body())
            assert head.status == 503
        found = await numbers(client)
    assert found["adapter_request_rejections_total", "connections_taken", "mcp", "raw"] == 1
