"""Upstreams that want the adapter's own token, behind a whole adapter: where it goes, and what clients are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartAdapter
from tests.edge.end_to_end.test_sse_upstream import Player
from tests.edge.end_to_end.test_sse_upstream import adapter as sse_adapter
from tests.edge.raw import (
    INITIALIZE,
    MODERN_META,
    call_body,
    error_of,
    initialize_result,
    modern_body,
    modern_fields,
    result,
)
from tests.oauth.protected import asking, auth
from tests.oauth.token_serving import ProtectedUpstream, TokenServer
from tests.upstream.sse.scripted_server import sse_site


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
        await asyncio.wait_for(tokens.begun.wait(), 20)
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
            body = orjson.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": MODERN_META}}
            )
            fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": method}
            head, text = await client.request("POST", body, **fields)
            message = error_of(text)["message"]
            assert head.status == 502 and word in message, message
            assert "upstream server raw" in message and "servers[].upstream.auth of raw" in message
            assert "leak" not in message and "secret" not in message
    assert up.seen == []
    assert len(tokens.forms) == 1, "a failure is not repeated for each call"


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
        monitor = front.app.server_parts.monitors["raw"]
        async with asyncio.timeout(20):
            await monitor.first.wait()
        assert monitor.pulse.reached and monitor.pulse.refusal is not None
        _, text = await client.request("POST", INITIALIZE)
        assert "got no token" in error_of(text)["message"]


async def test_a_server_over_sse_gets_the_same_credentials(tmp_path: Path, tokens: TokenServer) -> None:
    """On its stream and on each message; a message that is refused for an old token is sent again with a new one."""
    refused: list[str] = []

    class Guarded(Player):
        good = "Bearer t1"

        async def _answer(self) -> None:
            while True:
                post = await self.site.posts.get()
                if f"authorization: {self.good}".lower() not in post.head.lower():
                    refused.append(post.message["method"])
                    await post.answers("401 Unauthorized", b"who?")
                    continue
                await post.answers()
                number, method = post.message.get("id"), post.message.get("method")
                if method == "initialize":
                    await self.streams[-1].says(initialize_result(number, "2024-11-05"))
                elif number is not None:
                    await self.streams[-1].says(result(number))

    async with sse_site() as site:
        site.accepts = False
        player = Guarded(site)
        task = asyncio.create_task(player.play())
        async with sse_adapter(tmp_path, player, auth(tokens)["upstream"]) as front, front.client() as client:
            await client.initialize()
            assert "Bearer t1" in player.streams[0].head
            player.good = "Bearer t2"
            told = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
            assert (await client.request("POST", told))[0].status == 202
            head, body = await client.request("POST", call_body())
            assert (head.status, body) == (200, result(1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert refused == ["notifications/initialized"] and len(tokens.forms) == 2
