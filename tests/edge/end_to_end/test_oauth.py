"""The adapter with an authorization server beside it: tokens that it signed, from the first refusal to the call."""

from __future__ import annotations

import time

import orjson

from tests.edge.bearers import BASE, core, signed
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.raw import INITIALIZE, call_body
from tests.oauth.authorization_server import KEYS, OAUTH, authorization_server
from tests.pipeline.issuer import rsa_key


async def test_a_client_finds_the_issuer_and_gets_in(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """By the challenge to the metadata, by the metadata to the issuer; its keys are fetched once."""
    async with (
        authorization_server() as server,
        upstream() as up,
        adapter(up, core=core(server.issuer)) as front,
        front.client() as client,
    ):
        head, _ = await client.request("POST", INITIALIZE)
        _, _, told = head["www-authenticate"].partition('resource_metadata="')
        path = told.partition('"')[0].removeprefix(BASE)
        _, document = await client.request("GET", path=path)
        assert orjson.loads(document)["authorization_servers"] == [server.issuer]
        assert server.asked == []
        token = signed(server, orjson.loads(document)["resource"])
        await client.initialize(**token)
        for _ in range(3):
            assert (await client.request("POST", call_body(), **token))[0].status == 200
        assert server.asked == [OAUTH, KEYS]
        assert [each for each in up.seen if each.head.get("authorization")] == []


async def test_only_tokens_of_the_issuer_for_the_mount_get_in(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Each refusal says why in one sentence, with the challenge."""
    async with authorization_server() as server:
        forged = server.token(rsa_key("second"), aud=f"{BASE}/mcp", exp=int(time.time()) + 600, scope="mcp")
        refused = {
            401: [
                signed(server, f"{BASE}/mcp2"),
                signed(server, exp=int(time.time()) - 60),
                signed(server, iss="https://other.example"),
                {"authorization": f"Bearer {forged}"},
                {"authorization": "Bearer opaque"},
            ],
            403: [signed(server, scope="profile")],
        }
        async with upstream() as up, adapter(up, core=core(server.issuer)) as front, front.client() as client:
            for status, tokens in refused.items():
                for token in tokens:
                    head, body = await client.request("POST", INITIALIZE, **token)
                    assert head.status == status, (token, body)
                    assert "error=" in head["www-authenticate"]
            assert up.seen == []


async def test_made_up_tokens_ask_the_issuer_for_nothing_more(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Whoever invents keys, connections and people finds the same refusal, and the issuer hears nothing of it."""
    async with (
        authorization_server() as server,
        upstream() as up,
        adapter(up, core=core(server.issuer)) as front,
        front.client() as client,
    ):
        await client.initialize(**signed(server))
        client.session = None
        for number in range(300):
            forged = signed(server, sub=f"person-{number}", kid=f"k-{number}", key=rsa_key("second"))
            head, _ = await client.request("POST", INITIALIZE, **forged)
            assert head.status == 401
        assert server.asked == [OAUTH, KEYS]
        await client.initialize(**signed(server))
