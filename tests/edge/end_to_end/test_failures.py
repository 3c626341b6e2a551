"""What a client is told when the upstream fails: each cell of the table of failures."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import (
    INITIALIZE,
    Exchange,
    RawClient,
    Script,
    beginning,
    call_body,
    error_of,
    event,
    modern_body,
    modern_fields,
    result,
    silent,
)

NOTE = b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'
AS_HTTP = {"errors": {"legacy_status": "http"}}


async def failed_call(client: RawClient, era: str) -> tuple[int, str | None, dict[str, Any]]:
    """Status, Retry-After and error of one call (id 7) in that era."""
    head, body = await (client.modern_call(number=7) if era == "modern" else client.call(number=7))
    return head.status, head.get("retry-after"), error_of(body)


# --- unreachable ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "core", "status"),
    [("legacy", {}, 200), ("legacy", AS_HTTP, 502), ("modern", {}, 502), ("modern", AS_HTTP, 502)],
)
async def test_unreachable_upstream_is_32011(
    in_session: StartRoad, era: str, core: dict[str, object], status: int
) -> None:
    """A legacy client keeps its connection, a modern one gets 502; what has no id gets 502 and no more."""
    async with in_session(core=core) as (up, _, client):
        await up.stop()
        said, _, error = await failed_call(client, era)
        assert said == status and error["code"] == -32011 and error["id"] == 7
        for method, body in (("POST", NOTE), ("GET", b"")):
            head, _ = await client.request(method, body)
            assert head.status == 502
        await up.start()


async def test_session_works_again_when_the_upstream_is_back(in_session: StartRoad) -> None:
    """A call while the upstream is down costs that call, not the session."""
    async with in_session() as (up, _, client):
        await up.stop()
        _, body = await client.call()
        assert error_of(body)["code"] == -32011
        await up.start()
        _, body = await client.call()
        assert body == result(1)


async def test_failures_tell_no_secrets(road: StartRoad) -> None:
    """No session id of either side, no token, no address and no path is in an answer that failed."""
    auth = {"auth": {"enabled": True, "token": "adapter-secret"}}
    async with road(core=auth) as (up, front, client):
        token = {"authorization": "Bearer adapter-secret"}
        await client.initialize(**token)
        await up.stop()
        answers = [await client.request("POST", call_body(), **token)]
        answers += [await client.request("POST", modern_body(), **modern_fields(), **token)]
        answers += [await client.request("GET", b"", **token)]
        answers += [await client.request("POST", call_body(), mcp_session_id="wrong", **token)]
        root = str(front.app.settings.storage.root)
        for secret in (client.session, "upstream-1", "adapter-secret", root, str(up.port), "wrong"):
            assert secret is not None and all(secret.encode() not in body for _, body in answers)
        await up.start()


# --- breaker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "fields", "core", "status"),
    [
        (INITIALIZE, {}, {}, 200),
        (INITIALIZE, {}, AS_HTTP, 503),
        (modern_body(number=0), modern_fields(), {}, 503),
    ],
    ids=["legacy", "legacy-http", "modern"],
)
async def test_open_breaker_is_32012_with_the_shape_that_scripts_read(
    upstream: StartUpstream,
    adapter: StartAdapter,
    body: bytes,
    fields: dict[str, str],
    core: dict[str, object],
    status: int,
) -> None:
    """``data`` is detail, server_id and retry_after, and with 503 comes Retry-After.

    An upstream that was never there is looked for every second.
    """
    ping = {"upstream_ping": {"enabled": True, "failure_threshold": 1, "open_cooldown_seconds": 30}}
    async with upstream() as up:
        await up.stop()
        async with adapter(up, core={**ping, **core}) as front, front.client() as client:
            await front.app.server_parts.monitors["raw"].first.wait()
            head, text = await client.request("POST", body, **fields)
            error = error_of(text)
            assert head.status == status and error["code"] == -32012 and error["id"] == 0
            wait = error["data"].pop("retry_after")
            assert error["data"] == {
                "detail": "Upstream is unhealthy (circuit breaker open).",
                "server_id": "raw",
            }
            assert 1 <= wait <= 30
            assert head.get("retry-after") == (None if status == 200 else "1")
            head, _ = await client.request("GET", b"", **modern_fields())
            assert head.status == 503 and head["retry-after"] == "1"
        await up.start()


# --- silence --------------------------------------------------------------------------------------------------

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}'
BRIEF = {"defaults": {"tool_call_timeout_seconds": 0.2}}


async def silent_after_the_head(exchange: Exchange) -> None:
    """A JSON answer that begins and then stops."""
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
    await exchange.gone()


@pytest.mark.parametrize("script", [silent, silent_after_the_head])
@pytest.mark.parametrize(
    ("era", "core", "status"), [("legacy", {}, 200), ("legacy", AS_HTTP, 504), ("modern", {}, 504)]
)
async def test_silent_upstream_is_32013(
    in_session: StartRoad, script: Script, era: str, core: dict[str, object], status: int
) -> None:
    """The call fails after the timeout; a legacy upstream is told that nobody waits any more."""
    async with in_session(script, core={**BRIEF, **core}) as (up, _, client):
        said, _, error = await failed_call(client, era)
        assert said == status and error["code"] == -32013 and error["id"] == 7
        if era == "legacy":
            cancelled = await up.arrived("notifications/cancelled")
            assert orjson.loads(cancelled.body)["params"]["requestId"] == 7
            assert cancelled.head["mcp-session-id"] == "upstream-1"
        else:
            assert up.calls("notifications/cancelled") == []


PING = b": ping - 2026-01-01 00:00:00.000000+00:00\r\n\r\n"
"""What servers made with the Python SDKs send on each stream every 15 seconds."""


async def hung(exchange: Exchange) -> None:
    """A tool that never ends, behind a server that keeps its connections alive."""
    await exchange.begin_stream()
    while True:
        await exchange.chunk(PING)
        await asyncio.sleep(0.02)


STAGED = {"server": {"stages": {"tool": {"limits": {"rate": {"window": 60, "max": 1_000_000}}}}}}
OVERRIDDEN = {"server": {"tool_defaults": {"tool_call_timeout_seconds": 0.2}}}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"core": BRIEF}, "core.defaults.tool_call_timeout_seconds"),
        ({"core": BRIEF, **STAGED}, "core.defaults.tool_call_timeout_seconds"),
        (OVERRIDDEN, "servers[].tool_defaults.tool_call_timeout_seconds"),
    ],
)
async def test_comments_hold_no_call(in_session: StartRoad, settings: dict[str, Any], name: str) -> None:
    """Keep-alive comments are no message: a call that hangs ends after the timeout, and its place is free."""
    settings = {**settings, "sessions": {"max_in_flight_per_session": 1}}
    async with in_session(hung, **settings) as (up, _, client):
        for number in (7, 8):
            head, body = await client.call(number=number)
            assert head.status == 200
            error = error_of(body.removeprefix(PING * body.count(PING)).removeprefix(b"data: "))
            assert error["code"] == -32013 and error["id"] == number
            assert error["message"] == f"The upstream server sent no message for 0.2 s, the limit of {name}."
        assert orjson.loads((await up.arrived("notifications/cancelled")).body)["params"]["requestId"] == 7


async def chatting(exchange: Exchange) -> None:
    """A tool that says again and again that it goes on."""
    await exchange.begin_stream()
    while True:
        await exchange.chunk(event(PROGRESS))
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("script", [chatting, silent])
@pytest.mark.parametrize("settings", [{}, STAGED])
async def test_a_call_ends_at_its_total_limit(
    in_session: StartRoad, settings: dict[str, Any], script: Script
) -> None:
    """Progress does not help there; the upstream is told, the place is free, and other requests know no such limit."""
    core = {"defaults": {"tool_call_total_seconds": 0.3}}
    settings = {**settings, "core": core, "sessions": {"max_in_flight_per_session": 1}}
    async with in_session(script, **settings) as (up, _, client):
        for number in (7, 8):
            _, body = await client.call(number=number)
            told = event(PROGRESS)
            error = error_of(body.removeprefix(told * body.count(told)).removeprefix(b"data: "))
            assert error["code"] == -32013 and error["id"] == number
            allowed = "the 0.3 s that core.defaults.tool_call_total_seconds allows"
            assert error["message"] == f"The call took longer than {allowed}."
        assert orjson.loads((await up.arrived("notifications/cancelled")).body)["params"]["requestId"] == 7


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_stream_that_falls_silent_ends_with_an_error_event(in_session: StartRoad, era: str) -> None:
    """The head has left long ago, so the failure comes as an event under the id, and the stream ends."""
    script = beginning(b": working\n\n")
    async with in_session(script, core=BRIEF) as (up, _, client):
        head, body = await (client.modern_call(number=7) if era == "modern" else client.call(number=7))
        assert head.status == 200 and body.startswith(b": working\n\ndata: ")
        error = error_of(body.removeprefix(b": working\n\ndata: "))
        assert error["code"] == -32013 and error["id"] == 7
        if era == "legacy":
            assert (await up.arrived("notifications/cancelled")).message["params"] is not None


# --- broken JSON ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize(("era", "status"), [("legacy", 200), ("modern", 502)])
async def test_small_answer_that_breaks_off_is_replaced(
    in_session: StartRoad, framing: str, era: str, status: int
) -> None:
    """Nothing of it has left yet, so the client gets a whole error; the call is not made twice."""

    async def script(exchange: Exchange) -> None:
        await begin_json(exchange, framing, 100, b'{"jsonrpc":"2.0",')
        exchange.hang_up()

    async with in_session(script) as (up, _, client):
        said, _, error = await failed_call(client, era)
        assert said == status and error["code"] == -32011 and error["id"] == 7
        assert len(up.calls("tools/call")) == 1


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_large_answer_that_breaks_off_never_looks_complete(in_session: StartRoad, framing: str) -> None:
    """Its head has left, so the connection breaks off in the middle of the body."""

    async def script(exchange: Exchange) -> None:
        await begin_json(exchange, framing, 1 << 20, b" " * (1 << 19))
        exchange.hang_up()

    async with in_session(script) as (_, front, client):
        with contextlib.suppress(ConnectionError), pytest.raises(asyncio.IncompleteReadError):
            await client.call()
        async with front.client() as another:
            another.session = client.session
            assert (await another.request("DELETE"))[0].status == 200


async def begin_json(exchange: Exchange, framing: str, length: int, beginning: bytes) -> None:
    kind = f"Content-Length: {length}" if framing == "length" else "Transfer-Encoding: chunked"
    await exchange.send(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{kind}\r\n\r\n".encode())
    await (exchange.send(beginning) if framing == "length" else exchange.chunk(beginning))
