"""Access tokens of several issuers over sockets: who checks which, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import structlog

from adapter.app.access.oauth_callers import Clocks, build_verifier
from adapter.errors import Unauthorized
from adapter.oauth.issuer import (
    LONGEST_TOKEN,
    MOST_BYTES,
    MOST_TOKENS,
    VALUE_BYTES,
    Verification,
    VerifiedTokens,
)
from adapter.oauth.port import TokenVerifier
from adapter.pipeline.key_set import SigningKey
from adapter.rules.access.token_claims import VerifiedToken
from adapter.settings.auth import OAuth
from tests.oauth.authorization_server import KEYS, AuthorizationServer, authorization_server
from tests.pipeline.issuer import NOW, Clock, jwk, rsa_key

Refusal = Callable[[str], Awaitable[str]]


def verifier_of(clock: Clock, *issuers: Mapping[str, object]) -> TokenVerifier:
    clocks = Clocks(clock, clock)
    return build_verifier(OAuth.model_validate({"issuers": issuers}), structlog.get_logger(), clocks)


@pytest.fixture
async def other() -> AsyncIterator[AuthorizationServer]:
    async with authorization_server() as running:
        running.keys(jwk(rsa_key("second"), "k1"))
        yield running


@pytest.fixture
def verifier(server: AuthorizationServer, other: AuthorizationServer, clock: Clock) -> TokenVerifier:
    first = {"issuer": server.issuer, "audience": "adapter", "required_scopes": ["mcp"]}
    return verifier_of(clock, first, {"issuer": other.issuer, "principal_claim": "email"})


@pytest.fixture
def refusal(verifier: TokenVerifier) -> Refusal:
    async def of(sent: str) -> str:
        with pytest.raises(Unauthorized) as refused:
            await verifier.verify(sent)
        assert verifier.known(sent) is None
        return str(refused.value)

    return of


async def test_a_token_is_known_once_it_was_verified(
    server: AuthorizationServer, verifier: TokenVerifier, clock: Clock
) -> None:
    """The same object, with what the settings demand of its issuer, until it expires."""
    sent = server.token(exp=int(NOW) + 60)
    assert verifier.known(sent) is None
    verified = await verifier.verify(sent)
    assert verifier.known(sent) is verified
    assert await verifier.verify(sent) is verified
    assert (verified.audience, verified.required_scopes) == ("adapter", ("mcp",))
    clock.now = NOW + 60 + 30 - 1
    assert verifier.known(sent) is verified
    clock.now = NOW + 60 + 30
    assert verifier.known(sent) is None
    with pytest.raises(Unauthorized, match="has expired"):
        await verifier.verify(sent)


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ("", "The access token is not a valid JWT."),
        ("opaque", "The access token is not a valid JWT."),
        ("a.b", "The access token is not a valid JWT."),
        ("a.b.c", "The access token is not a valid JWT."),
        ("a.b.c.d.e", "The access token is not a valid JWT."),
        ("ü.ü.ü", "The access token is not a valid JWT."),
        ("\udcff", "The access token is not a valid JWT."),
        ("." * 100, "The access token is not a valid JWT."),
        ("e30.e30.", "The access token is of another issuer."),
        ("a" * (LONGEST_TOKEN + 1), f"The access token has more than {LONGEST_TOKEN} characters."),
    ],
)
async def test_what_is_no_token_of_theirs_is_refused(
    server: AuthorizationServer, refusal: Refusal, sent: str, sentence: str
) -> None:
    """Without asking anybody."""
    assert await refusal(sent) == sentence
    assert server.asked == []


async def test_a_token_as_long_as_it_may_be_is_verified(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """A person may be in many groups."""
    sent = server.token(groups=["g" * 30] * 300)
    assert 12_000 < len(sent) < LONGEST_TOKEN
    assert (await verifier.verify(sent)).claims["groups"]


async def test_a_key_that_is_withdrawn_takes_known_tokens_with_it(
    server: AuthorizationServer, clock: Clock
) -> None:
    """As soon as the adapter has the new set."""
    verifier = verifier_of(clock, {"issuer": server.issuer, "jwks_url": server.url(KEYS)})
    sent = server.token()
    await verifier.verify(sent)
    clock.now += 60
    server.keys(jwk(rsa_key("second"), "k2"))
    assert verifier.known(sent) is not None
    await verifier.verify(server.token(rsa_key("second"), "k2"))
    assert verifier.known(sent) is None


async def test_neither_token_nor_claims_stand_in_a_repr(
    server: AuthorizationServer, verifier: TokenVerifier
) -> None:
    """A repr ends in logs."""
    await verifier.verify(server.token())
    assert repr(verifier) == "<VerifiedTokens of 2 issuers: 1 tokens>"


# --- tokens that are known: until when, how many, and that none of them is kept itself -------------------------


TOKEN = VerifiedToken("ann@x:1", frozenset(), frozenset(), {}, NOW + 100)


def held(until: float = NOW + 60, size: int = 1, key: SigningKey | None = None) -> Verification:
    return Verification(TOKEN, until, size, key)


def test_a_token_is_known_until_it_has_to_be_looked_at_again(clock: Clock) -> None:
    """It is the same object each time."""
    cache = VerifiedTokens(clock)
    cache.keep("a", held())
    assert cache.known("a") is TOKEN
    assert cache.known("A") is None
    clock.now = NOW + 60
    assert cache.known("a") is None
    assert len(cache) == 0
    cache.keep("late", held())
    assert len(cache) == 0


def test_a_clock_that_is_set_back_keeps_no_token_longer(clock: Clock) -> None:
    """By an hour, say: a token that was revoked meanwhile would be good for as long."""
    cache = VerifiedTokens(clock)
    cache.keep("a", held())
    clock.now = NOW - 3600
    assert cache.known("a") is None
    clock.now = NOW
    assert cache.known("a") is None
    cache.keep("a", held())
    assert cache.known("a") is TOKEN


def test_those_that_were_used_last_are_kept(clock: Clock) -> None:
    """So a flood of tokens takes away those of nobody who is at work."""
    cache = VerifiedTokens(clock)
    for number in range(MOST_TOKENS):
        cache.keep(str(number), held())
    assert cache.known("0") is TOKEN
    for number in range(MOST_TOKENS, MOST_TOKENS + 9):
        cache.keep(str(number), held())
    assert cache.known("0") is TOKEN
    assert cache.known("1") is None
    assert len(cache) == MOST_TOKENS


def test_large_tokens_are_fewer(clock: Clock) -> None:
    """What they say is bounded together; one that is verified again counts once."""
    cache = VerifiedTokens(clock)
    for number in range(20):
        cache.keep(str(number), held(size=MOST_BYTES // 10 - VALUE_BYTES))
    assert len(cache) == 10
    for _ in range(20):
        cache.keep("19", held(size=MOST_BYTES // 10 - VALUE_BYTES))
    assert len(cache) == 10


def test_tokens_that_say_very_much_are_fewer(clock: Clock) -> None:
    """Short texts can hold many values, and each of those takes far more memory than its text."""
    cache = VerifiedTokens(clock)
    usual = {"iss": "x", "groups": [str(number) for number in range(40)]}
    for number in range(MOST_TOKENS):
        cache.keep(str(number), held()._replace(token=TOKEN._replace(claims=usual)))
    assert len(cache) == MOST_TOKENS
    fewer = MOST_BYTES // (4002 * VALUE_BYTES + 1)
    for number in range(2 * fewer):
        cache.keep(f"large {number}", held()._replace(token=TOKEN._replace(claims={"x": [[]] * 4000})))
    assert len(cache) == fewer
    for number in range(MOST_TOKENS):
        cache.keep(str(number), held()._replace(token=TOKEN._replace(claims=usual)))
    assert len(cache) == MOST_TOKENS


def test_tokens_fall_with_their_key(clock: Clock) -> None:
    """Those that were introspected have none."""
    cache = VerifiedTokens(clock)
    one, other = (SigningKey(name, frozenset()) for name in "ab")
    cache.keep("a", held(key=one))
    cache.keep("b", held(key=other))
    cache.keep("c", held())
    one.withdrawn = True
    assert [cache.known(token) is not None for token in "abc"] == [False, True, True]


def test_no_token_is_kept(clock: Clock) -> None:
    """Only digests, so that a dump of memory lets nobody in."""
    cache = VerifiedTokens(clock)
    cache.keep("very secret", held())
    assert "very secret" not in repr(cache) + repr(vars(cache))
    assert repr(cache) == "<VerifiedTokens of 0 issuers: 1 tokens>"


def test_any_text_can_be_asked_for(clock: Clock) -> None:
    """Also one that is no text at all."""
    assert VerifiedTokens(clock).known("\udcff") is None
