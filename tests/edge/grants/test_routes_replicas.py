"""Grants over three whole adapters with one store: each request of a person or a client meets another one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from adapter.app.access.grants import GrantParts
from tests.edge.conftest import Adapter, StartUpstream
from tests.edge.granting import BASE, TOKENS, Browser, first, protected
from tests.edge.raw import INITIALIZE, accepted, call_body, read_chunk
from tests.edge.replicating import PATIENCE, Replica, site
from tests.oauth.grants.scripted_issuer import issuing

CORE = {
    "public_base_url": BASE,
    "auth": {"enabled": True, "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()]},
}
ALICE = f"Bearer {TOKENS['alice']}"


def parts(replica: Replica) -> GrantParts:
    assert replica.app.grants is not None
    return replica.app.grants


def front(replica: Replica) -> Adapter:
    return Adapter(replica.app, replica.port)


async def asked(replica: Replica, session: str, body: bytes) -> Any:
    async with replica.client(session) as client:
        _, answer = await client.request("POST", body, authorization=ALICE)
    return orjson.loads(answer)


async def test_a_grant_on_three_replicas(tmp_path: Path, upstream: StartUpstream) -> None:
    """The link comes from the first, the page from the second, the redirect goes to the third; a client that listens at
    the second hears of it, and ten calls at all of them renew the grant once.
    """
    async with issuing() as issuer:
        script, _ = protected(issuer)
        async with upstream(script, hearing=accepted) as up:
            auth = {"upstream": {"url": up.url, "auth": {"type": "authorization_code"}}}
            async with site(tmp_path, auth, core=CORE) as place:
                replicas = [await place.start(name) for name in ("one", "two", "three")]
                one, two, three = replicas
                message = orjson.loads(INITIALIZE)
                message["params"]["capabilities"] = {"elicitation": {"url": {}}}
                async with one.client() as client:
                    head, _ = await client.request("POST", orjson.dumps(message), authorization=ALICE)
                session = head["mcp-session-id"]
                error = (await asked(one, session, call_body()))["error"]
                assert error["code"] == -32042
                (elicitation,) = error["data"]["elicitations"]

                async with two.client(session) as stream:
                    await stream.send("GET", accept="text/event-stream", authorization=ALICE)
                    assert (await stream.head()).status == 200
                    # The first chunk says that the stream is open.
                    await read_chunk(stream.reader)
                    browser = Browser(front(two), TOKENS["alice"])
                    redirect = issuer.consent(await browser.start(elicitation["url"]), "alice")
                    browser.front = front(three)
                    assert (await browser.get(redirect))[0].status == 200
                    async with asyncio.timeout(PATIENCE):
                        heard = await read_chunk(stream.reader)
                    assert elicitation["elicitationId"] == first(r'"elicitationId":"([^"]+)"', heard.decode())

                for replica in replicas:
                    answer = await asked(replica, session, call_body())
                    assert answer["result"]["content"][0]["text"] == "alice"
                    parts(replica).servers["raw"].just_renewed = 0.0
                issuer.expire(next(iter(issuer.tokens)))
                answers = await asyncio.gather(
                    *(asked(replicas[number % 3], session, call_body(number=number)) for number in range(10))
                )
                assert {each["result"]["content"][0]["text"] for each in answers} == {"alice"}
                assert len(issuer.requests) == 2
                assert issuer.reuses == 0
