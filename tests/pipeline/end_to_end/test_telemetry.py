"""What a collector is told of calls: their spans, and none of what callers sent or tools answered."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.pipeline.end_to_end.living import ERAS, Answer, Speaker, living
from tests.pipeline.end_to_end.workshop import saying, workshop
from tests.telemetry.collectors import Collector, http_collector, values

SETTINGS = """
telemetry: {enabled: true, transport: http, endpoint: "${COLLECTOR}"}
connectors:
  - {name: main, connector: sqlite, connection_string: ":memory:"}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      work:
        auth: {plugin: api_key, policy: {value: "k3y-s3cret"}}
        middleware: ["code.py#around"]
        limits: {rate: {max: 2, key: session}}
        mappers: {output: "code.py#output"}
  - id: shop
    mount_path: /mcp/shop
    upstream: {transport: hosted}
    tools:
      define:
        - name: find
          use: main
          statement: "SELECT {{ inputs.q }} AS q"
          inputs: {q: {type: string}}
          cache: {enabled: true}
        - {name: broken, handler: "code.py#broken"}
"""

CODE = """
async def around(ctx, args, next):
    return await next()


def output(payload):
    return payload["results"]


def broken(payload):
    raise RuntimeError("no way to postgres://me:hunter2@db/x")
"""

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
KEY = {"X-API-Key": "k3y-s3cret"}


@contextlib.asynccontextmanager
async def observed(place: Path, collector: Collector, version: str, path: str) -> AsyncIterator[Speaker]:
    """A client of an adapter whose telemetry has arrived when the block is left."""
    async with workshop({"work": saying({"answer": "ANSWERED-9"})}) as up:
        environ = {"COLLECTOR": collector.url, "UPSTREAM": up.url}
        async with (
            living(place, SETTINGS, environ, scripts={"code": CODE}) as front,
            front.speaker(version, path) as speaker,
        ):
            yield speaker


def tree(collector: Collector, root: Any) -> list[Any]:
    """Names of a span and of those below it, nested."""
    spans = [span for span in collector.spans() if span.parent_span_id == root.span_id]
    below = [tree(collector, span) for span in sorted(spans, key=lambda span: span.start_time_unix_nano)]
    return [root.name, *below]


def calls(collector: Collector) -> list[Any]:
    spans = [
        span
        for span in collector.spans()
        if span.kind == Span.SPAN_KIND_SERVER and span.name.startswith("tools/call ")
    ]
    return sorted(spans, key=lambda span: span.start_time_unix_nano)


def everything(collector: Collector) -> bytes:
    """All bytes that were sent."""
    return b"".join(delivery.message.SerializeToString() for delivery in collector.deliveries)


@pytest.mark.parametrize("version", ERAS)
async def test_h34_v24_a_call_is_one_tree_of_spans_in_its_clients_trace(tmp_path: Path, version: str) -> None:
    """The call, and below it its stages side by side in the order they work; of a proxied tool too.

    Together they take no longer than the call, so that durations add up.
    """
    async with http_collector() as collector:
        async with observed(tmp_path, collector, version, "/mcp") as speaker:
            answer = await speaker.call("work", {"q": "ASKED-7"}, {**KEY, **PARENT})
            assert answer.data == {"answer": "ANSWERED-9"}
        (call,) = calls(collector)
        assert call.trace_id.hex() == TRACE and call.parent_span_id.hex() == "b7ad6b7169203331"
        before, after = ("auth", "limits", "middleware", "execute"), ("middleware", "output_transform")
        assert tree(collector, call) == [
            "tools/call work",
            *([f"stage.{name}"] for name in before),
            ["tools/call work"],
            ["tools/list"],
            *([f"stage.{name}"] for name in after),
        ]
        below = [span for span in collector.spans() if span.parent_span_id == call.span_id]
        stages = [span for span in below if span.name.startswith("stage.")]
        assert len(stages) == len(before) + len(after)
        spent = sum(span.end_time_unix_nano - span.start_time_unix_nano for span in stages)
        assert spent <= call.end_time_unix_nano - call.start_time_unix_nano
        assert {span.trace_id.hex() for span in below} == {TRACE}
        others = [span for span in collector.spans() if span not in below and span is not call]
        # The messages that opened the session came without a trace.
        assert all(span.trace_id.hex() != TRACE and "tools/call" not in span.name for span in others)
        told = values(call.attributes)
        assert told.pop("jsonrpc.request.id").isdecimal()
        assert told.pop("mcp.protocol.version", version) == version
        assert told == {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "work",
            "network.transport": "tcp",
            "network.protocol.name": "http",
            "network.protocol.version": "1.1",
            "tool.name": "work",
            "tool.kind": "proxied",
            "server.id": "up",
            "entrance": "mcp",
            "success": True,
        }


@pytest.mark.parametrize("version", ERAS)
async def test_h37_nothing_that_was_said_is_told(tmp_path: Path, version: str) -> None:
    """Neither arguments, results, keys nor credentials are in any byte that leaves; what ran and how it ended is."""
    answers: list[Answer] = []
    async with http_collector() as collector:
        async with observed(tmp_path, collector, version, "/mcp") as speaker:
            for headers in (KEY, KEY, KEY, {"X-API-Key": "WRONG-KEY-5"}):
                answers.append(await speaker.call("work", {"q": "ASKED-7"}, headers))
        async with observed(tmp_path, collector, version, "/mcp/shop") as speaker:
            for _ in range(2):
                answers.append(await speaker.call("find", {"q": "ASKED-7"}))
            answers.append(await speaker.call("broken", {}))
            await speaker.call("nothing-MADE-UP", {})
        sent = everything(collector)
        for secret in (b"ASKED-7", b"ANSWERED-9", b"k3y-s3cret", b"WRONG-KEY-5", b"hunter2", b"Traceback"):
            assert secret not in sent
        failures = [answer.failure["stage"] for answer in answers if answer.result.get("isError")]
        assert failures == ["limits", "auth", "handler"]
        told = [(values(span.attributes), span.status.code) for span in calls(collector)]
        # A result that is an error is one for OpenTelemetry too, whoever made the mistake.
        ended = [(each.get("error.stage"), each.get("error.type"), code) for each, code in told]
        assert ended[:2] == [(None, None, 0)] * 2
        assert [each[:2] for each in ended[2:4]] == [("limits", "rate"), ("auth", "tool_error")]
        assert ended[4:6] == [(None, None, 0)] * 2
        assert ended[6][:2] == ("handler", "tool_error")
        assert ended[7] == (None, "-32601", 2)
        assert [code for *_, code in ended] == [0, 0, 2, 2, 0, 0, 2, 2]
        hits = [values(span.attributes).get("cache.hit") for span in calls(collector)]
        assert hits == [None] * 4 + [False, True] + [None] * 2


async def test_h34_a_statement_is_a_span_within_its_call(tmp_path: Path) -> None:
    """Named by the kind of its connector, beside whether the cache had the answer; a hit asks no connector."""
    async with http_collector() as collector:
        async with observed(tmp_path, collector, ERAS[0], "/mcp/shop") as speaker:
            for _ in range(2):
                await speaker.call("find", {"q": "x"})
        first, second = [str(tree(collector, call)) for call in calls(collector)]
        assert "connector.sqlite" in first and "connector.sqlite" not in second
        assert "stage.execute" in first and "stage.execute" in second


async def test_h35_calls_are_counted_by_the_names_that_are_offered(tmp_path: Path) -> None:
    """Calls, hits and misses, and refusals by auth; no name that a client made up becomes a series."""
    async with http_collector() as collector:
        async with observed(tmp_path, collector, ERAS[0], "/mcp") as speaker:
            await speaker.call("work", {}, {"X-API-Key": "no"})
            await speaker.call("made-up", {})
        async with observed(tmp_path, collector, ERAS[0], "/mcp/shop") as speaker:
            for _ in range(3):
                await speaker.call("find", {"q": "x"})
            await speaker.call("made-up", {})
        metrics: dict[str, Any] = {}
        for metric in collector.metrics():
            points = metric.sum.data_points or metric.histogram.data_points
            metrics.setdefault(metric.name, []).extend(points)
        executed = {
            (told["tool_name"], told["outcome"]): point.as_double
            for point in metrics["adapter_upstream_tool_calls_total"]
            if (told := values(point.attributes))["tool_name"] in ("work", "find")
        }
        assert executed == {("work", "tool_error"): 1, ("find", "ok"): 3}
        looks = metrics["adapter_tool_cache_lookups_total"]
        assert {values(each.attributes)["result"]: each.as_double for each in looks} == {"hit": 2, "miss": 1}
        assert [each.as_double for each in metrics["adapter_tool_auth_failures_total"]] == [1]


async def test_h36_telemetry_is_off_unless_the_settings_turn_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, a variable of the environment or a flag, in that order of weight; off, nothing is sent."""
    monkeypatch.setenv("FOLDER", "x")
    off = SETTINGS.replace("enabled: true, transport", "transport").replace("cache: {true}", "")
    async with http_collector() as collector, workshop({"work": saying(1)}) as up:
        environ = {"COLLECTOR": collector.url, "UPSTREAM": up.url}
        for variables, flags, expected in (
            ({}, {}, False),
            ({"ADAPTER_TELEMETRY__ENABLED": "true"}, {}, True),
            ({"ADAPTER_TELEMETRY__ENABLED": "true"}, {"telemetry.enabled": "false"}, False),
            ({}, {"telemetry.enabled": "true"}, True),
        ):
            collector.deliveries.clear()
            async with living(
                tmp_path, off, environ | variables, scripts={"code": CODE}, said=flags
            ) as front:
                assert (front.app.telemetry is not None) is expected
                await front.call("find", {"q": "x"}, path="/mcp/shop")
            assert bool(collector.spans()) is expected
        assert collector.resources()[0]["service.name"] == "mcp-adapter"
