"""What a client is told when its own request cannot be served: each cell of the table of failures."""

from __future__ import annotations

import asyncio
import gzip

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import (
    INITIALIZE,
    call_body,
    error_of,
    in_two,
    modern_body,
    modern_fields,
    read_chunk,
    result,
)

TOKENS = {
    "auth": {
        "enabled": True,
        "tokens": [{"name": "ann", "token": "ann-secret"}, {"name": "ben", "token": "ben-secret"}],
    }
}
SMALL = {"max_request_bytes": 2048}
BATCH = b"[" + call_body(number=1) + b"," + call_body(number=2) + b"]"


@pytest.mark.parametrize(
    ("body", "fields"), [(INITIALIZE, {}), (modern_body(number=0), modern_fields())], ids=["legacy", "modern"]
)
async def test_token_missing_or_wrong_is_401_under_the_requests_id(
    road: StartRoad, body: bytes, fields: dict[str, str]
) -> None:
    """Both eras get WWW-Authenticate and a JSON-RPC error under the id; a GET gets ``detail``; none gets in."""
    async with road(core=TOKENS) as (up, _, client):
        for credentials in ({}, {"authorization": "Bearer wrong"}, {"x_mcp_adapter_auth_token": "wrong"}):
            head, text = await client.request("POST", body, **fields, **credentials)
            assert head.status == 401 and head["www-authenticate"].startswith("Bearer")
            assert error_of(text)["code"] == -32600 and error_of(text)["id"] == 0
            head, text = await client.request("GET", b"", **credentials)
            assert head.status == 401 and list(orjson.loads(text)) == ["detail"]
        assert up.seen == []


async def test_foreign_host_is_421_and_foreign_origin_403(road: StartRoad) -> None:
    """A page that rebinds its name to this machine is refused before anything is read."""
    async with road() as (up, _, client):
        for body, era in ((INITIALIZE, {}), (modern_body(), modern_fields())):
            head, text = await client.request("POST", body, **{**era, "host": "evil.example"})
            assert head.status == 421 and "core.allowed_hosts" in error_of(text)["message"]
            head, text = await client.request("POST", body, **{**era, "origin": "https://evil.example"})
            assert head.status == 403 and "core.allowed_origins" in error_of(text)["message"]
        head, text = await client.request("GET", path="/healthz", host="evil.example")
        assert head.status == 421 and list(orjson.loads(text)) == ["detail"]
        assert up.seen == []


async def test_other_methods_are_405_with_what_is_served(road: StartRoad) -> None:
    """The Allow field names the methods of an MCP endpoint."""
    async with road() as (up, _, client):
        head, _ = await client.request("PUT", b"{}")
        assert (head.status, head["allow"]) == (405, "GET, POST, DELETE, OPTIONS")
        assert up.seen == []


async def test_unknown_mount_is_404_with_detail(road: StartRoad) -> None:
    """Where nothing is served, no JSON-RPC is spoken either."""
    async with road() as (_, _, client):
        for body, fields in ((INITIALIZE, {}), (modern_body(), modern_fields()), (b"", {})):
            head, text = await client.request("POST" if body else "GET", body, path="/nowhere", **fields)
            assert head.status == 404 and list(orjson.loads(text)) == ["detail"]


@pytest.mark.parametrize("fields", [{}, modern_fields()], ids=["legacy", "modern"])
@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b'"\xff"', -32700), (b'"text"', -32600)])
async def test_what_is_no_message_is_400(
    road: StartRoad, body: bytes, code: int, fields: dict[str, str]
) -> None:
    """Bad JSON is -32700, JSON that is no message -32600; the id that cannot be known is null."""
    async with road() as (_, _, client):
        head, text = await client.request("POST", body, **fields)
        assert head.status == 400
        assert error_of(text)["code"] == code and error_of(text)["id"] is None


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":"k","method":5}', "k"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":3}', 7),
        (b'{"id":1.5,"method":"ping"}', 1.5),
        (b'{"jsonrpc":"2.0","id":0}', 0),
        (b'{"jsonrpc":"2.0","id":"k","method":"a","method":"b"}', "k"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"1.0","id":"k","result":{}}', None),
        (b'[{"jsonrpc":"2.0","id":"k","method":5}]', None),
    ],
)
async def test_an_invalid_request_is_refused_under_its_id(
    road: StartRoad, body: bytes, request_id: object
) -> None:
    """Whoever waits for the id reads the refusal; a response, a batch and what is no id have none."""
    async with road() as (up, _, client):
        head, text = await client.request("POST", body)
        assert (head.status, error_of(text)["code"]) == (400, -32600)
        assert error_of(text)["id"] == request_id
        assert up.seen == []


async def test_batch_is_400_where_the_era_has_none(in_session: StartRoad) -> None:
    """Neither a session of 2025-11-25 nor the modern era takes a batch, and nothing of it goes upstream."""
    async with in_session() as (up, _, client):
        for fields in ({}, modern_fields()):
            head, text = await client.request("POST", BATCH, **fields)
            assert head.status == 400 and error_of(text)["code"] == -32600
            assert "2025-03-26" in error_of(text)["message"]
        assert up.calls("tools/call") == []


# --- too large ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, modern_fields()], ids=["legacy", "modern"])
async def test_large_body_is_413_before_it_is_read(
    upstream: StartUpstream, adapter: StartAdapter, fields: dict[str, str]
) -> None:
    """Its length says enough: the answer comes though not one byte of the body was sent, and names the setting."""
    async with upstream() as up, adapter(up, core=SMALL) as front:
        for more in ({}, {"expect": "100-continue"}):
            async with front.client() as client:
                head, text = await client.request("POST", b"", content_length="2049", **fields, **more)
                assert head.status == 413 and "core.max_request_bytes" in error_of(text)["message"]


async def test_chunked_body_is_413_once_it_grows_too_large(road: StartRoad) -> None:
    """A body without a length is read as far as the limit, and its end is not waited for."""
    async with road(core=SMALL) as (_, _, client):
        chunk = b"%x\r\n%s\r\n" % (4096, b" " * 4096)
        head, text = await client.request("POST", chunk, content_length="", transfer_encoding="chunked")
        assert head.status == 413 and "core.max_request_bytes" in error_of(text)["message"]


async def test_gzip_bomb_is_413(road: StartRoad) -> None:
    """What a body decompresses to counts, and is not decompressed any further than the limit."""
    async with road(core=SMALL) as (_, _, client):
        bomb = gzip.compress(b" " * 1_000_000)
        assert len(bomb) < 2048
        head, text = await client.request("POST", bomb, content_encoding="gzip")
        assert head.status == 413 and "core.max_request_bytes" in error_of(text)["message"]


# --- sessions, headers, limits --------------------------------------------------------------------------------


async def test_session_of_another_principal_is_404(road: StartRoad) -> None:
    """A stolen session id opens nothing: the answer is that of a session which never was."""
    async with road(core=TOKENS) as (up, _, client):
        await client.initialize(authorization="Bearer ann-secret")
        ben = {"authorization": "Bearer ben-secret"}
        stolen = await client.request("POST", call_body(), **ben)
        stream, _ = await client.request("GET", b"", **ben)
        end, _ = await client.request("DELETE", b"", **ben)
        client.session = "never-was"
        unknown = await client.request("POST", call_body(), **ben)
        assert stolen[0].status == unknown[0].status == 404 and stolen[1] == unknown[1]
        assert stream.status == end.status == 404
        assert up.sessions == {"upstream-1"} and up.calls("tools/call") == []


async def test_session_missing_is_400_and_unknown_404_without_an_id_too(road: StartRoad) -> None:
    """GET, DELETE and notifications get the statuses of requests."""
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    async with road() as (_, _, client):
        for method, body in (("POST", call_body()), ("POST", note), ("GET", b""), ("DELETE", b"")):
            client.session = None
            head, text = await client.request(method, body)
            assert head.status == 400 and b"initialize" in text
            for client.session in ("unknown", "x" * 300, "../../etc/passwd"):
                head, text = await client.request(method, body)
                assert head.status == 404 and b"initialize again" in text


async def test_a_client_of_the_old_transport_is_told_what_is_served(road: StartRoad) -> None:
    """HTTP+SSE begins with a GET of a stream, at the mount or at paths of its own; the refusal names the other way."""
    accept = "text/event-stream"
    async with road() as (_, _, client):
        head, text = await client.request("GET", accept=accept)
        assert head.status == 400
        assert b"mcp-file-adapter serves streamable HTTP" in text and b"POST to this URL" in text
        for method, path in (("GET", "/sse"), ("POST", "/messages?session_id=1"), ("GET", "/mcp/one/sse/")):
            head, text = await client.request(
                method, b"{}" if method == "POST" else b"", path=path, accept=accept
            )
            assert head.status == 404
            assert b"mcp-file-adapter serves streamable HTTP at the address of each server" in text


async def test_missing_required_header_is_400_and_named(road: StartRoad) -> None:
    """``client_headers.required`` is checked in both eras; with the header the request passes, header and all."""
    server = {"upstream": {"client_headers": {"required": ["X-Tenant"]}}}
    async with road(server=server) as (up, _, client):
        for body, fields in ((INITIALIZE, {}), (modern_body(), modern_fields())):
            head, text = await client.request("POST", body, **fields)
            error = error_of(text)
            assert head.status == 400 and error["code"] == -32600 and "X-Tenant" in error["message"]
        await client.initialize(x_tenant="blue")
        assert up.calls("initialize")[0].head["x-tenant"] == "blue"


async def test_limit_of_a_modern_principal_is_429(road: StartRoad) -> None:
    """A modern call above the limit gets Retry-After and the same body a legacy one gets with 200."""
    finish = asyncio.Event()
    script = in_two(finish, b": here\n\n", b"data: " + result(1) + b"\n\n")
    limits = {"max_in_flight_per_session": 1}
    async with road(script, sessions=limits) as (_, front, one):
        await one.send("POST", modern_body(), **modern_fields())
        await one.head()
        assert await read_chunk(one.reader) == b": here\n\n"
        async with front.client() as two:
            head, text = await two.modern_call(number=2)
            error = error_of(text)
            assert head.status == 429 and int(head["retry-after"]) >= 1
            assert error["code"] == -32015 and error["id"] == 2 and error["data"]["retry_after"] >= 1
            assert "sessions.max_in_flight_per_session" in error["message"]
        finish.set()


async def test_max_active_counts_with_auth_on(road: StartRoad) -> None:
    """Sessions of all principals count together; the one too many is told the setting, and comes in after an end."""
    async with road(core=TOKENS, sessions={"max_active": 1}) as (up, _, client):
        await client.initialize(authorization="Bearer ann-secret")
        ben = {"authorization": "Bearer ben-secret"}
        head, text = await client.request("POST", INITIALIZE, **ben)
        error = error_of(text)
        assert head.status == 200 and error["code"] == -32015
        assert "sessions.max_active" in error["message"] and error["data"]["retry_after"] > 0
        assert up.opened == 1
        await client.request("DELETE", authorization="Bearer ann-secret")
        await client.initialize(**ben)


async def test_each_head_on_a_connection_is_judged_by_itself(road: StartRoad) -> None:
    """What was found out for one request serves the next only while the client sends the very same fields."""
    auth = {"enabled": True, "tokens": [{"name": n, "token": f"token-of-{n}"} for n in ("ann", "bob")]}
    async with road(core={"auth": auth}) as (_, _, client):
        await client.initialize(authorization="Bearer token-of-ann")
        statuses = []
        for token in ("ann", "ann", "bob", "nobody", "ann"):
            head, _ = await client.request("POST", call_body(), authorization=f"Bearer token-of-{token}")
            statuses.append(head.status)
        assert statuses == [200, 200, 404, 401, 200]
