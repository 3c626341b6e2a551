"""Upstreams that want credentials, behind a whole adapter: whose reach them, and what clients are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from adapter.rules.access.principals import ANONYMOUS
from tests.edge.bearers import ScriptedVerifier, bearer, core
from tests.edge.conftest import StartAdapter
from tests.edge.raw import INITIALIZE, Exchange, call_body, error_of, modern_body, modern_fields, result
from tests.oauth.token_serving import ProtectedUpstream, TokenServer, token_server

PINNED: dict[str, Any] = {"tool_definition_pinning": {"mode": "block"}}


@pytest.fixture
async def up() -> AsyncIterator[ProtectedUpstream]:
    """An upstream that takes t1 and no other token."""
    raw = ProtectedUpstream(answer)
    raw.protect("t1")
    await raw.start()
    try:
        yield raw
    finally:
        await raw.stop()


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    """The token endpoint."""
    async with token_server() as server:
        yield server


async def answer(exchange: Exchange) -> None:
    """Answer lists with one tool of the caller's own, calls with its token, and streams with silence."""
    method, token = exchange.message.get("method"), str(exchange.head.get("authorization")).split()[-1]
    number = exchange.message.get("id")
    if exchange.head.method == "GET":
        await exchange.begin_stream()
    elif method == "tools/list":
        tool = {"name": f"tool_{token}", "inputSchema": {"type": "object"}}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": [tool]}}))
    elif method == "tools/call":
        await exchange.json(result(number, token))  # type: ignore[arg-type]  # a number, as clients send
    else:
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))


def auth(tokens: TokenServer, kind: str = "client_credentials", **more: Any) -> dict[str, Any]:
    """The entry of a server with this type of credentials."""
    section = {"type": kind, "token_endpoint": tokens.url, "client_id": "adapter", "client_secret": "s"}
    return {"upstream": {"auth": section | more}}


def asking(method: str, number: int = 5) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}})


# --- client credentials -----------------------------------------------------------------------------------------


async def test_every_request_carries_the_token(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """Tools, prompts, resources, pings, notifications, streams and the end of the session; one token is enough."""
    methods = [
        "tools/list",
        "tools/call",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "ping",
    ]
    async with adapter(up, server=auth(tokens)) as front, front.client() as client:
        await client.initialize()
        for method in methods:
            head, body = await client.request(
                "POST", call_body() if method == "tools/call" else asking(method)
            )
            assert (head.status, b'"error"' in body) == (200, False), method
        head, _ = await client.request("POST", b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert head.status == 202
        async with front.client() as listener:
            listener.session = client.session
            await listener.send("GET")
            assert (await listener.head()).status == 200
        head, _ = await client.request("DELETE")
        assert head.status == 200
    assert up.refused == [] and {each.head.get("authorization") for each in up.seen} == {"Bearer t1"}
    assert {"GET", "DELETE", "initialize", *methods} <= {
        str(each.message.get("method", each.head.method)) for each in up.seen
    }
    assert len(tokens.forms) == 1


async def test_one_token_is_asked_for_however_many_call_at_once(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """All wait for the same answer, with secret, scopes and resource in the one request."""
    tokens.go.clear()
    section = auth(tokens, scopes=["a", "b"], resource="https://up.example/mcp", audience="up")
    async with adapter(up, server=section) as front:

        async def call(number: int) -> int:
            async with front.client() as client:
                head, _ = await client.request("POST", modern_body("x", number), **modern_fields("x"))
                return head.status

        calls = [asyncio.create_task(call(number)) for number in range(8)]
        await asyncio.wait_for(tokens.begun.wait(), 5)
        tokens.go.set()
        assert await asyncio.gather(*calls) == [200] * 8
    (form,) = tokens.forms
    assert form == {
        "grant_type": "client_credentials",
        "scope": "a b",
        "resource": "https://up.example/mcp",
        "audience": "up",
    }
    assert tokens.heads[0]["authorization"] == "Basic YWRhcHRlcjpz"


async def test_401_renews_the_token_once_for_all(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """A token that was revoked is replaced while its calls wait, and no client notices."""
    async with adapter(up, server=auth(tokens)) as front, front.client() as client:
        await client.initialize()
        up.accept("t2")

        async def call(number: int) -> bytes:
            async with front.client() as other:
                other.session = client.session
                return (await other.call(number=number))[1]

        answers = await asyncio.gather(*(call(number) for number in range(1, 7)))
    assert all(b"t2" in each for each in answers)
    assert len(tokens.forms) == 2


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "modern"])
async def test_refusal_that_lasts_is_told_once_and_is_no_401(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter, legacy: bool
) -> None:
    """The client reads who refused whom. It keeps its own token, and nobody is asked again and again."""
    up.accept()
    fields = {} if legacy else modern_fields("x")
    body = INITIALIZE if legacy else modern_body("x", 0)
    async with adapter(up, server=auth(tokens)) as front, front.client() as client:
        for _ in range(3):
            head, text = await client.request("POST", body, **fields)
            error = error_of(text)
            assert head.status == (200 if legacy else 502) and head.get("www-authenticate") is None
            assert "raw refused the credentials that the adapter sent it" in error["message"]
            assert "elsewhere" not in error["message"]
    assert up.refused == ["Bearer t1", *["Bearer t2"] * 3] and len(tokens.forms) == 2


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ((401, {"error": "invalid_client", "error_description": "secret <s>"}), "it answered invalid_client"),
        ((400, {"error": "<b>", "access_token": "leak"}), "it answered status 400"),
        ((302, {"access_token": "leak", "token_type": "Bearer"}), "it answered status 302"),
        ((200, b"<html>leak"), "not a JSON object"),
        ((200, {"access_token": "a b", "token_type": "Bearer"}), "no usable token"),
        ((200, {"access_token": "leak", "token_type": "DPoP"}), "another type than Bearer"),
        ((200, b" " * (1 << 19)), "larger than"),
    ],
)
async def test_token_endpoint_that_fails_is_one_clear_error(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter, answer: tuple[int, Any], word: str
) -> None:
    """It names the server and the setting, holds nothing of the answer but its code, and lists are never empty."""
    tokens.answers = [answer] * 9
    async with adapter(up, server=auth(tokens)) as front, front.client() as client:
        for method in ("tools/list", "prompts/list", "resources/list"):
            body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": _META})
            fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
            head, text = await client.request("POST", body, **fields)
            message = error_of(text)["message"]
            assert head.status == 502 and word in message, message
            assert "upstream server raw" in message and "servers[].upstream.auth of raw" in message
            assert "leak" not in message and "secret" not in message
    assert up.seen == []
    assert len(tokens.forms) == 1, "a failure is not repeated for each call"


_META = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


async def test_issuer_names_the_token_endpoint(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """Its metadata is read once, and metadata that name another issuer are refused."""
    place = "/.well-known/openid-configuration"
    tokens.documents[place] = {"issuer": "https://evil.example", "token_endpoint": tokens.url}
    section = {"type": "client_credentials", "issuer": tokens.origin, "client_id": "a", "client_secret": "s"}
    async with adapter(up, server={"upstream": {"auth": section}}) as front, front.client() as client:
        _, text = await client.request("POST", INITIALIZE)
        assert "names another issuer" in error_of(text)["message"] and tokens.forms == []
    tokens.documents[place] = {"issuer": tokens.origin, "token_endpoint": tokens.url}
    async with adapter(up, server={"upstream": {"auth": section}}) as front, front.client() as client:
        await client.initialize()
        assert (await client.call())[0].status == 200
    assert tokens.asked[-2:] == [place, "/token"]


async def test_probe_of_an_upstream_without_tokens_does_not_open_the_breaker(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """The server answers 401, so it is alive; clients are told of the missing token, not of a sick server."""
    tokens.answers = [(500, {})] * 99
    settings = {"upstream_ping": {"enabled": True, "interval_seconds": 0.05, "failure_threshold": 1}}
    async with adapter(up, server=auth(tokens), core=settings) as front, front.client() as client:
        monitor = front.app.core.relay.servers.monitors["raw"]
        async with asyncio.timeout(5):
            await monitor.first.wait()
        assert monitor.pulse.reached and monitor.pulse.refusal is not None
        _, text = await client.request("POST", INITIALIZE)
        assert "got no token" in error_of(text)["message"]


# --- passthrough ------------------------------------------------------------------------------------------------


async def test_passthrough_sends_what_the_caller_sent(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """Each request carries its own caller's field, also where another one opened the session."""
    up.accept("ann", "bob", "ann2")
    section = {"upstream": {"auth": {"type": "passthrough"}}}
    async with adapter(up, server=section) as front, front.client() as ann, front.client() as bob:
        await ann.initialize(**bearer("ann"))
        await bob.initialize(**bearer("bob"))
        assert b"ann" in (await ann.request("POST", call_body(), **bearer("ann")))[1]
        assert b"bob" in (await bob.request("POST", call_body(), **bearer("bob")))[1]
        # A token that was renewed goes on with the session.
        assert b"ann2" in (await ann.request("POST", call_body(), **bearer("ann2")))[1]


async def test_passthrough_401_is_the_clients_own(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """Only the client can bring another token, so it sees status and challenge as they came."""
    async with (
        adapter(up, server={"upstream": {"auth": {"type": "passthrough"}}}) as front,
        front.client() as client,
    ):
        head, text = await client.request("POST", INITIALIZE, **bearer("old"))
        assert (head.status, head["www-authenticate"], text) == (401, up.challenge, b"who are you?")
    assert up.refused == ["Bearer old"]


async def test_passthrough_of_the_adapters_own_token(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """A caller who signs in by Authorization shows that token to the upstream, as ``check`` warns; one who uses the
    adapter's header keeps Authorization for the upstream."""
    up.accept("static-secret-of-ann", "the-upstreams")
    settings = {"auth": {"enabled": True, "token": "static-secret-of-ann"}}
    section = {"upstream": {"auth": {"type": "passthrough"}}}
    async with adapter(up, server=section, core=settings) as front, front.client() as client:
        await client.initialize(**bearer("static-secret-of-ann"))
        both = {"x_mcp_adapter_auth_token": "static-secret-of-ann", **bearer("the-upstreams")}
        await client.initialize(**both)
    assert up.credentials("initialize") == ["Bearer static-secret-of-ann", "Bearer the-upstreams"]
    assert not any(each.head.get("x-mcp-adapter-auth-token") for each in up.seen)


async def test_passthrough_metadata_is_that_of_the_mount(
    up: ProtectedUpstream, adapter: StartAdapter
) -> None:
    """A strict client finds the upstream's authorization server under the URL that it called."""
    base, issuer = "https://tools.example.org", "https://login.example.org"
    up.documents["/.well-known/oauth-protected-resource/mcp"] = {
        "resource": up.url,
        "authorization_servers": [issuer],
        "scopes_supported": ["mcp"],
        "signed_metadata": "eyJ",
    }
    section = {"upstream": {"auth": {"type": "passthrough", "metadata": True}}}
    path = "/.well-known/oauth-protected-resource"
    async with adapter(up, server=section, core={"public_base_url": base}) as front, front.client() as client:
        head, _ = await client.request("POST", INITIALIZE)
        assert head.status == 401
        assert head["www-authenticate"] == (
            f'Bearer resource_metadata="{base}{path}/mcp", error="invalid_token"'
        )
        for place in (f"{path}/mcp", path):
            head, text = await client.request("GET", path=place)
            assert (head.status, head["access-control-allow-origin"]) == (200, "*")
            assert orjson.loads(text) == {
                "resource": f"{base}/mcp",
                "authorization_servers": [issuer],
                "scopes_supported": ["mcp"],
            }
    assert len([each for each in up.seen if each.head.first.startswith(f"GET {path}")]) == 1


async def test_passthrough_metadata_of_another_resource_are_not_served(
    up: ProtectedUpstream, adapter: StartAdapter
) -> None:
    """A document that speaks of somebody else, or none at all, is an error and no empty document."""
    section = {"upstream": {"auth": {"type": "passthrough", "metadata": True}}}
    up.documents["/.well-known/oauth-protected-resource/mcp"] = {
        "resource": "https://bank.example/mcp",
        "authorization_servers": ["https://login.example.org"],
    }
    settings = {"public_base_url": "https://tools.example.org"}
    async with adapter(up, server=section, core=settings) as front, front.client() as client:
        head, text = await client.request("GET", path="/.well-known/oauth-protected-resource/mcp")
        assert head.status == 502 and b"names another resource" in text


# --- two people -------------------------------------------------------------------------------------------------


async def _tools(client: Any, **fields: str) -> bytes:
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": _META})
    asked = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list", **fields}
    head, text = await client.request("POST", body, **asked)
    assert head.status == 200, text
    return bytes(text)


@pytest.mark.parametrize("first", ["ann", "bob"])
async def test_two_people_of_one_server_see_only_their_own_tools(
    up: ProtectedUpstream, adapter: StartAdapter, first: str
) -> None:
    """Pinned, without sessions, and without tokens of the adapter: lists and calls are judged by one's own list."""
    up.accept("ann", "bob")
    second = "bob" if first == "ann" else "ann"
    section = {"upstream": {"auth": {"type": "passthrough"}}}
    async with adapter(up, server=section, core=PINNED) as front, front.client() as client:
        for _ in range(2):
            assert f"tool_{first}".encode() in await _tools(client, **bearer(first))
            assert f"tool_{second}".encode() in await _tools(client, **bearer(second))
        for name in (first, second):
            tool = f"tool_{name}"
            asked = modern_fields(tool) | bearer(name)
            head, text = await client.request("POST", modern_body(tool, 3), **asked)
            assert head.status == 200 and name.encode() in text, text


async def test_results_of_one_person_never_serve_another(
    up: ProtectedUpstream, adapter: StartAdapter
) -> None:
    """A result that is kept is kept for the credential that it was obtained with, whatever ``vary`` says."""

    async def kept(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/list":
            tool = {"name": "who", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
            listed = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"tools": [tool]}}
            await exchange.json(orjson.dumps(listed))
        else:
            await answer(exchange)

    up.script = kept
    up.accept("ann", "bob")
    section = {
        "upstream": {"auth": {"type": "passthrough"}},
        "stages": {"who": {"cache": {"enabled": True, "ttl": 60, "vary": []}}},
    }
    async with adapter(up, server=section) as front, front.client() as client:
        for _ in range(2):
            for name in ("ann", "bob"):
                asked = modern_fields("who") | bearer(name)
                _, text = await client.request("POST", modern_body("who", 3), **asked)
                assert name.encode() in text, text
    assert sorted(up.credentials("tools/call"), key=str) == ["Bearer ann", "Bearer bob"]


# --- token exchange ---------------------------------------------------------------------------------------------


async def test_tokens_are_exchanged_for_each_person_once(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """The caller's token goes to the token endpoint and nowhere else; two people at once get each their own."""
    verifier = ScriptedVerifier()
    ann = verifier.issue("ann-token", "ann", claims={"sub": "ann"})
    bob = verifier.issue("bob-token", "bob", claims={"sub": "bob"})
    up.accept("t1", "t2")
    section = auth(tokens, "token_exchange", audience="up", scopes=["read"])
    async with adapter(up, server=section, core=core() | PINNED, verifier=verifier) as front:

        async def lists(fields: dict[str, str]) -> set[bytes]:
            async with front.client() as client:
                return {await _tools(client, **fields) for _ in range(4)}

        (of_ann,), (of_bob,) = await asyncio.gather(lists(ann), lists(bob))
    assert of_ann != of_bob
    subjects = {form["subject_token"]: token for token, form in tokens.issued.items()}
    assert len(tokens.forms) == 2 and set(subjects) == {"ann-token", "bob-token"}
    assert f"tool_{subjects['ann-token']}".encode() in of_ann
    assert tokens.forms[0] | {"subject_token": ""} == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": "",
        "audience": "up",
        "scope": "read",
    }
    assert {each.head.get("authorization") for each in up.seen} == {"Bearer t1", "Bearer t2"}


async def test_caller_without_an_access_token_cannot_exchange_one(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """A static token is nobody's at the authorization server, and a field beside it is not the caller's credential."""
    verifier = ScriptedVerifier()
    settings = core(token="static-secret-of-ann")
    async with (
        adapter(up, server=auth(tokens, "token_exchange"), core=settings, verifier=verifier) as front,
        front.client() as client,
    ):
        for fields in (
            bearer("static-secret-of-ann"),
            bearer("somebodys") | {"x_mcp_adapter_auth_token": "static-secret-of-ann"},
        ):
            head, text = await client.request("POST", INITIALIZE, **fields)
            assert head.status == 200 and "have no OAuth access token" in error_of(text)["message"]
    assert tokens.forms == [] and up.seen == []


async def test_idle_end_of_a_session_borrows_nobodys_token(
    up: ProtectedUpstream, adapter: StartAdapter
) -> None:
    """Where no client is there the adapter sends what it has, which for passthrough is nothing."""
    up.accept("ann")
    section = {"upstream": {"auth": {"type": "passthrough"}}}
    async with adapter(up, server=section) as front, front.client() as client:
        await client.initialize(**bearer("ann"))
        server = front.app.servers["raw"]
        session = await front.app.sessions.find(client.session, "raw", ANONYMOUS)
        reply = await front.app.core.relay.sessions.upstream.close(server, session)
        assert reply is not None and reply.status == 401
    assert up.refused == [None]
