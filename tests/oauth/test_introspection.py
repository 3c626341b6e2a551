"""Opaque tokens over sockets: what their issuer says of them, how often it is asked, and what a flood of them does."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from adapter.app.access.oauth_callers import Clocks, build_verifier
from adapter.errors import IssuerUnavailable, Unauthorized
from adapter.oauth.introspection import (
    AT_ONCE,
    LARGEST,
    MOST_REFUSALS,
    MOST_REFUSED,
    MOST_WAITING,
    PAUSE,
    REFUSAL_SECONDS,
    REFUSAL_WINDOW,
    Refusals,
)
from adapter.oauth.port import TokenVerifier
from adapter.settings.auth import OAuth
from tests.oauth.authorization_server import INTROSPECTION, Answer, AuthorizationServer
from tests.pipeline.issuer import NOW, Clock, rsa_key, token

GOOD: dict[str, Any] = {"active": True, "sub": "ann", "aud": "adapter", "scope": "mcp", "exp": NOW + 300}


@pytest.fixture
def verifier(server: AuthorizationServer, clock: Clock) -> TokenVerifier:
    endpoint = {"url": server.url(INTROSPECTION), "client_id": "the adapter", "client_secret": "a:b c"}
    oauth = OAuth.model_validate({"issuers": [{"issuer": server.issuer}], "introspection": endpoint})
    server.answers[INTROSPECTION] = GOOD
    return build_verifier(oauth, structlog.get_logger(), Clocks(clock, clock))


async def refusal(verifier: TokenVerifier, sent: str) -> str:
    with pytest.raises(Unauthorized) as refused:
        await verifier.verify(sent)
    return str(refused.value)


async def retry(verifier: TokenVerifier, sent: str) -> float | None:
    with pytest.raises(IssuerUnavailable) as unavailable:
        await verifier.verify(sent)
    return unavailable.value.retry_after


async def test_the_issuer_is_asked_about_a_token_that_only_it_can_read(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """By a form, with the adapter's own credentials; the principal is the one that a JWT of it would have."""
    verified = await verifier.verify("opaque+token/1==")
    assert server.forms == [{"token": "opaque+token/1==", "token_type_hint": "access_token"}]
    pair = base64.b64encode(b"the+adapter:a%3Ab+c").decode()
    assert server.credentials == [f"Basic {pair}"]
    assert (verified.audiences, verified.scopes, verified.expires) == (
        frozenset(("adapter",)),
        frozenset(("mcp",)),
        NOW + 330,
    )
    assert verified.principal == (await verifier.verify(server.token())).principal


async def test_an_answer_is_used_for_a_minute(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock
) -> None:
    """Then a token that was revoked is noticed."""
    verified = await verifier.verify("opaque")
    clock.now += 59
    assert await verifier.verify("opaque") is verified
    assert verifier.known("opaque") is verified
    clock.now += 1
    assert verifier.known("opaque") is None
    server.answers[INTROSPECTION] = {"active": False}
    assert await refusal(verifier, "opaque") == "The access token is not active."
    assert len(server.forms) == 2


async def test_a_token_is_used_no_longer_than_it_holds(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock
) -> None:
    """Where it says so; otherwise it is asked about again."""
    server.answers[INTROSPECTION] = {**GOOD, "exp": NOW + 5}
    await verifier.verify("opaque")
    clock.now += 35
    assert verifier.known("opaque") is None
    assert await refusal(verifier, "opaque") == "The access token has expired."
    server.answers[INTROSPECTION] = {"active": True, "sub": "ann"}
    assert (await verifier.verify("endless")).expires == clock.now + 60


async def test_all_callers_of_a_token_wait_for_one_answer(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """Whoever of them leaves."""
    server.go.clear()
    asking = [asyncio.ensure_future(verifier.verify("opaque")) for _ in range(9)]
    await server.begun.wait()
    asking.pop(0).cancel()
    server.go.set()
    assert len({found.principal for found in await asyncio.gather(*asking)}) == 1
    assert len(server.forms) == 1


async def test_a_jwt_of_the_issuer_is_never_asked_about(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """Its signature decides, also where the endpoint would say yes."""
    forged = token(rsa_key("second"), "RS256", server.claims(), kid="k1")
    assert await refusal(verifier, forged) == "The access token's signature is not valid."
    assert server.forms == []


async def test_any_other_jwt_is_asked_about(server: AuthorizationServer, verifier: TokenVerifier) -> None:
    """As one that names nobody, or somebody else; the answer says whose it is."""
    assert await verifier.verify(server.token(iss=None))
    server.answers[INTROSPECTION] = {**GOOD, "iss": "https://other.example"}
    stranger = server.token(iss="https://other.example")
    assert await refusal(verifier, stranger) == "The access token is of another issuer."


@pytest.mark.parametrize("sent", ["ü", "\udcff", "a b", "a\r\nb", "\0"])
async def test_what_is_no_token_is_not_sent(
    server: AuthorizationServer, verifier: TokenVerifier, sent: str
) -> None:
    """RFC 6750 §2.1."""
    assert await refusal(verifier, sent) == "The access token has characters that no token has."
    assert server.forms == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (401, "it refused the adapter's client_id and client_secret"),
        (403, "it refused the adapter's client_id and client_secret"),
        (302, "its answer has status 302"),
        (404, "its answer has status 404"),
        (429, "its answer has status 429"),
        (503, "its answer has status 503"),
    ],
)
async def test_an_endpoint_that_does_not_say_is_no_reason_to_refuse(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock, answer: Answer, why: str
) -> None:
    """Nobody has to sign in again for it. It is left alone for a moment, and asked again then."""
    server.answers[INTROSPECTION] = answer
    with capture_logs() as logged:
        assert await retry(verifier, "opaque") == PAUSE
    assert [entry["why"] for entry in logged] == [why]
    assert "a:b c" not in str(logged)
    server.answers[INTROSPECTION] = GOOD
    assert await retry(verifier, "another") == PAUSE
    assert len(server.forms) == 1
    clock.now += PAUSE
    assert await verifier.verify("opaque")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (400, "its answer has status 400"),
        (413, "its answer has status 413"),
        (500, "its answer has status 500"),
        (b"<html>", "the document is not JSON"),
        (b"[true]", "the document is not a JSON object"),
        (b'{"active": true, "a": [' + b"1," * 5000 + b"1]}", "the document has more than 4096 values"),
        (b'{"active": true}' + b" " * LARGEST, f"its answer is larger than {LARGEST} bytes"),
    ],
)
async def test_a_token_that_the_endpoint_cannot_cope_with_holds_up_nobody_else(
    server: AuthorizationServer, verifier: TokenVerifier, answer: Answer, why: str
) -> None:
    """Anybody can make one up, such as one that is too long for it: all others are asked about as before."""
    server.answers[INTROSPECTION] = answer
    with capture_logs() as logged:
        assert await retry(verifier, "opaque") == PAUSE
        assert await retry(verifier, "x" * 16_000) == PAUSE
    assert [entry["why"] for entry in logged] == [why]
    assert "a:b c" not in str(logged)
    server.answers[INTROSPECTION] = GOOD
    assert await verifier.verify("another")
    assert await verifier.verify("opaque")


async def test_tokens_that_the_endpoint_cannot_cope_with_do_not_flood_it(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """They count as those do that it refuses."""
    await verifier.verify("good")
    server.answers[INTROSPECTION] = 400
    for start in range(0, MOST_REFUSALS, 100):
        made_up = [verifier.verify(f"made-up-{n}") for n in range(start, start + 100)]
        await asyncio.gather(*made_up, return_exceptions=True)
    asked = len(server.forms)
    assert await retry(verifier, "unknown") == REFUSAL_WINDOW
    assert len(server.forms) == asked == 1 + MOST_REFUSALS


async def test_an_endpoint_that_is_away_is_no_reason_to_refuse(clock: Clock) -> None:
    """And known tokens stay known as long as their answer holds."""
    closed = "http://127.0.0.1:9"
    endpoint = {"url": f"{closed}/introspect", "client_id": "a", "client_secret": "b"}
    oauth = OAuth.model_validate({"issuers": [{"issuer": closed}], "introspection": endpoint})
    verifier = build_verifier(oauth, structlog.get_logger(), Clocks(clock, clock))
    assert await retry(verifier, "opaque") == PAUSE


async def test_a_refused_token_is_not_asked_about_at_once(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock
) -> None:
    """A client that goes on sending it costs its issuer nothing."""
    server.answers[INTROSPECTION] = {"active": False}
    for _ in range(5):
        assert await refusal(verifier, "opaque") == "The access token is not active."
    assert len(server.forms) == 1
    server.answers[INTROSPECTION] = GOOD
    clock.now += REFUSAL_SECONDS
    assert await verifier.verify("opaque")


async def test_the_endpoint_is_asked_a_bounded_number_of_times_at_once(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """Some wait for their turn, and all others are told to come again."""
    server.go.clear()
    asking = [asyncio.ensure_future(verifier.verify(f"t{n}")) for n in range(AT_ONCE + MOST_WAITING)]
    await server.begun.wait()
    assert await retry(verifier, "one-more") == 1.0
    assert len(server.forms) <= AT_ONCE
    server.go.set()
    await asyncio.gather(*asking)
    assert len(server.forms) == AT_ONCE + MOST_WAITING


async def test_those_that_wait_do_not_wait_for_an_endpoint_that_is_away(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """What one has found out counts for all."""
    server.answers[INTROSPECTION] = 503
    asked = await asyncio.gather(*(verifier.verify(f"t{n}") for n in range(100)), return_exceptions=True)
    assert {type(each) for each in asked} == {IssuerUnavailable}
    assert len(server.forms) <= AT_ONCE


async def test_made_up_tokens_do_not_flood_the_issuer(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock
) -> None:
    """After some hundreds nothing unknown is asked about for a moment; whoever was let in before still is."""
    await verifier.verify("good")
    clock.now += 55
    server.answers[INTROSPECTION] = {"active": False}
    for start in range(0, MOST_REFUSALS, 100):
        made_up = [verifier.verify(f"made-up-{n}") for n in range(start, start + 100)]
        assert all(
            isinstance(e, Unauthorized) for e in await asyncio.gather(*made_up, return_exceptions=True)
        )
    asked = len(server.forms)
    assert await retry(verifier, "unknown") == REFUSAL_WINDOW
    assert len(server.forms) == asked
    server.answers[INTROSPECTION] = GOOD
    clock.now += 6
    assert verifier.known("good") is None
    assert await verifier.verify("good")
    clock.now += 4
    assert await verifier.verify("unknown")


def test_a_token_that_was_good_is_asked_about_in_a_flood() -> None:
    """Until it is refused itself."""
    refusals = Refusals()
    refusals.remember_good(b"good")
    for number in range(MOST_REFUSALS):
        refusals.add(b"%d" % number, "why", 100.0)
    assert refusals.pause(b"unknown", 101.0) == REFUSAL_WINDOW - 1
    assert refusals.pause(b"good", 101.0) == 0
    assert refusals.pause(b"unknown", 100.0 + REFUSAL_WINDOW) == 0
    refusals.add(b"good", "why", 101.0)
    assert refusals.pause(b"good", 101.5) > 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=60))
def test_a_refusal_holds_for_its_time(moments: list[tuple[int, int]]) -> None:
    """Whatever else is refused, and also where the clock is set back."""
    refusals, last = Refusals(), dict[int, int]()
    for number, now in moments:
        held = refusals.reason(b"%d" % number, now) is not None
        assert held == (number in last and 0 <= now - last[number] < REFUSAL_SECONDS)
        refusals.add(b"%d" % number, "why", now)
        last[number] = now


def test_what_is_remembered_is_bounded() -> None:
    """However many tokens are made up."""
    refusals = Refusals()
    for number in range(MOST_REFUSED + 10):
        refusals.add(b"%d" % number, "why", 0.0)
        refusals.remember_good(b"good %d" % number)
    assert repr(refusals) == f"<Refusals: {MOST_REFUSED} tokens>"
    assert refusals.reason(b"0", 1.0) is None
    assert refusals.reason(b"100", 1.0) == "why"
