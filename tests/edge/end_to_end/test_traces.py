"""Traces through the adapter: from the client's span to the upstream's, with the adapter's own between them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from adapter.wire.envelope import parse
from tests.e2e.processes import START_TIMEOUT, start
from tests.edge.conftest import Adapter, StartAdapter, StartRoad
from tests.edge.raw import Exchange, RawUpstream, call_body, event, result
from tests.telemetry.collectors import Collector, values

TRACE, OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED = f"00-{TRACE}-b7ad6b7169203331-00"
OUTER = f"00-{OTHER_TRACE}-c7ad6b7169203331-01"

SERVER, CLIENT = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT


def traced(collector: Collector, **more: Any) -> dict[str, Any]:
    """The settings of an adapter that exports to this collector."""
    return {"telemetry": {"enabled": True, "transport": "http", "endpoint": collector.url, **more}}


def with_meta(**members: Any) -> bytes:
    message = orjson.loads(call_body())
    message["params"]["_meta"] = members
    return orjson.dumps(message)


async def exported(front: Adapter, collector: Collector) -> list[Span]:
    """All spans of the adapter, which exports no more."""
    assert front.app.telemetry is not None
    assert await front.app.telemetry.close()
    return collector.spans()


def pair(spans: list[Span], name: str) -> tuple[Span, Span]:
    """The spans of one message: the client's request, and the one to the upstream."""
    named = [span for span in spans if span.name == name]
    (server,) = [span for span in named if span.kind == SERVER]
    (client,) = [span for span in named if span.kind == CLIENT]
    return server, client


def sent(up: RawUpstream, method: str = "tools/call") -> set[str]:
    """The traces that the last such request names, in its header and in its message."""
    exchange = up.calls(method)[-1]
    params = exchange.message.get("params", {})
    assert isinstance(params, dict)
    return {named.split("-")[1] for named in (exchange.head["traceparent"], params["_meta"]["traceparent"])}


@pytest.mark.deep
async def test_one_trace_joins_client_adapter_and_upstream(
    collector: Collector, adapter: StartAdapter, tmp_path: Path
) -> None:
    """Each span is the child of the one before it, from the SDK's client by way of the adapter to the SDK's server."""
    program = [sys.executable, "-m", "tests.edge.end_to_end.traced_peers", collector.url]
    peers = await start(program, tmp_path / "peers.log")
    try:
        url = await peers.line(START_TIMEOUT)
        entry = {"upstream": {"url": url}}
        async with adapter(Unlisted(url), server=entry, **traced(collector)) as front:
            await peers.say(f"http://127.0.0.1:{front.port}/mcp")
            assert await peers.line(START_TIMEOUT) == "called"
            spans = await exported(front, collector)
    finally:
        await peers.stop()
    (agent,) = [span for span in spans if span.name == "agent"]
    (asked,) = [span for span in spans if span.name == "MCP send tools/call greet"]
    named = {span.span_id: span for span in spans if span.name == "tools/call greet"}
    (server,) = [span for span in named.values() if span.parent_span_id == asked.span_id]
    (client,) = [span for span in named.values() if span.parent_span_id == server.span_id]
    (answered,) = [span for span in named.values() if span.parent_span_id == client.span_id]
    assert asked.parent_span_id == agent.span_id
    assert (server.kind, client.kind, answered.kind) == (SERVER, CLIENT, SERVER)
    assert len({span.trace_id for span in (agent, asked, server, client, answered)}) == 1
    assert agent.start_time_unix_nano <= server.start_time_unix_nano <= client.start_time_unix_nano
    assert client.end_time_unix_nano <= server.end_time_unix_nano <= agent.end_time_unix_nano


class Unlisted:
    """An upstream that is known by its URL alone."""

    def __init__(self, url: str) -> None:
        self.url = url


async def test_a_trace_goes_on_from_the_header_and_from_meta(
    collector: Collector, in_session: StartRoad
) -> None:
    """The parent in ``_meta`` counts before the header's, which becomes a link; what goes on names the adapter's span.

    ``tracestate`` and ``baggage`` go on as they came.
    """
    async with in_session(**traced(collector)) as (up, front, client):
        for body, fields in (
            (call_body(), {"traceparent": PARENT, "tracestate": "a=1", "baggage": "b=2"}),
            (with_meta(progressToken=1, traceparent=PARENT, tracestate="a=1"), {}),
            (with_meta(traceparent=PARENT), {"traceparent": OUTER}),
            (with_meta(progressToken=1), {"traceparent": "junk"}),
        ):
            head, _ = await client.request("POST", body, **fields)
            assert head.status == 200
        spans = await exported(front, collector)
    calls = [span for span in spans if span.name == "tools/call tool"]
    servers = [span for span in calls if span.kind == SERVER]
    clients = [span for span in calls if span.kind == CLIENT]
    assert [span.trace_id.hex() == TRACE for span in servers] == [True, True, True, False]
    assert [span.parent_span_id.hex() for span in servers] == ["b7ad6b7169203331"] * 3 + [""]
    assert [link.trace_id.hex() for span in servers for link in span.links] == [OTHER_TRACE]
    assert [span.parent_span_id for span in clients] == [span.span_id for span in servers]
    for span, exchange in zip(clients, up.calls("tools/call"), strict=True):
        meta: dict[str, Any] = parse(exchange.body)["params"]["_meta"]
        assert meta["traceparent"] == exchange.head["traceparent"]
        *ids, flags = meta["traceparent"].split("-")
        assert ids == ["00", span.trace_id.hex(), span.span_id.hex()] and int(flags) & 1
    first, second, _, last = up.calls("tools/call")
    assert (first.head["tracestate"], first.head["baggage"]) == ("a=1", "b=2")
    assert parse(second.body)["params"]["_meta"]["tracestate"] == "a=1"
    assert parse(last.body)["params"]["_meta"]["progressToken"] == 1


@pytest.mark.parametrize("sampler", [None, "always_off"])
async def test_what_is_not_sampled_is_sent_on_as_it_came(
    collector: Collector, road: StartRoad, sampler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag of the parent decides, or the operator's sampler; bytes and fields then stay as they are."""
    if sampler is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    body = with_meta(traceparent=UNSAMPLED).replace(b":", b" : ")
    async with road(**traced(collector)) as (up, front, client):
        await client.initialize(traceparent=UNSAMPLED)
        await client.request("POST", body, traceparent=UNSAMPLED)
        await client.request("POST", call_body(), traceparent=UNSAMPLED)
        spans = await exported(front, collector)
    first, second = up.calls("tools/call")
    assert (first.body, first.head["traceparent"]) == (body, UNSAMPLED)
    assert (second.body, second.head["traceparent"]) == (call_body(), UNSAMPLED)
    assert spans == []


async def test_spans_tell_how_a_request_ended(collector: Collector, in_session: StartRoad) -> None:
    """By the code of an error, a tool's own error, a status of HTTP or the adapter's failure, whole and in a stream."""
    answers = iter(
        (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"not SECRET-7"}}',
            b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError" : true}}',
            b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}',
        )
    )

    async def script(exchange: Exchange) -> None:
        if (body := next(answers, None)) is not None:
            await exchange.json(body)
        elif len(up.calls("tools/call")) == 4:
            await exchange.stream(
                event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'),
                event(result(1).replace(b'"content"', b'"isError":true,"content"')),
            )
        elif len(up.calls("tools/call")) == 5:
            await exchange.answer(500, b"broken", "Content-Type: text/plain")
        else:
            exchange.hang_up()

    async with in_session(script, **traced(collector)) as (up, front, client):
        for _ in range(6):
            await client.request("POST", call_body())
        spans = await exported(front, collector)
    calls = [span for span in spans if span.name == "tools/call tool"]
    kinds: dict[int, list[Any]] = {SERVER: [], CLIENT: []}
    for span in calls:
        kinds[span.kind].append((values(span.attributes).get("error.type"), span.status.code))
    error = Status.STATUS_CODE_ERROR
    ended = [("-32602", error), ("tool_error", error), (None, 0), ("tool_error", error), ("500", error)]
    assert kinds[SERVER] == [*ended, ("-32011", error)]
    assert kinds[CLIENT] == [*ended, ("upstream_unanswered", error)]
    codes = [values(span.attributes).get("rpc.response.status_code") for span in calls]
    assert codes.count("-32602") == 2
    assert b"SECRET-7" not in b"".join(span.SerializeToString() for span in spans)


async def test_a_renewed_session_stays_in_its_trace(collector: Collector, in_session: StartRoad) -> None:
    """After a 404 the adapter opens the upstream's session again; all of that belongs to the call."""
    forgotten = True

    async def script(exchange: Exchange) -> None:
        nonlocal forgotten
        if forgotten:
            forgotten = False
            return await exchange.answer(404, b"")
        return await exchange.json(result(1))

    async with in_session(script, **traced(collector)) as (up, front, client):
        head, _ = await client.request("POST", call_body(), traceparent=PARENT)
        assert head.status == 200
        spans = await exported(front, collector)
    family = [span for span in spans if span.trace_id.hex() == TRACE]
    (server,) = [span for span in family if span.kind == SERVER]
    asked = [(span.name, span.parent_span_id) for span in family if span.kind == CLIENT]
    names = ("tools/call tool", "initialize", "notifications/initialized", "tools/call tool")
    assert sorted(asked) == sorted((name, server.span_id) for name in names)
    assert sent(up) == {TRACE}
