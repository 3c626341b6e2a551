"""Upstreams that know each caller by a token of its own, behind one adapter and behind several."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from tests.edge.bearers import ScriptedVerifier, bearer, core
from tests.edge.conftest import Adapter, StartAdapter
from tests.edge.end_to_end.test_replicas import three
from tests.edge.raw import INITIALIZE, call_body, error_of, modern_body, modern_fields
from tests.oauth.protected import PINNED, auth, tools_of
from tests.oauth.token_serving import ProtectedUpstream, TokenServer
from tests.state.shared import SharedMemory


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
                return {await tools_of(client, **fields) for _ in range(4)}

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


async def test_tokens_refused_amid_the_calls_of_two_people_stay_apart(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """The upstream takes neither's token any more: each is exchanged once more, and for its own subject."""
    verifier = ScriptedVerifier()
    people = [verifier.issue(name, name, claims={"sub": name}) for name in ("ann", "bob")] * 8
    up.accept("t1", "t2")
    async with adapter(up, server=auth(tokens, "token_exchange"), core=core(), verifier=verifier) as front:

        async def asked(fields: dict[str, str]) -> bytes:
            async with front.client() as client:
                return await tools_of(client, **fields)

        await asyncio.gather(*map(asked, people))
        up.accept("t3", "t4")
        lists = await asyncio.gather(*map(asked, people))
    subjects = {token: form["subject_token"] for token, form in tokens.issued.items()}
    assert sorted(subjects) == ["t1", "t2", "t3", "t4"]
    seen = [next(token for token in ("t3", "t4") if f"tool_{token}".encode() in each) for each in lists]
    assert [subjects[token] for token in seen] == ["ann", "bob"] * 8


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


async def test_shared_sessions_are_of_one_person_each(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """Where the sessions of one principal share one upstream session, that of another is another."""
    verifier = ScriptedVerifier()
    people = [verifier.issue(name, name, claims={"sub": name}) for name in ("ann", "bob")]
    up.accept("t1", "t2")
    async with adapter(
        up,
        server=auth(tokens, "token_exchange"),
        core=core(),
        sessions={"upstream": "principal"},
        verifier=verifier,
    ) as front:
        answers = []
        for fields in people * 2:
            async with front.client() as client:
                await client.initialize(**fields)
                _, text = await client.request("POST", call_body(), **fields)
                answers.append(text)
    assert [b"t1" in each for each in answers] == [True, False, True, False]
    assert [b"t2" in each for each in answers] == [False, True, False, True]
    assert up.opened == 2 and len(tokens.forms) == 2
    of_session = {
        (each.head.get("mcp-session-id"), each.head.get("authorization")) for each in up.calls("tools/call")
    }
    assert len(of_session) == 2


async def test_replicas_use_one_token(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """Three that are called at once ask once; a revoked token is replaced once for all of them, too."""
    async with three(adapter, up, SharedMemory().replica, server=auth(tokens)) as house:

        async def call(front: Adapter) -> bytes:
            async with front.client() as client:
                _, text = await client.request("POST", modern_body("x", 1), **modern_fields("x"))
                return text

        assert all(b"t1" in text for text in await asyncio.gather(*map(call, house.adapters)))
        up.accept("t2")
        assert all([b"t2" in await call(front) for front in house.adapters])
    assert len(tokens.forms) == 2


async def test_two_people_on_three_replicas(
    up: ProtectedUpstream, tokens: TokenServer, adapter: StartAdapter
) -> None:
    """A session goes on at every replica, for its own person only, and under that person's token."""
    verifier = ScriptedVerifier()
    people = {name: verifier.issue(name, name, claims={"sub": name}) for name in ("ann", "bob")}
    up.good = {f"Bearer t{number}" for number in range(1, 7)}
    settings: dict[str, Any] = {"server": auth(tokens, "token_exchange"), "core": core() | PINNED}
    async with three(adapter, up, SharedMemory().replica, verifier=verifier, **settings) as house:
        sessions = {}
        for name, fields in people.items():
            async with house.adapters[0].client() as client:
                await client.initialize(**fields)
                sessions[name] = client.session
        for front in house.adapters:
            for name, fields in people.items():
                async with front.client() as client:
                    client.session = sessions[name]
                    head, text = await client.request("POST", call_body(), **fields)
                    used = orjson.loads(text)["result"]["content"][0]["text"]
                    assert tokens.issued[used]["subject_token"] == name
                    client.session = sessions["bob" if name == "ann" else "ann"]
                    head, _ = await client.request("POST", call_body(), **fields)
                    assert head.status == 404
