"""The sign-in of a browser, by an authorization server that says what each test has it say."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog

from adapter.app.access.oauth_callers import Clocks, build_verifier
from adapter.oauth.discovery import issuer_metadata
from adapter.oauth.sign_in import SESSION_SECONDS, USED, VALID, SignIn, SignInConfig, SignInFailed
from adapter.rules.access.grants import challenge_of
from adapter.rules.access.resources import CONSOLE, resources_below
from adapter.settings.auth import OAuth
from adapter.settings.pipeline import ConsoleOAuth
from adapter.state.sqlite import MemoryStore
from adapter.upstream.outgoing import IssuerHttp, token_http
from tests.oauth.authorization_server import OAUTH, AuthorizationServer
from tests.pipeline.issuer import NOW

BASE = "https://tools.example"
REDIRECT = f"{BASE}/explorer/-/signed-in"
CLAIMS: dict[str, Any] = {
    "aud": f"{BASE}/explorer",
    "scope": "mcp",
    "groups": ["staff"],
    "email": "ann@a.example",
}


class Desk:
    """The sign-in to the console at ``server``; ``now`` is the time in Unix seconds."""

    def __init__(self, server: AuthorizationServer, store: MemoryStore, **terms: Any) -> None:
        self.now = NOW
        self.server = server
        server.answers[OAUTH] = {
            "issuer": server.issuer,
            "jwks_uri": server.url("/keys"),
            "authorization_endpoint": server.url("/auth"),
            "token_endpoint": server.url("/token"),
            "authorization_response_iss_parameter_supported": True,
        }
        server.answers["/token"] = {"access_token": server.token(**CLAIMS), "token_type": "Bearer"}
        oauth = OAuth.model_validate({"issuers": [{"issuer": server.issuer, "required_scopes": ["mcp"]}]})
        verifier = build_verifier(oauth, structlog.get_logger(), Clocks(lambda: self.now))
        console = {"client_id": "console", **terms}
        self.terms = SignInConfig(
            ConsoleOAuth.model_validate(console),
            oauth.issuers[0],
            REDIRECT,
            resources_below(BASE, {CONSOLE: "/explorer"}, ("mcp",))[CONSOLE],
            frozenset({"groups", "missing"}),
        )
        metadata = issuer_metadata(IssuerHttp(), server.issuer)
        self.flow = SignIn(self.terms, metadata, token_http(), verifier, store, lambda: self.now)

    async def begun(self) -> tuple[dict[str, str], bytes]:
        """The parameters of the authorization request, and the data that the browser keeps."""
        url, kept = await self.flow.begin("/explorer/#/x")
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}, kept

    async def refusal(self, kept: bytes | None, **parameters: str) -> str:
        """The sentence with which an answer is refused."""
        with pytest.raises(SignInFailed) as refused:
            await self.flow.finish(kept, parameters)
        return str(refused.value)


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


async def test_a_person_signs_in(server: AuthorizationServer, store: MemoryStore) -> None:
    """By a code with PKCE for the console; of the claims only those are kept that are asked for."""
    desk = Desk(server, store)
    asked, kept = await desk.begun()
    assert (asked["response_type"], asked["client_id"], asked["redirect_uri"]) == (
        "code",
        "console",
        REDIRECT,
    )
    assert (asked["scope"], asked["resource"]) == ("mcp", f"{BASE}/explorer")
    assert asked["code_challenge_method"] == "S256"

    answer = {"code": "code", "state": asked["state"], "iss": server.issuer}
    session, place = await desk.flow.finish(kept, answer)
    assert place == "/explorer/#/x"
    assert (session.scopes, session.expires) == (frozenset({"mcp"}), NOW + SESSION_SECONDS)
    assert session.claims == {"groups": ["staff"]}
    (form,) = server.forms
    assert (form["code"], form["resource"], form["client_id"]) == ("code", f"{BASE}/explorer", "console")
    assert challenge_of(form["code_verifier"]) == asked["code_challenge"]

    assert "before" in await desk.refusal(kept, **answer)
    assert len(server.forms) == 1


async def test_answers_that_are_not_for_this_browser(server: AuthorizationServer, store: MemoryStore) -> None:
    """Another state, another issuer or none, a late one and one without a code: no code is sent anywhere."""
    desk = Desk(server, store)
    for change in ({"state": "x"}, {"iss": "https://evil.example"}, {"code": ""}, {"error": "access_denied"}):
        asked, kept = await desk.begun()
        good = {"code": "code", "state": asked["state"], "iss": server.issuer}
        assert "evil" not in await desk.refusal(kept, **{**good, **change})
    asked, kept = await desk.begun()
    assert "another authorization server" in await desk.refusal(kept, code="c", state=asked["state"])
    assert "browser" in await desk.refusal(None, code="c", state=asked["state"], iss=server.issuer)
    asked, kept = await desk.begun()
    desk.now += VALID
    assert "too long" in await desk.refusal(kept, code="c", state=asked["state"], iss=server.issuer)
    assert server.forms == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"aud": f"{BASE}/mcp"}, "not for the console"),
        ({"scope": "other"}, "lacks a scope"),
        ({"exp": NOW - 60}, "is not accepted"),
        ({"iss": "https://evil.example"}, "is not accepted"),
    ],
)
async def test_tokens_that_sign_nobody_in(
    server: AuthorizationServer, store: MemoryStore, said: dict[str, Any], why: str
) -> None:
    """A token is judged as one that a caller of the console sends."""
    desk = Desk(server, store)
    server.answers["/token"] = {"access_token": server.token(**{**CLAIMS, **said}), "token_type": "Bearer"}
    asked, kept = await desk.begun()
    assert why in await desk.refusal(kept, code="c", state=asked["state"], iss=server.issuer)


@pytest.mark.parametrize("answer", [400, 500, b"x", {}, {"access_token": "a b", "token_type": "Bearer"}])
async def test_token_endpoints_that_give_nothing(
    server: AuthorizationServer, store: MemoryStore, answer: Any
) -> None:
    """The person reads one sentence, without anything of the answer."""
    desk = Desk(server, store)
    server.answers["/token"] = answer
    asked, kept = await desk.begun()
    sentence = await desk.refusal(kept, code="c", state=asked["state"], iss=server.issuer)
    assert sentence == "The authorization server gave no token for this sign-in."


async def test_used_sign_ins_are_forgotten(server: AuthorizationServer, store: MemoryStore) -> None:
    """When their answer would be too late anyway."""
    desk = Desk(server, store)
    asked, kept = await desk.begun()
    await desk.flow.finish(kept, {"code": "c", "state": asked["state"], "iss": server.issuer})
    await desk.flow.tidy()
    assert await store.count(USED) == 1
    desk.now += VALID
    await desk.flow.tidy()
    assert await store.count(USED) == 0


@pytest.mark.parametrize("endpoint", [None, "http://10.0.0.1/auth", "javascript:alert(1)"])
async def test_endpoints_that_no_browser_is_sent_to(
    server: AuthorizationServer, store: MemoryStore, endpoint: str | None
) -> None:
    """Nobody is sent to an endpoint that the metadata does not name, or may not."""
    desk = Desk(server, store)
    members = server.answers[OAUTH]
    assert isinstance(members, dict)
    server.answers[OAUTH] = {**members, "authorization_endpoint": endpoint}
    with pytest.raises(SignInFailed, match="cannot be used"):
        await desk.flow.begin("/explorer/")
