"""The pages on which people give grants, from the first call to the last, and what others may try on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.app.access.grants import UpstreamGrants
from adapter.edge.browser_pages import consent_page, failed_page, granted_page, leaving_page
from tests.edge.conftest import Adapter, StartAdapter, StartUpstream
from tests.edge.granting import (
    BASE,
    TOKENS,
    Browser,
    Scene,
    StartScene,
    confirmation,
    first,
    modern_meta,
    protected,
    scene_of,
)
from tests.edge.raw import (
    INITIALIZE,
    MODERN_VERSION,
    RawClient,
    accepted,
    call_body,
    initialize_body,
    read_chunk,
)
from tests.edge.replicating import PATIENCE, Replica, site
from tests.oauth.grants.scripted_issuer import ScriptedIssuer


@pytest.fixture
def scene(upstream: StartUpstream, adapter: StartAdapter) -> StartScene:
    """See ``scene_of``."""
    return scene_of(upstream, adapter)


@pytest.fixture
async def it(scene: StartScene) -> AsyncIterator[Scene]:
    """Alice and bob before a server that needs a grant of each."""
    async with scene() as it:
        yield it


async def test_a_call_goes_on_with_the_grant_of_its_own_caller(it: Scene) -> None:
    """Two people authorize the adapter, and each one's calls carry that one's token."""
    await it.grant("alice")
    await it.grant("bob")
    for who in ("alice", "bob", "alice"):
        answer = await it.call(who)
        assert answer["result"]["content"][0]["text"] == who
    assert {it.issuer.tokens[token] for token in it.seen_tokens()} == {"alice", "bob"}


async def test_tokens_that_end_amid_the_calls_of_two_people_stay_apart(it: Scene) -> None:
    """Both are refused at once, ten times each: two renewals, and nobody's call goes on with the other's token."""
    for who in TOKENS:
        await it.grant(who)
        await it.call(who)
    assert it.front.app.grants is not None
    it.front.app.grants.servers["raw"].just_renewed = 0.0
    for token in it.seen_tokens():
        it.issuer.expire(token)
    callers = [who for _ in range(10) for who in TOKENS]
    answers = await asyncio.gather(*(it.call(who) for who in callers))
    assert [each["result"]["content"][0]["text"] for each in answers] == callers
    renewals = [each for each in it.issuer.requests if each["grant_type"] == "refresh_token"]
    assert (len(renewals), it.issuer.reuses) == (2, 0)


async def test_no_grant_means_no_call(it: Scene) -> None:
    """A call goes upstream only when its caller has authorized the adapter; somebody else's grant does not help."""
    await it.grant("alice")
    link = await it.link("bob")
    assert link.startswith(f"{BASE}/authorize/raw/")
    assert it.seen_tokens() == []


async def test_the_page_says_who_asks_for_what(it: Scene) -> None:
    """Principal, server, scopes and host of the authorization server stand on the page, which nobody may frame."""
    head, page = await it.browser().get(await it.link())
    for text in ("alice", "raw", "notes", f"127.0.0.1:{it.issuer.port}"):
        assert text in page
    assert "frame-ancestors 'none'" in head["content-security-policy"]
    assert head["cache-control"] == "no-store"
    assert "HttpOnly; SameSite=Lax" in head["set-cookie"]


async def test_the_request_has_all_that_protects_it(it: Scene) -> None:
    """PKCE with S256, a state, the resource, and one redirect URI for this server."""
    url = await it.browser().start(await it.link())
    for text in ("code_challenge_method=S256", "state=", "resource=", "scope=notes"):
        assert text in url
    assert "redirect_uri=http%3A%2F%2F127.0.0.1%3A8932%2Fauthorize%2Fraw%2Fcallback" in url
    assert it.issuer.registered[0]["redirect_uris"] == [f"{BASE}/authorize/raw/callback"]


async def test_a_person_does_not_give_another_one_s_grant(it: Scene) -> None:
    """Alice sends her link to Bob: he is told that it is not his, and nothing is asked of the server."""
    link = await it.link("alice")
    bob = it.browser("bob")
    _, page = await bob.get(link)
    head, page = await bob.post(link, {"confirm": confirmation(page), "token": TOKENS["bob"]})
    assert head.status == 400
    assert "not the one for whom" in page


async def test_a_state_belongs_to_one_browser(it: Scene) -> None:
    """Mallory starts, and has the victim's browser bring the answer: the victim's account is not hers."""
    mallory = it.browser("alice")
    url = await mallory.start(await it.link("alice"))
    victim = it.browser("bob")
    head, page = await victim.get(it.issuer.consent(url, "bob"))
    assert head.status == 400
    assert "another browser" in page
    assert it.issuer.requests == []


async def test_the_right_browser_may_still_finish_after_a_wrong_one(it: Scene) -> None:
    """An answer that a stranger brings does not use the state up."""
    alice = it.browser("alice")
    redirect = it.issuer.consent(await alice.start(await it.link("alice")), "alice")
    assert (await Browser(it.front).get(redirect))[0].status == 400
    assert (await alice.get(redirect))[0].status == 200


@pytest.mark.parametrize("named", ["https://other.example", ""])
async def test_an_answer_of_another_issuer_is_refused(it: Scene, named: str) -> None:
    """Mix-up: the answer names another issuer, or none although this one always names itself."""
    alice = it.browser("alice")
    url = await alice.start(await it.link("alice"))
    head, page = await alice.get(it.issuer.consent(url, "alice", iss=named))
    assert head.status == 400
    assert "another authorization server" in page
    assert it.issuer.requests == []


async def test_a_look_at_the_head_uses_nothing_up(it: Scene) -> None:
    """Programs that check links send HEAD, or a form: only the browser's own redirect counts."""
    alice = it.browser("alice")
    redirect = it.issuer.consent(await alice.start(await it.link("alice")), "alice")
    assert (await alice.post(redirect, {}))[0].status == 400
    assert (await alice.get(redirect))[0].status == 200


async def test_a_refusal_is_told_and_nothing_of_it_is_believed(it: Scene) -> None:
    """A person who refuses sees so; texts in the redirect reach no page."""
    alice = it.browser("alice")
    url = await alice.start(await it.link("alice"))
    head, page = await alice.get(it.issuer.refuse(url) + "&error_description=%3Cscript%3E")
    assert head.status == 400
    assert "not granted" in page
    assert "<script" not in page
    assert (await it.call("alice"))["result"]["isError"]


async def test_a_form_of_another_page_is_refused(it: Scene) -> None:
    """A page elsewhere cannot push the button in the person's browser: it does not know the word of the form."""
    link = await it.link("alice")
    alice = it.browser("alice")
    _, page = await alice.get(link)
    form = {"confirm": confirmation(page), "token": TOKENS["alice"]}
    assert (await alice.post(link, form, origin="https://evil.example"))[0].status == 400
    assert (await alice.post(link, {**form, "confirm": "0" * 64}))[0].status == 400
    assert (await alice.post(link, form, origin=BASE))[0].status == 200


@pytest.mark.parametrize(
    "path", ["/authorize/raw/none", "/authorize/raw/" + "A" * 24, "/authorize/raw/callback"]
)
async def test_a_link_that_is_none_says_so(it: Scene, path: str) -> None:
    """A wrong or old link leads to a page that tells how to get another."""
    head, page = await it.browser().get(path)
    assert head.status == 400
    assert "call the tool again" in page


async def test_the_client_has_a_document_of_its_own(it: Scene) -> None:
    """Authorization servers that take client id metadata documents find one."""
    head, text = await it.browser().get("/authorize/raw/client.json")
    assert head.status == 200
    assert f'"client_id":"{BASE}/authorize/raw/client.json"' in text
    assert (await it.browser().get("/authorize/other/client.json"))[0].status == 404


# --- the link in the answer, as each client can take it, and the clients that wait for the person --------------


URLS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
FORMS: dict[str, Any] = {"elicitation": {}}
ALICE = f"Bearer {TOKENS['alice']}"


async def legacy_call(client: RawClient) -> dict[str, Any]:
    head, body = await client.request("POST", call_body(), authorization=ALICE)
    assert head.status == 200
    found: dict[str, Any] = orjson.loads(body)
    return found


async def give(it: Scene, link: str) -> None:
    browser = it.browser()
    head, _ = await browser.get(it.issuer.consent(await browser.start(link), "alice"))
    assert head.status == 200


async def test_a_modern_client_that_opens_links_is_asked_for_input(it: Scene) -> None:
    """InputRequiredResult with one elicitation in URL mode, and nothing that the client did not declare."""
    result = (await it.modern("alice", URLS))["result"]
    assert result["resultType"] == "input_required"
    ((key, request),) = result["inputRequests"].items()
    assert key == "mcp-file-adapter/grant"
    assert request["method"] == "elicitation/create"
    assert request["params"]["mode"] == "url"
    assert request["params"]["url"].startswith("http://127.0.0.1:8932/authorize/raw/")


async def test_a_modern_client_without_links_gets_a_failed_tool(it: Scene) -> None:
    """The link stands in the text, which the model shows."""
    result = (await it.modern("alice", FORMS))["result"]
    assert result["isError"]
    assert "/authorize/raw/" in result["content"][0]["text"]


async def test_a_retry_waits_for_the_person(it: Scene) -> None:
    """A client that says "accept" at once is answered when the grant is there, and the upstream sees no word of it."""
    request = (await it.modern("alice", URLS))["result"]["inputRequests"]["mcp-file-adapter/grant"]
    said = {
        "inputResponses": {"mcp-file-adapter/grant": {"action": "accept"}, "theirs": {"action": "accept"}}
    }
    waiting = asyncio.ensure_future(it.modern("alice", URLS, said))
    await give(it, request["params"]["url"])
    assert (await waiting)["result"]["content"][0]["text"] == "alice"
    params: Any = it.upstream.calls("tools/call")[0].message["params"]
    assert params["inputResponses"] == {"theirs": {"action": "accept"}}


async def test_a_person_who_declines_is_not_asked_again(it: Scene) -> None:
    """The call fails, and says how it would work."""
    said = {"inputResponses": {"mcp-file-adapter/grant": {"action": "decline"}}}
    result = (await it.modern("alice", URLS, said))["result"]
    assert result["isError"]


async def test_a_legacy_client_that_opens_links_gets_their_error(scene: StartScene) -> None:
    """-32042 with its elicitations; the client hears when the person is done, and its call goes on."""
    async with scene(opens=True) as it, it.front.client() as client, it.front.client() as stream:
        await client.initialize(initialize_body(capabilities=URLS), authorization=ALICE)
        error = (await legacy_call(client))["error"]
        assert error["code"] == -32042
        (elicitation,) = error["data"]["elicitations"]
        assert elicitation.keys() == {"mode", "elicitationId", "url", "message"}
        assert elicitation["mode"] == "url"
        stream.session = client.session
        await stream.send("GET", accept="text/event-stream", authorization=ALICE)
        assert (await stream.head()).status == 200
        await give(it, elicitation["url"])
        async with asyncio.timeout(20):
            event = b""
            while b"notifications/elicitation/complete" not in event:
                event = await read_chunk(stream.reader)
        assert elicitation["elicitationId"].encode() in event
        assert (await legacy_call(client))["result"]["content"][0]["text"] == "alice"


async def test_a_legacy_client_without_links_gets_a_failed_tool(scene: StartScene) -> None:
    """Form mode alone shows no links, so the text has it."""
    async with scene(opens=True) as it, it.front.client() as client:
        await client.initialize(initialize_body(capabilities=FORMS), authorization=ALICE)
        result = (await legacy_call(client))["result"]
        assert result["isError"]
        assert "resultType" not in result


async def test_a_session_that_cannot_be_opened_says_why(it: Scene) -> None:
    """The upstream refuses even initialize: the error has the link, and after it the session opens."""
    async with it.front.client() as client:
        _, body = await client.request("POST", INITIALIZE, authorization=ALICE)
        error = orjson.loads(body)["error"]
        assert error["code"] == -32017
        assert error["data"]["url"] in error["message"]
        _, body = await client.request("POST", initialize_body(capabilities=URLS), authorization=ALICE)
        assert orjson.loads(body)["error"]["code"] == -32042
        await give(it, error["data"]["url"])
        await client.initialize(initialize_body(capabilities=URLS), authorization=ALICE)
        assert (await legacy_call(client))["result"]["content"][0]["text"] == "alice"


async def test_a_list_without_a_grant_is_an_error(it: Scene) -> None:
    """Never an empty list, which would look as if there were no tools."""
    async with it.front.client() as client:
        params = {"_meta": modern_meta(URLS)}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": params})
        fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "tools/list"}
        head, answer = await client.request("POST", body, authorization=ALICE, **fields)
        assert head.get("www-authenticate") is None
        assert orjson.loads(answer)["error"]["data"]["url"] in orjson.loads(answer)["error"]["message"]


def expire_token(it: Scene) -> None:
    """The upstream takes the last token no more, and it may be renewed at once."""
    grants = it.front.app.grants
    assert grants is not None
    grants.servers["raw"].just_renewed = 0.0
    it.issuer.expire(it.seen_tokens()[-1])


async def test_an_ended_token_is_renewed_within_the_call(it: Scene) -> None:
    """The upstream's 401 costs one renewal, and the client sees nothing of it."""
    await it.grant()
    assert (await it.call())["result"]["content"][0]["text"] == "alice"
    expire_token(it)
    assert (await it.call())["result"]["content"][0]["text"] == "alice"
    assert [each["grant_type"] for each in it.issuer.requests] == ["authorization_code", "refresh_token"]


async def test_an_ended_grant_is_asked_for_again(it: Scene) -> None:
    """When the server takes the refresh token no more, the person gets a new link."""
    await it.grant()
    assert (await it.call())["result"]["content"][0]["text"] == "alice"
    expire_token(it)
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


# --- grants over three whole adapters with one store: each request of a person or a client meets any of them


CORE = {
    "public_base_url": BASE,
    "auth": {"enabled": True, "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()]},
}


def parts(replica: Replica) -> UpstreamGrants:
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
    async with ScriptedIssuer() as issuer:
        script, _ = protected(issuer)
        async with upstream(script, hearing=accepted) as up:
            auth = {"upstream": {"url": up.url, "auth": {"type": "authorization_code"}}}
            async with site(tmp_path, auth, core=CORE) as place:
                replicas = [await place.start(name) for name in ("one", "two", "three")]
                one, two, three = replicas
                async with one.client() as client:
                    opening = initialize_body(capabilities={"elicitation": {"url": {}}})
                    session = (await client.initialize(opening, authorization=ALICE))["mcp-session-id"]
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


# --- the pages of grants: nothing that comes from elsewhere is more than text in them --------------------------


EVIL = '"><script>alert(1)</script>\u202e'


def test_texts_of_strangers_are_text() -> None:
    """Names, hosts, scopes and URLs can break out of no element and no attribute, and turn no line around."""
    pages = (
        consent_page(EVIL, EVIL, EVIL, [EVIL], EVIL, asks_token=True),
        granted_page(EVIL, EVIL),
        failed_page(EVIL),
        leaving_page(f"https://login.example/?x={EVIL}", EVIL),
    )
    for page in pages:
        text = page.decode()
        assert "<script" not in text
        assert EVIL not in text
        assert "&lt;script&gt;" in text


def test_long_texts_are_shortened() -> None:
    """A page stays a page, however long a name is, and however many scopes there are."""
    page = consent_page("a" * 9999, "b" * 9999, "c" * 9999, ["d" * 9999] * 999, "e", asks_token=False)
    assert len(page) < 20_000
    assert b"949 more" in page
    assert b"password" not in page


def test_a_grant_that_is_everybody_s() -> None:
    """Where callers are not told apart the page says that all of them will use the account."""
    page = consent_page("notes", None, "login.example", [], "e", asks_token=False).decode()
    assert "everybody who can use this adapter" in page
    assert "those it gives by itself" in page
    assert "everybody" in granted_page("notes", None).decode()
