"""Which header fields cross, each way, as both sides see them on the wire."""

from __future__ import annotations

import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, answering, call_body, event, in_json, result

NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

TOKEN = "the-adapters-own-token"
CLIENTS_OWN = {
    "authorization": "Bearer for-somebody-else",
    "cookie": "session=secret",
    "connection": "keep-alive, traceparent, x-listed",
    "traceparent": "00-hop-by-hop",
    "te": "trailers",
    "tracestate": "a=1,b=2",
    "baggage": "k=v",
    "x_listed": "hop-by-hop",
    "x_tenant": "t 1",
}


async def test_upstream_gets_exactly_the_allowed_fields(road: StartRoad) -> None:
    """Token, cookies and whatever else a client sends stay here; only the allow-list crosses, and framing."""
    auth = {"enabled": True, "token": TOKEN}
    async with road(core={"auth": auth}) as (up, _, client):
        own = CLIENTS_OWN | {"x_mcp_adapter_auth_token": TOKEN}
        await client.initialize(**own)
        await client.request("POST", call_body(), mcp_protocol_version="2025-11-25", **own)
        common = {
            "host": f"127.0.0.1:{up.port}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "tracestate": "a=1,b=2",
            "baggage": "k=v",
        }
        opening, call = up.seen
        assert dict(opening.head.fields) == common | {"content-length": str(len(opening.body))}
        assert dict(call.head.fields) == common | {
            "content-length": str(len(call.body)),
            "mcp-protocol-version": "2025-11-25",
            "mcp-session-id": "upstream-1",
        }


async def test_token_sent_as_bearer_stays_here_even_where_authorization_is_passed_on(road: StartRoad) -> None:
    """The credential that opened the adapter is never shown to an upstream; another's is, where listed."""
    server = {"upstream": {"client_headers": {"passthrough": ["Authorization"]}}}
    core = {"auth": {"enabled": True, "token": TOKEN}}
    async with road(server=server, core=core) as (up, _, client):
        await client.initialize(authorization=f"Bearer {TOKEN}")
        assert TOKEN not in str(up.seen[-1].head)
        await client.request(
            "POST", call_body(), authorization="Bearer for-upstream", x_mcp_adapter_auth_token=TOKEN
        )
        assert up.seen[-1].head["authorization"] == "Bearer for-upstream"
        assert TOKEN not in str(up.seen[-1].head)


async def test_listed_headers_pass_with_each_request_as_they_then_are(road: StartRoad) -> None:
    """``client_headers.passthrough`` is read per request: nothing freezes when the session begins."""
    server = {"upstream": {"client_headers": {"passthrough": ["X-Tenant", "Cookie"]}}}

    async with road(in_json(result(1)), server=server) as (up, _, client):
        await client.initialize(x_tenant="one", cookie="a=1")
        await client.request("POST", call_body(), x_tenant="two; \t q=\xe9\xc3\xa9")
        await client.request("GET", x_tenant="three")
        await client.request("DELETE", x_tenant="four")
        seen = [each.head for each in up.seen]
        assert [head.get("x-tenant") for head in seen] == ["one", "two; \t q=\xe9\xc3\xa9", "three", "four"]
        assert [head.get("cookie") for head in seen] == ["a=1", None, None, None]


async def test_static_headers_are_added_and_win(road: StartRoad) -> None:
    """An operator's own header goes with every request, in place of a client's of that name."""
    server = {
        "upstream": {
            "static_headers": {"X-Api-Key": "operators", "Authorization": "Bearer up"},
            "client_headers": {"passthrough": ["X-Api-Key"]},
        }
    }
    async with road(server=server) as (up, _, client):
        await client.initialize(x_api_key="clients")
        await client.request("POST", call_body(), x_api_key="clients")
        await client.request("DELETE")
        for exchange in up.seen:
            values = [value for name, value in exchange.head.fields if name == "x-api-key"]
            assert values == ["operators"]
            assert exchange.head["authorization"] == "Bearer up"


async def test_repeated_fields_stay_repeated(in_session: StartRoad) -> None:
    """Fields of one name keep their number and order, both ways."""

    script = in_json(result(1), "Vary: Accept", "Vary: Origin", "WWW-Authenticate: A", "www-authenticate: B")

    async with in_session(script) as (up, _, client):
        await client.send("POST", call_body(), tracestate="a=1\r\ntracestate: b=2")
        head = await client.head()
        asked = up.calls("tools/call")[0].head
        assert [value for name, value in asked.fields if name == "tracestate"] == ["a=1", "b=2"]
        assert [value for name, value in head.fields if name == "vary"] == ["Accept", "Origin"]
        assert [value for name, value in head.fields if name == "www-authenticate"] == ["A", "B"]


async def test_client_gets_all_that_acts_on_no_browser(in_session: StartRoad) -> None:
    """No cookie, no redirect, no policy, no order to a proxy; everything else crosses unchanged, the date too."""
    passed = [
        "Content-Type: application/json; Charset=UTF-8",
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        "Server: up/1",
        "Mcp-Odd: \xe9\xff\xc3\xa9",
    ]
    held_back = [
        "Set-Cookie: a=1",
        "Location: http://10.0.0.1/",
        "Access-Control-Allow-Origin: *",
        "Content-Security-Policy: default-src *",
        "X-Content-Type-Options: sniff",
        "Clear-Site-Data: *",
        "Strict-Transport-Security: max-age=1",
        "Service-Worker-Allowed: /",
        "Refresh: 0;url=/",
        "Alt-Svc: h3",
        "Server-Timing: a",
        "X-Accel-Redirect: /internal",
        "Connection: keep-alive, etag",
        "Keep-Alive: timeout=5",
        "ETag: hop",
        "Mcp-Session-Id: changed-by-upstream",
    ]

    async def script(exchange: Exchange) -> None:
        lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(result(1))}", *passed, *held_back]
        await exchange.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + result(1))

    async with in_session(script) as (_, _, client):
        head, body = await client.call()
        assert body == result(1)
        fields = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in passed)]
        own = [("x-content-type-options", "nosniff"), ("content-length", str(len(result(1))))]
        assert head.fields == fields + own


async def test_the_settings_change_what_clients_get(in_session: StartRoad) -> None:
    """``server_headers`` keeps more here and lets listed fields pass, but never one of the connection."""
    headers = {"drop": ["server", "X-Powered-By"], "passthrough": ["Set-Cookie", "Keep-Alive"]}
    server = {"upstream": {"server_headers": headers}}
    said = ["Server: up/1", "X-Powered-By: up", "Set-Cookie: a=1", "Keep-Alive: timeout=5", "Link: <a>"]

    async with in_session(in_json(result(1), *said), server=server) as (_, _, client):
        head, _ = await client.call()
        assert head["set-cookie"] == "a=1" and head["server"] == "mcp-file-adapter"
        assert [head.get(name) for name in ("x-powered-by", "keep-alive", "link")] == [None, None, None]


@pytest.mark.parametrize(
    "kind", ["application/json", "text/event-stream", "text/html", "image/svg+xml", None]
)
async def test_no_answer_of_a_mount_is_a_page(road: StartRoad, kind: str | None) -> None:
    """Each says nosniff, the adapter's own too; what is neither JSON nor a stream of events is sandboxed."""
    data = kind in ("application/json", "text/event-stream")

    script = answering(200, event(result(1)), *([f"Content-Type: {kind}"] if kind else []))

    async with road(script) as (_, _, client):
        opened = await client.initialize()
        called, _ = await client.call()
        listening, _ = await client.request("GET")
        told, _ = await client.request("POST", NOTIFICATION)
        refused, _ = await client.request("POST", b"{}", content_type="text/plain")
        unknown, _ = await client.request("PUT")
        ended, _ = await client.request("DELETE")
        answers = [opened, called, listening, told, refused, unknown, ended]
        assert [head.get("x-content-type-options") for head in answers] == ["nosniff"] * len(answers)
        policy = None if data else "sandbox; default-src 'none'"
        assert [head.get("content-security-policy") for head in (called, listening)] == [policy] * 2
        assert (
            told["content-security-policy"]
            == ended["content-security-policy"]
            == "sandbox; default-src 'none'"
        )


async def test_redirect_is_not_followed(in_session: StartRoad) -> None:
    """Its status passes, its target is neither asked nor told: a client would take session id and token there."""

    async with in_session(answering(307, b"", "Location: http://127.0.0.1:9/elsewhere")) as (up, _, client):
        head, _ = await client.call()
        assert head.status == 307 and head.get("location") is None
        assert len(up.calls("tools/call")) == 1
