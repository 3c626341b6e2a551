"""The link in the answer, as each client can take it, and the clients that wait for the person."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from tests.edge.granting import TOKENS, Scene, StartScene
from tests.edge.raw import INITIALIZE, RawClient, call_body, read_chunk

URLS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
FORMS: dict[str, Any] = {"elicitation": {}}
ALICE = f"Bearer {TOKENS['alice']}"


def initialize(capabilities: dict[str, Any]) -> bytes:
    message = orjson.loads(INITIALIZE)
    message["params"]["capabilities"] = capabilities
    return orjson.dumps(message)


async def opened(client: RawClient, capabilities: dict[str, Any]) -> None:
    head, body = await client.request("POST", initialize(capabilities), authorization=ALICE)
    assert head.status == 200, body
    client.session = head["mcp-session-id"]


async def legacy_call(client: RawClient) -> dict[str, Any]:
    head, body = await client.request("POST", call_body(), authorization=ALICE)
    assert head.status == 200
    found: dict[str, Any] = orjson.loads(body)
    return found


async def give(it: Scene, link: str) -> None:
    browser = it.browser()
    head, _ = await browser.get(it.issuer.consent(await browser.start(link), "alice"))
    assert head.status == 200


async def test_a_modern_client_that_opens_links_is_asked_for_input(scene: StartScene) -> None:
    """InputRequiredResult with one elicitation in URL mode, and nothing that the client did not declare."""
    async with scene() as it:
        result = (await it.modern("alice", URLS))["result"]
        assert result["resultType"] == "input_required"
        ((key, request),) = result["inputRequests"].items()
        assert key == "mcp-file-adapter/grant"
        assert request["method"] == "elicitation/create"
        assert request["params"]["mode"] == "url"
        assert request["params"]["url"].startswith("http://127.0.0.1:8932/authorize/raw/")


async def test_a_modern_client_without_links_gets_a_failed_tool(scene: StartScene) -> None:
    """The link stands in the text, which the model shows."""
    async with scene() as it:
        result = (await it.modern("alice", FORMS))["result"]
        assert result["isError"]
        assert "/authorize/raw/" in result["content"][0]["text"]


async def test_a_retry_waits_for_the_person(scene: StartScene) -> None:
    """A client that says "accept" at once is answered when the grant is there, and the upstream sees no word of it."""
    async with scene() as it:
        request = (await it.modern("alice", URLS))["result"]["inputRequests"]["mcp-file-adapter/grant"]
        said = {
            "inputResponses": {"mcp-file-adapter/grant": {"action": "accept"}, "theirs": {"action": "accept"}}
        }
        waiting = asyncio.ensure_future(it.modern("alice", URLS, said))
        await give(it, request["params"]["url"])
        assert (await waiting)["result"]["content"][0]["text"] == "alice"
        params: Any = it.upstream.calls("tools/call")[0].message["params"]
        assert params["inputResponses"] == {"theirs": {"action": "accept"}}


async def test_a_person_who_declines_is_not_asked_again(scene: StartScene) -> None:
    """The call fails, and says how it would work."""
    async with scene() as it:
        said = {"inputResponses": {"mcp-file-adapter/grant": {"action": "decline"}}}
        result = (await it.modern("alice", URLS, said))["result"]
        assert result["isError"]


async def test_a_legacy_client_that_opens_links_gets_their_error(scene: StartScene) -> None:
    """-32042 with its elicitations; the client hears when the person is done, and its call goes on."""
    async with scene(opens=True) as it, it.front.client() as client, it.front.client() as stream:
        await opened(client, URLS)
        error = (await legacy_call(client))["error"]
        assert error["code"] == -32042
        (elicitation,) = error["data"]["elicitations"]
        assert elicitation.keys() == {"mode", "elicitationId", "url", "message"}
        assert elicitation["mode"] == "url"
        stream.session = client.session
        await stream.send("GET", accept="text/event-stream", authorization=ALICE)
        assert (await stream.head()).status == 200
        await give(it, elicitation["url"])
        async with asyncio.timeout(5):
            event = b""
            while b"notifications/elicitation/complete" not in event:
                event = await read_chunk(stream.reader)
        assert elicitation["elicitationId"].encode() in event
        assert (await legacy_call(client))["result"]["content"][0]["text"] == "alice"


async def test_a_legacy_client_without_links_gets_a_failed_tool(scene: StartScene) -> None:
    """Form mode alone shows no links, so the text has it."""
    async with scene(opens=True) as it, it.front.client() as client:
        await opened(client, FORMS)
        result = (await legacy_call(client))["result"]
        assert result["isError"]
        assert "resultType" not in result


async def test_a_session_that_cannot_be_opened_says_why(scene: StartScene) -> None:
    """The upstream refuses even initialize: the error has the link, and after it the session opens."""
    async with scene() as it, it.front.client() as client:
        _, body = await client.request("POST", initialize({}), authorization=ALICE)
        error = orjson.loads(body)["error"]
        assert error["code"] == -32017
        assert error["data"]["url"] in error["message"]
        _, body = await client.request("POST", initialize(URLS), authorization=ALICE)
        assert orjson.loads(body)["error"]["code"] == -32042
        await give(it, error["data"]["url"])
        await opened(client, URLS)
        assert (await legacy_call(client))["result"]["content"][0]["text"] == "alice"


async def test_a_list_without_a_grant_is_an_error(scene: StartScene) -> None:
    """Never an empty list, which would look as if there were no tools."""
    async with scene() as it, it.front.client() as client:
        body = orjson.dumps(
            {
                "jsonrpc": "2.0",
                "id": 5,
                "method": "tools/list",
                "params": {
                    "_meta": {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                        "io.modelcontextprotocol/clientCapabilities": URLS,
                    }
                },
            }
        )
        fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}
        head, answer = await client.request("POST", body, authorization=ALICE, **fields)
        assert head.get("www-authenticate") is None
        assert orjson.loads(answer)["error"]["data"]["url"] in orjson.loads(answer)["error"]["message"]


async def test_an_ended_token_is_renewed_within_the_call(scene: StartScene) -> None:
    """The upstream's 401 costs one renewal, and the client sees nothing of it."""
    async with scene() as it:
        await it.grant()
        assert (await it.call())["result"]["content"][0]["text"] == "alice"
        grants = it.front.app.grants
        assert grants is not None
        grants.servers["raw"].just_renewed = 0.0
        it.issuer.expire(it.seen_tokens()[-1])
        assert (await it.call())["result"]["content"][0]["text"] == "alice"
        assert [each["grant_type"] for each in it.issuer.requests] == ["authorization_code", "refresh_token"]


async def test_an_ended_grant_is_asked_for_again(scene: StartScene) -> None:
    """When the server takes the refresh token no more, the person gets a new link."""
    async with scene() as it:
        await it.grant()
        assert (await it.call())["result"]["content"][0]["text"] == "alice"
        grants = it.front.app.grants
        assert grants is not None
        grants.servers["raw"].just_renewed = 0.0
        it.issuer.expire(it.seen_tokens()[-1])
        it.issuer.end_refresh()
        assert (await it.call())["result"]["isError"]
        await it.grant()
        assert (await it.call())["result"]["content"][0]["text"] == "alice"


async def test_the_http_api_says_where_to_go(scene: StartScene) -> None:
    """A tool that is called over HTTP is refused with the link."""
    console = {"enabled": True, "path": "/explorer", "allow_execute": True}
    async with scene(console=console) as it, it.front.client() as client:
        head, body = await client.request("POST", b"{}", "/explorer/raw/tools/tool/call", authorization=ALICE)
        assert head.status == 403
        assert b"/authorize/raw/" in body
