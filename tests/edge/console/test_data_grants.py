"""The console tells people of their own grants, operators of all, and ends them."""

from __future__ import annotations

from typing import Any

import orjson

from tests.edge.granting import TOKENS, Scene, StartScene
from tests.edge.raw import Head


async def asked(it: Scene, who: str, method: str, path: str, **fields: str) -> tuple[Head, Any]:
    async with it.front.client() as client:
        body = b"{}" if method == "POST" else b""
        head, answer = await client.request(
            method, body, f"/explorer{path}", authorization=f"Bearer {TOKENS[who]}", **fields
        )
    return head, orjson.loads(answer)


CONSOLE = {"enabled": True, "path": "/explorer", "operators": ["bob"]}


async def test_everybody_sees_their_own(scene: StartScene) -> None:
    """An operator sees all of them; nobody sees a token."""
    async with scene(console=CONSOLE) as it:
        await it.grant("alice")
        await it.grant("bob")
        _, own = await asked(it, "alice", "GET", "/-/grants")
        assert [each["principal"] for each in own] == ["alice"]
        assert own[0]["issuer"] == it.issuer.issuer
        assert own[0]["renewable"]
        _, everybody = await asked(it, "bob", "GET", "/-/grants")
        assert {each["principal"] for each in everybody} == {"alice", "bob"}
        assert not any(token in orjson.dumps(everybody).decode() for token in it.issuer.tokens)


async def test_a_grant_is_revoked_at_once(scene: StartScene) -> None:
    """The next call asks anew, and the authorization server knows."""
    async with scene(console=CONSOLE) as it:
        await it.grant("alice")
        assert "isError" not in (await it.call("alice"))["result"]
        _, (listed,) = await asked(it, "alice", "GET", "/-/grants")
        head, answer = await asked(it, "bob", "POST", f"/-/grants/raw/{listed['id']}/revoke")
        assert (head.status, answer) == (200, {"revoked": True})
        assert len(it.issuer.revoked) == 1
        assert (await it.call("alice"))["result"]["isError"]


async def test_nobody_revokes_another_one_s(scene: StartScene) -> None:
    """For anybody but operators another one's grant is not there; neither is one of a wrong id or verb."""
    async with scene(console=CONSOLE) as it:
        await it.grant("bob")
        _, (listed,) = await asked(it, "bob", "GET", "/-/grants")
        for who, path in (
            ("alice", f"raw/{listed['id']}/revoke"),
            ("bob", f"raw/{'0' * 64}/revoke"),
            ("bob", "raw/x/revoke"),
            ("bob", f"other/{listed['id']}/revoke"),
            ("bob", f"raw/{listed['id']}/keep"),
        ):
            assert (await asked(it, who, "POST", f"/-/grants/{path}"))[0].status == 404
        forged = {"origin": f"http://127.0.0.1:{it.front.port}", "content_type": "text/plain"}
        assert (await asked(it, "bob", "POST", f"/-/grants/raw/{listed['id']}/revoke", **forged))[
            0
        ].status == 415


async def test_the_document_names_the_routes(scene: StartScene) -> None:
    """OpenAPI has them where there are grants."""
    async with scene(console=CONSOLE) as it:
        _, document = await asked(it, "alice", "GET", "/openapi.json")
        assert "/explorer/-/grants" in document["paths"]
        assert "/explorer/-/grants/{server}/{grant}/revoke" in document["paths"]
