"""The pages on which people give grants, from the first call to the last, and what others may try on the way."""

from __future__ import annotations

import asyncio

import pytest

from tests.edge.granting import BASE, TOKENS, Browser, StartScene, confirmation


async def test_a_call_goes_on_with_the_grant_of_its_own_caller(scene: StartScene) -> None:
    """Two people authorize the adapter, and each one's calls carry that one's token."""
    async with scene() as it:
        await it.grant("alice")
        await it.grant("bob")
        for who in ("alice", "bob", "alice"):
            answer = await it.call(who)
            assert answer["result"]["content"][0]["text"] == who
        assert {it.issuer.tokens[token] for token in it.seen_tokens()} == {"alice", "bob"}


async def test_tokens_that_end_amid_the_calls_of_two_people_stay_apart(scene: StartScene) -> None:
    """Both are refused at once, ten times each: two renewals, and nobody's call goes on with the other's token."""
    async with scene() as it:
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


async def test_no_grant_means_no_call(scene: StartScene) -> None:
    """A call goes upstream only when its caller has authorized the adapter; somebody else's grant does not help."""
    async with scene() as it:
        await it.grant("alice")
        link = await it.link("bob")
        assert link.startswith(f"{BASE}/authorize/raw/")
        assert it.seen_tokens() == []


async def test_the_page_says_who_asks_for_what(scene: StartScene) -> None:
    """Principal, server, scopes and host of the authorization server stand on the page, which nobody may frame."""
    async with scene() as it:
        head, page = await it.browser().get(await it.link())
        for text in ("alice", "raw", "notes", f"127.0.0.1:{it.issuer.port}"):
            assert text in page
        assert "frame-ancestors 'none'" in head["content-security-policy"]
        assert head["cache-control"] == "no-store"
        assert "HttpOnly; SameSite=Lax" in head["set-cookie"]


async def test_the_request_has_all_that_protects_it(scene: StartScene) -> None:
    """PKCE with S256, a state, the resource, and one redirect URI for this server."""
    async with scene() as it:
        url = await it.browser().start(await it.link())
        for text in ("code_challenge_method=S256", "state=", "resource=", "scope=notes"):
            assert text in url
        assert "redirect_uri=http%3A%2F%2F127.0.0.1%3A8932%2Fauthorize%2Fraw%2Fcallback" in url
        assert it.issuer.registered[0]["redirect_uris"] == [f"{BASE}/authorize/raw/callback"]


async def test_a_person_does_not_give_another_one_s_grant(scene: StartScene) -> None:
    """Alice sends her link to Bob: he is told that it is not his, and nothing is asked of the server."""
    async with scene() as it:
        link = await it.link("alice")
        bob = it.browser("bob")
        _, page = await bob.get(link)
        head, page = await bob.post(link, {"confirm": confirmation(page), "token": TOKENS["bob"]})
        assert head.status == 400
        assert "not the one for whom" in page


async def test_a_state_belongs_to_one_browser(scene: StartScene) -> None:
    """Mallory starts, and has the victim's browser bring the answer: the victim's account is not hers."""
    async with scene() as it:
        mallory = it.browser("alice")
        url = await mallory.start(await it.link("alice"))
        victim = it.browser("bob")
        head, page = await victim.get(it.issuer.consent(url, "bob"))
        assert head.status == 400
        assert "another browser" in page
        assert it.issuer.requests == []


async def test_the_right_browser_may_still_finish_after_a_wrong_one(scene: StartScene) -> None:
    """An answer that a stranger brings does not use the state up."""
    async with scene() as it:
        alice = it.browser("alice")
        redirect = it.issuer.consent(await alice.start(await it.link("alice")), "alice")
        assert (await Browser(it.front).get(redirect))[0].status == 400
        assert (await alice.get(redirect))[0].status == 200


async def test_an_answer_counts_once(scene: StartScene) -> None:
    """The same redirect again is refused before the authorization server hears of it."""
    async with scene() as it:
        alice = it.browser("alice")
        redirect = it.issuer.consent(await alice.start(await it.link("alice")), "alice")
        cookies = dict(alice.cookies)
        assert (await alice.get(redirect))[0].status == 200
        again = Browser(it.front, cookies=cookies)
        head, page = await again.get(redirect)
        assert head.status == 400
        assert "used already" in page
        assert len(it.issuer.requests) == 1


@pytest.mark.parametrize("named", ["https://other.example", ""])
async def test_an_answer_of_another_issuer_is_refused(scene: StartScene, named: str) -> None:
    """Mix-up: the answer names another issuer, or none although this one always names itself."""
    async with scene() as it:
        alice = it.browser("alice")
        url = await alice.start(await it.link("alice"))
        head, page = await alice.get(it.issuer.consent(url, "alice", iss=named))
        assert head.status == 400
        assert "another authorization server" in page
        assert it.issuer.requests == []


async def test_a_look_at_the_head_uses_nothing_up(scene: StartScene) -> None:
    """Programs that check links send HEAD, or a form: only the browser's own redirect counts."""
    async with scene() as it:
        alice = it.browser("alice")
        redirect = it.issuer.consent(await alice.start(await it.link("alice")), "alice")
        assert (await alice.post(redirect, {}))[0].status == 400
        assert (await alice.get(redirect))[0].status == 200


async def test_a_refusal_is_told_and_nothing_of_it_is_believed(scene: StartScene) -> None:
    """A person who refuses sees so; texts in the redirect reach no page."""
    async with scene() as it:
        alice = it.browser("alice")
        url = await alice.start(await it.link("alice"))
        head, page = await alice.get(it.issuer.refuse(url) + "&error_description=%3Cscript%3E")
        assert head.status == 400
        assert "not granted" in page
        assert "<script" not in page
        assert (await it.call("alice"))["result"]["isError"]


async def test_an_old_state_is_refused(scene: StartScene) -> None:
    """Who comes back after ten minutes begins anew."""
    async with scene() as it:
        grants = it.front.app.grants
        assert grants is not None
        alice = it.browser("alice")
        flow = grants.flows["raw"]
        flow.clock = lambda: 0.0
        url = await alice.start(await it.link("alice"))
        head, page = await alice.get(it.issuer.consent(url, "alice"))
        assert head.status == 400
        assert "too late" in page


async def test_a_form_of_another_page_is_refused(scene: StartScene) -> None:
    """A page elsewhere cannot push the button in the person's browser: it does not know the word of the form."""
    async with scene() as it:
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
async def test_a_link_that_is_none_says_so(scene: StartScene, path: str) -> None:
    """A wrong or old link leads to a page that tells how to get another."""
    async with scene() as it:
        head, page = await it.browser().get(path)
        assert head.status == 400
        assert "call the tool again" in page


async def test_the_client_has_a_document_of_its_own(scene: StartScene) -> None:
    """Authorization servers that take client id metadata documents find one."""
    async with scene() as it:
        head, text = await it.browser().get("/authorize/raw/client.json")
        assert head.status == 200
        assert f'"client_id":"{BASE}/authorize/raw/client.json"' in text
        assert (await it.browser().get("/authorize/other/client.json"))[0].status == 404
