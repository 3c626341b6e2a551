"""What the adapter adds to what an upstream says it can do, in every shape that answer comes in."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest

from adapter.errors import UpstreamBroken
from adapter.relay.exchange import ClientResponse as Left
from adapter.upstream.port import Headers, header
from tests.relay.relaying import INITIALIZE, whole
from tests.relay.tooling import META, SSE, Tools, tools
from tests.scripted import ScriptedAnswer

CAME = (
    b'{"jsonrpc":"2.0", "id":0,"result":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{ "logging":{} }, "serverInfo":{"name":"x","version":"1.0"},"n":1.50}}'
)
LEFT = CAME.replace(b'{ "logging":{} }', b'{ "logging":{},"tools":{},"resources":{"listChanged":true} }')
HAS_ALL = LEFT.replace(b'"tools":{}', b'"tools":{"listChanged":false}')
JSON = ("Content-Type", "application/json")
GZIP = ("Content-Encoding", "gzip")
SESSION = ("Mcp-Session-Id", "up-1")


async def opened(process: Tools) -> tuple[Left, bytes]:
    """The answer to initialize, and its body."""
    ask = process.ask(INITIALIZE, "", session_id=None, headers=[("Accept-Encoding", "gzip")])
    answer = await process.relaying.relay.handle(ask)
    return answer, await whole(answer)


@pytest.mark.parametrize(
    ("headers", "sent", "left"),
    [
        ((JSON, SESSION), CAME, LEFT),
        ((JSON, SESSION), HAS_ALL, HAS_ALL),
        ((JSON, GZIP, SESSION), gzip.compress(CAME), LEFT),
        (
            (*SSE, SESSION),
            b": hi\r\n\r\nid: 1\ndata: " + CAME + b"\n\n",
            b": hi\r\n\r\nid: 1\ndata: " + LEFT + b"\n\n",
        ),
        ((*SSE, SESSION), b"data: " + HAS_ALL + b"\n\n", b"data: " + HAS_ALL + b"\n\n"),
    ],
    ids=["JSON", "JSON that has it all", "gzip", "stream", "stream that has it all"],
)
async def test_initialize_tells_of_what_is_added(
    tmp_path: Path, headers: Headers, sent: bytes, left: bytes
) -> None:
    """Only the capabilities are others; the session is minted, and asked for was an answer that can be read."""
    async with tools(tmp_path, lambda request: ScriptedAnswer(headers=headers, chunks=[sent])) as one:
        answer, body = await opened(one)
        assert body == left and header(answer.headers, "content-encoding") is None
        assert header(answer.headers, "mcp-session-id") not in (None, "up-1")
        request = one.upstream.requests[0]
        assert request.body == INITIALIZE and header(request.headers, "accept-encoding") == "identity"


async def test_compressed_answer_that_has_it_all_stays_compressed(tmp_path: Path) -> None:
    """What is not edited leaves as it came, and says so."""
    sent = gzip.compress(HAS_ALL)
    async with tools(
        tmp_path, lambda request: ScriptedAnswer(headers=(JSON, GZIP, SESSION), chunks=[sent])
    ) as one:
        answer, body = await opened(one)
        assert body == sent and header(answer.headers, "content-encoding") == "gzip"


async def test_compressed_stream_is_refused(tmp_path: Path) -> None:
    """It was asked for plain, and cannot be edited as it comes."""
    answer = ScriptedAnswer(headers=(*SSE, GZIP), chunks=[gzip.compress(b"data: " + CAME + b"\n\n")])
    async with tools(tmp_path, lambda request: answer) as one:
        with pytest.raises(UpstreamBroken):
            await opened(one)


@pytest.mark.parametrize("status", [200, 400])
async def test_failed_initialize_leaves_as_it_came(tmp_path: Path, status: int) -> None:
    """It tells of nothing and mints nothing."""
    failed = b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}'
    async with tools(tmp_path, lambda request: ScriptedAnswer(status, chunks=[failed])) as one:
        answer, body = await opened(one)
        assert (answer.status, body) == (status, failed) and header(answer.headers, "mcp-session-id") is None


async def test_compressed_request_is_sent_plain(tmp_path: Path) -> None:
    """Like everything that the adapter reads."""
    async with tools(tmp_path, lambda request: ScriptedAnswer(headers=(JSON, SESSION), chunks=[CAME])) as one:
        ask = one.ask(INITIALIZE, "", session_id=None, headers=[("Content-Encoding", "gzip")])
        ask.body, ask.encoded = gzip.compress(INITIALIZE), True
        assert await whole(await one.relaying.relay.handle(ask)) == LEFT
        assert one.upstream.requests[0].body == INITIALIZE
        assert header(one.upstream.requests[0].headers, "content-encoding") is None


@pytest.mark.parametrize("stream", [False, True])
async def test_discover_tells_of_the_same(tmp_path: Path, stream: bool) -> None:
    """The modern era's way to ask; what else the upstream says of itself stays."""
    said = (
        b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","capabilities":{"tools":{}},"ttlMs":5}}'
    )
    answer = (
        ScriptedAnswer(headers=SSE, chunks=[b"data: " + said + b"\n\n"])
        if stream
        else ScriptedAnswer(chunks=[said])
    )
    async with tools(tmp_path, lambda request: answer) as one:
        came = await one.request("server/discover", {"_meta": META}, modern=True)
        expected = orjson.loads(said)
        expected["result"]["capabilities"]["resources"] = {"listChanged": True}
        assert came == expected
