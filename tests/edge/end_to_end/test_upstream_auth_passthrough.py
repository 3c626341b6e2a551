"""Upstreams that get the credentials of their callers, behind a whole adapter, and the callers apart."""

from __future__ import annotations

import orjson
import pytest

from adapter.relay.sessions.upstream_sessions import close_kept
from adapter.rules.access.principals import ANONYMOUS
from tests.edge.bearers import bearer
from tests.edge.conftest import StartAdapter
from tests.edge.raw import INITIALIZE, Exchange, call_body, modern_body, modern_fields
from tests.oauth.protected import PINNED, answer, asking, tools_of
from tests.oauth.token_serving import ProtectedUpstream

PASSING = {"upstream": {"auth": {"type": "passthrough"}}}
OFFERED = {"upstream": {"auth": {"type": "passthrough", "metadata": True}}}


async def test_passthrough_sends_what_the_caller_sent(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """Each request carries its own caller's field, also where another one opened the session."""
    up.accept("ann", "bob", "ann2")
    async with adapter(up, server=PASSING) as front, front.client() as ann, front.client() as bob:
        await ann.initialize(**bearer("ann"))
        await bob.initialize(**bearer("bob"))
        assert b"ann" in (await ann.request("POST", call_body(), **bearer("ann")))[1]
        assert b"bob" in (await bob.request("POST", call_body(), **bearer("bob")))[1]
        # A token that was renewed goes on with the session.
        assert b"ann2" in (await ann.request("POST", call_body(), **bearer("ann2")))[1]


async def test_passthrough_401_is_the_clients_own(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """Only the client can bring another token, so it sees status and challenge as they came."""
    async with adapter(up, server=PASSING) as front, front.client() as client:
        head, text = await client.request("POST", INITIALIZE, **bearer("old"))
        assert (head.status, head["www-authenticate"], text) == (401, up.challenge, b"who are you?")
    assert up.refused == ["Bearer old"]


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "prompts/list", "resources/list"])
async def test_passthrough_401_is_the_clients_own_in_a_session(
    up: ProtectedUpstream, adapter: StartAdapter, method: str, metadata: bool
) -> None:
    """Also where the adapter itself has to ask first, to judge the call by the tools that are offered now: a token that
    has expired is then renewed by its client."""
    up.accept("ann")
    section = {"upstream": {"auth": {"type": "passthrough", "metadata": metadata}}}
    settings = PINNED | {"upstream_metadata_cache_ttl_seconds": 0, "public_base_url": "https://tools.example"}
    async with adapter(up, server=section, core=settings) as front, front.client() as client:
        await client.initialize(**bearer("ann"))
        await client.request("POST", asking("tools/list"), **bearer("ann"))
        up.accept("newer")
        body = call_body("tool_ann") if method == "tools/call" else asking(method)
        head, _ = await client.request("POST", body, **bearer("ann"))
        place = "https://tools.example/.well-known/oauth-protected-resource/mcp"
        challenge = f'Bearer resource_metadata="{place}", error="invalid_token"'
        assert (head.status, head["www-authenticate"]) == (401, challenge if metadata else up.challenge)


async def test_passthrough_of_the_adapters_own_token(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """A caller who signs in by Authorization shows that token to the upstream, as ``check`` warns; one who uses the
    adapter's header keeps Authorization for the upstream."""
    up.accept("static-secret-of-ann", "the-upstreams")
    settings = {"auth": {"enabled": True, "token": "static-secret-of-ann"}}
    async with adapter(up, server=PASSING, core=settings) as front, front.client() as client:
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
    path = "/.well-known/oauth-protected-resource"
    async with adapter(up, server=OFFERED, core={"public_base_url": base}) as front, front.client() as client:
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
    up.documents["/.well-known/oauth-protected-resource/mcp"] = {
        "resource": "https://bank.example/mcp",
        "authorization_servers": ["https://login.example.org"],
    }
    settings = {"public_base_url": "https://tools.example.org"}
    async with adapter(up, server=OFFERED, core=settings) as front, front.client() as client:
        head, text = await client.request("GET", path="/.well-known/oauth-protected-resource/mcp")
        assert head.status == 502 and b"names another resource" in text


@pytest.mark.parametrize("first", ["ann", "bob"])
async def test_two_people_of_one_server_see_only_their_owntools_of(
    up: ProtectedUpstream, adapter: StartAdapter, first: str
) -> None:
    """Pinned, without sessions, and without tokens of the adapter: lists and calls are judged by one's own list."""
    up.accept("ann", "bob")
    second = "bob" if first == "ann" else "ann"
    async with adapter(up, server=PASSING, core=PINNED) as front, front.client() as client:
        for _ in range(2):
            assert f"tool_{first}".encode() in await tools_of(client, **bearer(first))
            assert f"tool_{second}".encode() in await tools_of(client, **bearer(second))
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
    section = {**PASSING, "stages": {"who": {"cache": {"enabled": True, "ttl": 60, "vary": []}}}}
    async with adapter(up, server=section) as front, front.client() as client:
        for _ in range(2):
            for name in ("ann", "bob"):
                asked = modern_fields("who") | bearer(name)
                _, text = await client.request("POST", modern_body("who", 3), **asked)
                assert name.encode() in text, text
    assert sorted(up.credentials("tools/call"), key=str) == ["Bearer ann", "Bearer bob"]


async def test_idle_end_of_a_session_borrows_nobodys_token(
    up: ProtectedUpstream, adapter: StartAdapter
) -> None:
    """Where no client is there the adapter sends what it has, which for passthrough is nothing."""
    up.accept("ann")
    async with adapter(up, server=PASSING) as front, front.client() as client:
        await client.initialize(**bearer("ann"))
        server = front.app.servers["raw"]
        session = await front.app.sessions.find(client.session, "raw", ANONYMOUS)
        _, record = await front.app.sessions.record(session)
        assert await close_kept(server, record, 5.0), "a refusal is an answer"
    assert up.refused == [None]


async def test_callers_over_http_are_told_apart_too(up: ProtectedUpstream, adapter: StartAdapter) -> None:
    """Each has a session of its own, and sees the tools that its own credential shows."""
    up.accept("ann", "bob")
    console = {"enabled": True, "allow_execute": True}
    async with adapter(up, server=PASSING, console=console) as front, front.client() as client:
        for _ in range(2):
            for name, other in (("ann", "bob"), ("bob", "ann")):
                _, listed = await client.request("GET", b"", "/explorer/raw/tools", **bearer(name))
                assert f"tool_{name}".encode() in listed and f"tool_{other}".encode() not in listed
                path = f"/explorer/raw/tools/tool_{name}/call"
                head, answered = await client.request("POST", b"{}", path, **bearer(name))
                assert head.status == 200 and name.encode() in answered, answered
                path = f"/explorer/raw/tools/tool_{other}/call"
                head, answered = await client.request("POST", b"{}", path, **bearer(name))
                assert head.status == 404
        head, _ = await client.request("GET", path="/explorer/raw/tools")
        assert head.status >= 400
    assert up.credentials("initialize").count("Bearer ann") == 1
