"""Tokens that are known: until when, how many, and that none of them is kept itself."""

from __future__ import annotations

from adapter.oauth.verified_tokens import MOST_BYTES, MOST_TOKENS, MOST_VALUES, Verification, VerifiedTokens
from adapter.pipeline.key_set import SigningKey
from adapter.rules.access.verified_tokens import VerifiedToken
from tests.pipeline.issuer import NOW, Clock

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
        cache.keep(str(number), held(size=MOST_BYTES // 10))
    assert len(cache) == 10
    for _ in range(20):
        cache.keep("19", held(size=MOST_BYTES // 10))
    assert len(cache) == 10


def test_tokens_that_say_very_much_are_fewer(clock: Clock) -> None:
    """Short texts can hold many values, and each of those takes far more memory than its text."""
    cache = VerifiedTokens(clock)
    usual = {"iss": "x", "groups": [str(number) for number in range(40)]}
    for number in range(MOST_TOKENS):
        cache.keep(str(number), held()._replace(token=TOKEN._replace(claims=usual)))
    assert len(cache) == MOST_TOKENS
    for number in range(MOST_TOKENS):
        cache.keep(str(number), held()._replace(token=TOKEN._replace(claims={"x": [[]] * 4000})))
    assert len(cache) == MOST_VALUES // 4002
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
    cache.withdraw([one])
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
