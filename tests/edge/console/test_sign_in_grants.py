"""People who sign in with their browser, at the pages of grants."""

from __future__ import annotations

import hashlib
from urllib.parse import urlencode

import pytest

from adapter.edge.console.sign_in import SignInRoutes
from adapter.edge.grant_routes import GrantRoutes
from adapter.edge.http.access import Guard
from adapter.edge.http.bodies import Body
from adapter.edge.http.request import Fields, Request
from adapter.rules.access.principals import Principals, token_principal
from adapter.settings.auth import Auth
from adapter.settings.core import Core
from tests.edge.granting import confirmation
from tests.oauth.grants.conftest import Replica, StartCluster, cluster

__all__ = ["cluster"]

ALICE = token_principal("https://login.example", "alice")
GOOD = hashlib.sha256(b"good").digest()
STATIC = f"deploy:{GOOD.hex()[:16]}"
GUARD = Guard(Core(auth=Auth(header_name="X-Token")), Principals([("deploy", GOOD)]))
"""It takes one token, ``good``."""


class SignedIn(SignInRoutes):
    """A browser of ``who``."""

    def __init__(self, who: str | None) -> None:
        self.who = who

    async def principal(self, request: Request) -> str | None:
        return self.who

    def sign_in(self, back: str) -> str:
        return f"/sign-in?to={back}"


class Sent:
    """A reply that keeps what is sent."""

    status: int | None = None
    body = b""

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        self.status, self.fields, self.body = status, dict(fields), body


async def page(
    replica: Replica, browser: SignedIn, principal: str, form: dict[str, str] | None = None
) -> Sent:
    """The answer to a look at the link of a principal, or to its form."""
    data = (await replica.links.required(replica.terms, principal)).data
    assert data is not None
    path = f"/authorize/notes/{data['elicitationId']}"
    sent, body = Sent(), Body(lambda: None)
    fields = [("Cookie", f"grant-{data['elicitationId']}=secret")]
    if form is not None:
        body.add(urlencode(form).encode())
    body.end()
    method = "GET" if form is None else "POST"
    request = Request(method, path, path, Fields(fields), body, sent)  # type: ignore[arg-type]  # a part
    branch = GrantRoutes({"notes": replica.flow}, browser, GUARD).branch()
    names = branch.names(request)
    assert names is not None
    await branch.serve(request, names)
    return sent


async def test_who_has_not_signed_in_does_so_first(cluster: StartCluster) -> None:
    """And comes back to the link."""
    async with cluster() as it:
        sent = await page(it.replica(), SignedIn(None), ALICE)
        assert sent.status == 303
        assert sent.fields["Location"].startswith("/sign-in?to=/authorize/notes/")


async def test_the_person_of_the_link_types_nothing(cluster: StartCluster) -> None:
    """Their sign-in says who they are; the button leads on."""
    async with cluster() as it:
        one = it.replica()
        shown = await page(one, SignedIn(ALICE), ALICE)
        assert b'type="password"' not in shown.body
        word = confirmation(shown.body.decode())
        assert (await page(one, SignedIn(ALICE), ALICE, {"confirm": word})).status == 200


@pytest.mark.parametrize("who", [token_principal("https://login.example", "bob"), STATIC])
async def test_anybody_else_goes_no_further(cluster: StartCluster, who: str) -> None:
    """Neither sees the page nor gets on by its form; nor does who has signed out meanwhile, whatever they type."""
    async with cluster() as it:
        one = it.replica()
        assert (await page(one, SignedIn(who), ALICE)).status == 400
        word = confirmation((await page(one, SignedIn(ALICE), ALICE)).body.decode())
        for browser in (SignedIn(who), SignedIn(None)):
            sent = await page(one, browser, ALICE, {"confirm": word, "token": "good"})
            assert (sent.status, b"not the one for whom" in sent.body) == (400, True)


async def test_a_static_token_has_nobody_who_signs_in(cluster: StartCluster) -> None:
    """Its owner types it, whoever has signed in with the browser."""
    async with cluster() as it:
        one = it.replica()
        shown = await page(one, SignedIn(ALICE), STATIC)
        assert b'type="password"' in shown.body
        word = confirmation(shown.body.decode())
        assert (await page(one, SignedIn(ALICE), STATIC, {"confirm": word, "token": "bad"})).status == 400
        assert (await page(one, SignedIn(ALICE), STATIC, {"confirm": word, "token": "good"})).status == 200
