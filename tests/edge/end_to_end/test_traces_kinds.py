"""Traces of requests of every kind: over stdio, through another replica, of files, of the HTTP API, of batches."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from tests.edge.conftest import StartRoad
from tests.edge.consoling import Shop
from tests.edge.consoling import tool as offered
from tests.edge.end_to_end.test_sse_upstream import playing as playing_sse
from tests.edge.end_to_end.test_traces import (
    CLIENT,
    OTHER_TRACE,
    OUTER,
    PARENT,
    SERVER,
    TRACE,
    exported,
    pair,
    traced,
)
from tests.edge.file_tools import DOWNLOADS, FORM, TOOLS, call, form, playing, writing
from tests.edge.raw import call_body, in_json, result
from tests.edge.replicating import tool, two_replicas
from tests.telemetry.collectors import Collector, values

ECHOES = """
import json, sys
for message in map(json.loads, sys.stdin):
    meta = json.dumps(message.get("params", {}).get("_meta"))
    result = {"content": [{"type": "text", "text": meta}]}
    if message["method"] == "initialize":
        info = {"name": "echoes", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_process_gets_the_trace_in_the_message(
    collector: Collector, in_session: StartRoad, tmp_path: Path
) -> None:
    """There is no header over stdio, so that ``_meta`` alone carries it."""
    (tmp_path / "echoes.py").write_text(ECHOES)
    process = {"transport": "stdio", "command": sys.executable, "args": ["echoes.py"], "cwd": str(tmp_path)}
    settings = {"servers": [{"id": "raw", "mount_path": "/mcp", "upstream": process}]}
    async with in_session(**settings, **traced(collector)) as (_, front, client):
        _, body = await client.request("POST", call_body(), traceparent=PARENT)
        (told,) = orjson.loads(body)["result"]["content"]
        spans = await exported(front, collector)
    server, outgoing = pair(spans, "tools/call tool")
    assert values(outgoing.attributes)["network.transport"] == "pipe"
    assert (server.trace_id.hex(), outgoing.parent_span_id) == (TRACE, server.span_id)
    assert orjson.loads(told["text"]) == {"traceparent": f"00-{TRACE}-{outgoing.span_id.hex()}-01"}


async def test_a_call_through_another_replica_is_one_trace(collector: Collector, tmp_path: Path) -> None:
    """The replica that the client speaks to records it, and the server gets that one's span."""
    async with playing_sse() as player:
        server = {"upstream": {"transport": "sse", "url": player.site.url}}
        async with (
            two_replicas(tmp_path, server, **traced(collector)) as (_, _, b, first),
            b.client(first.session) as second,
        ):
            head, _ = await second.request("POST", tool("read", 2), traceparent=PARENT)
            assert head.status == 200
    posted = [post.message for post in player.site.posted if post.message["method"] == "tools/call"]
    _, *parent, _ = posted[-1]["params"]["_meta"]["traceparent"].split("-")
    family = [span for span in collector.spans() if span.trace_id.hex() == TRACE]
    (entered,) = [span for span in family if span.kind == SERVER]
    (left,) = [span for span in family if span.kind == CLIENT and span.name.startswith("tools/call")]
    assert parent == [TRACE, left.span_id.hex()]
    assert left.parent_span_id == entered.span_id


async def test_files_and_wrapped_tools_have_spans(collector: Collector, in_session: StartRoad) -> None:
    """Uploads and downloads by their routes, without a name of a file; a wrapped tool has both spans."""
    settings = {"server": TOOLS, "core": DOWNLOADS, **traced(collector)}
    async with in_session(playing(writing(b"made")), **settings) as (_, front, client):
        body = form(b"content", "SECRET-7.txt")
        head, _ = await client.request("POST", body, "/upload/raw", content_type=FORM, traceparent=PARENT)
        assert head.status == 200
        made = await call(client, "write", {"filename": "SECRET-8.txt"})
        link = urlsplit(made["_meta"]["artifact"]["download_url"])
        for path in (f"{link.path}?{link.query}", f"{link.path}?sig=no&exp=1"):
            await client.request("GET", b"", path, traceparent=OUTER)
        await client.request("POST", b"", "/upload/nobody")
        spans = await exported(front, collector)
    files = [span for span in spans if values(span.attributes).get("entrance") == "files"]
    download = "GET /artifacts/{server_id}/{session_id}/{file_id}/{filename}"
    upload = "POST /upload/{server_id}"
    told = [(span.name, values(span.attributes)["http.response.status_code"]) for span in files]
    assert told == [(upload, 200), (download, 200), (download, 401), (upload, 404)]
    assert [span.trace_id.hex() for span in files[:3]] == [TRACE, OTHER_TRACE, OTHER_TRACE]
    server, outgoing = pair(spans, "tools/call write")
    assert outgoing.parent_span_id == server.span_id
    assert b"SECRET" not in b"".join(span.SerializeToString() for span in spans)


async def test_a_call_over_the_http_api_is_a_trace(collector: Collector, road: StartRoad) -> None:
    """All that the adapter asks the upstream for it belongs to it."""
    console = {"enabled": True, "allow_execute": True}
    async with road(Shop(offered("tool")), console=console, **traced(collector)) as (_, front, client):
        path = "/explorer/raw/tools/{}/call"
        head, _ = await client.request("POST", b"{}", path.format("tool"), traceparent=PARENT)
        assert head.status == 200
        head, _ = await client.request("POST", b"{}", path.format("other"), traceparent=OUTER)
        assert head.status >= 400
        spans = await exported(front, collector)
    family = [span for span in spans if span.trace_id.hex() == TRACE]
    (entered,) = [span for span in family if span.kind == SERVER]
    assert (entered.name, values(entered.attributes)["entrance"]) == ("tools/call tool", "http")
    asked = [span for span in family if span.kind == CLIENT]
    assert "tools/call tool" in [span.name for span in asked]
    assert {span.parent_span_id for span in asked} == {entered.span_id}
    (refused,) = [span for span in spans if span.kind == SERVER and span.trace_id.hex() == OTHER_TRACE]
    assert values(refused.attributes)["error.type"] == str(head.status)


async def test_a_batch_has_the_spans_of_its_first_request(
    collector: Collector, in_session: StartRoad
) -> None:
    """Its bytes stay as they are; the header tells the trace."""

    body = (
        b'[{"jsonrpc":"2.0","method":"notifications/x"},'
        + call_body("a", 1)
        + b","
        + call_body("b", 2)
        + b"]"
    )
    script = in_json(b"[" + result(1) + b"," + result(2) + b"]")
    async with in_session(script, version="2025-03-26", **traced(collector)) as (up, front, client):
        head, _ = await client.request("POST", body, traceparent=PARENT)
        assert head.status == 200
        spans = await exported(front, collector)
    family = [span for span in spans if span.trace_id.hex() == TRACE]
    assert [span.name for span in family if span.kind == SERVER] == ["tools/call a"]
    (outgoing,) = [span for span in family if span.kind == CLIENT]
    exchange = up.seen[-1]
    assert exchange.body == body
    assert exchange.head["traceparent"] == f"00-{TRACE}-{outgoing.span_id.hex()}-01"
