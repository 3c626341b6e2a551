"""The adapter with an authorization server beside it: tokens that it signed, from the first refusal to the call."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.edge.bearers import BASE, core, signed
from tests.edge.conftest import StartRoad
from tests.edge.raw import INITIALIZE, call_body
from tests.edge.replicating import site, tool
from tests.oauth.authorization_server import KEYS, OAUTH, authorization_server


async def test_a_client_finds_the_issuer_and_gets_in(road: StartRoad) -> None:
    """By the challenge to the metadata, by the metadata to the issuer; its keys are fetched once."""
    async with authorization_server() as server, road(core=core(server.issuer)) as (up, _, client):
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


async def test_a_person_is_the_same_on_every_replica(tmp_path: Path) -> None:
    """A session that began on one goes on at another with a refreshed token, in the process where it lives.

    Nobody else goes on with it anywhere, whatever their token allows.
    """
    async with authorization_server() as server, site(tmp_path, core=core(server.issuer)) as found:
        one, two, three = [await found.start(name) for name in ("one", "two", "three")]
        async with one.client() as client:
            await client.initialize(**signed(server, jti="1"))
            session = client.session
        for replica in (one, two, three):
            async with replica.client(session) as client:
                head, body = await client.request("POST", tool("who"), **signed(server, jti="2"))
                assert head.status == 200 and b'"pid"' in body
                for other in (signed(server, sub="bob"), signed(server, sub="ann ")):
                    head, _ = await client.request("POST", tool("who"), **other)
                    assert head.status == 404
        assert [replica.processes for replica in (one, two, three)] == [1, 0, 0]
