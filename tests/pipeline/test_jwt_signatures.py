"""Signed tokens: what is read of one before and after its signature is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.pipeline.jwt import BadToken, Signatures, TokenHeader, unchecked_claims
from adapter.pipeline.key_set import SigningKey
from tests.pipeline.issuer import claims, ec_key, rsa_key, token

SIGNATURES = Signatures(frozenset(("RS256", "ES256")))
KEY = SigningKey(ec_key().public_key(), frozenset(("ES256",)))
GOOD = token(ec_key(), "ES256", kid="k1")

TOKEN_CHARACTERS = st.sampled_from("abcXYZ019-_.=+/ü\0 ")


def test_header_and_claims_are_read() -> None:
    """The claims also before anybody has checked them, to find whoever can."""
    assert SIGNATURES.header(GOOD) == TokenHeader("k1", "ES256", "JWT")
    assert SIGNATURES.claims(GOOD, "ES256", KEY) == claims()
    assert unchecked_claims(GOOD) == claims()
    assert repr(SIGNATURES) == "<Signatures by ES256, RS256>"


def test_only_the_right_key_checks() -> None:
    """And only by the algorithm that it is for."""
    with pytest.raises(BadToken, match="the token's signature is not valid"):
        SIGNATURES.claims(token(ec_key(), "ES256") + "AA", "ES256", KEY)
    other = SigningKey(rsa_key().public_key(), frozenset(("RS256",)))
    with pytest.raises(BadToken):
        SIGNATURES.claims(GOOD, "RS256", other)


@given(st.integers(0, len(GOOD) - 1), TOKEN_CHARACTERS)
def test_a_changed_token_is_refused(place: int, character: str) -> None:
    """Wherever it is changed: it never says anything else than what was signed."""
    changed = GOOD[:place] + character + GOOD[place + 1 :]
    try:
        header = SIGNATURES.header(changed)
        said = SIGNATURES.claims(changed, header.algorithm, KEY)
    except BadToken:
        return
    assert said == claims()


@given(st.text() | st.text(TOKEN_CHARACTERS) | st.lists(st.text(TOKEN_CHARACTERS)).map(".".join))
def test_any_text_can_be_looked_at(text: str) -> None:
    """A BadToken, or nothing."""
    assert unchecked_claims(text) is None or text.count(".") == 2
    with pytest.raises(BadToken):
        SIGNATURES.claims(text, SIGNATURES.header(text).algorithm, KEY)


@given(st.dictionaries(st.text(), st.none() | st.integers(-(2**53), 2**53) | st.text() | st.lists(st.text())))
def test_claims_are_as_they_were_signed(said: dict[str, Any]) -> None:
    """Whatever they hold."""
    signed = token(ec_key(), "ES256", said)
    assert SIGNATURES.claims(signed, "ES256", KEY) == said == unchecked_claims(signed)
    assert json.dumps(said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a.b",
        "..",
        "e30.e30",
        "e30.e30.A.A",
        "W10.e30.A",
        "e30.W10.A",
        "e30.e30.ü",
        "e30.e3=.A",
        "e3.e30.A",
    ],
)
def test_what_has_not_three_parts_is_no_jwt(text: str) -> None:
    """Two objects in base64url, and a signature."""
    assert unchecked_claims(text) is None
