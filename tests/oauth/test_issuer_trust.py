"""Trust in issuers: which claims let somebody in, and as whom."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.oauth.issuer import LONGEST_PRINCIPAL, MOST_NAMES, IssuerTrust
from adapter.rules.access.principals import name_of, token_principal
from adapter.settings.auth import OAuthIssuer

LOGIN = "https://login.example"
NOW = 1_700_000_000.0
TRUST = IssuerTrust(OAuthIssuer(issuer=LOGIN, audience="adapter", required_scopes=["mcp"]), 30.0)
GOOD: dict[str, Any] = {"iss": LOGIN, "sub": "ann", "aud": "adapter", "exp": NOW + 60, "scope": "mcp files"}


def test_a_token_says_whose_it_is_and_for_what() -> None:
    """Its end has the leeway in it; audience and scopes are for the resource to judge."""
    token = TRUST.token(GOOD, NOW)
    assert name_of(token.principal) == f"ann@{LOGIN}"
    assert token.audiences == frozenset(("adapter",))
    assert token.scopes == frozenset(("mcp", "files"))
    assert (token.expires, token.audience, token.required_scopes) == (NOW + 90, "adapter", ("mcp",))
    assert token.claims == GOOD
    assert TRUST.token({**GOOD, "aud": ["a", "b"], "scope": None}, NOW).audiences == {"a", "b"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"iss": f"{LOGIN}/"}, "the token is of another issuer"),
        ({"iss": None}, "the token is of another issuer"),
        ({"iss": [LOGIN]}, "the token is of another issuer"),
        ({"exp": None}, "the token does not say when it expires"),
        ({"exp": str(NOW + 60)}, "the token does not say when it expires"),
        ({"exp": NOW - 30}, "the token has expired"),
        ({"nbf": NOW + 31}, "the token is not valid yet"),
        ({"iat": NOW + 31}, "the token is not valid yet"),
        ({"sub": None}, "the token lacks the claim sub"),
        ({"sub": ""}, "the token lacks the claim sub"),
        ({"sub": 7}, "the token lacks the claim sub"),
        ({"sub": ["ann"]}, "the token lacks the claim sub"),
        ({"sub": "a" * (LONGEST_PRINCIPAL + 1)}, "the token's claim sub is too long"),
        ({"cnf": {"jkt": "x"}}, "the token is bound to a key, which is not supported here"),
        ({"token_use": "id"}, "the token is no access token"),
        ({"typ": "Refresh"}, "the token is no access token"),
        ({"aud": [str(n) for n in range(MOST_NAMES + 1)]}, "the token has too many audiences or scopes"),
        ({"scp": [str(n) for n in range(MOST_NAMES + 1)]}, "the token has too many audiences or scopes"),
        ({"groups": [[[1] * 100] * 100]}, "the token has too many claims"),
    ],
)
def test_each_reason_has_its_sentence(said: dict[str, Any], why: str) -> None:
    """None of which holds anything of the token."""
    with pytest.raises(ValueError, match="the token") as refused:
        TRUST.token({**GOOD, **said}, NOW)
    assert str(refused.value) == why


@pytest.mark.parametrize("said", [{"typ": "Bearer"}, {"token_use": "access"}, {"typ": 7}, {"cnf": None}])
def test_marks_of_access_tokens_are_no_reason(said: dict[str, Any]) -> None:
    """As some issuers write them."""
    assert TRUST.token({**GOOD, **said}, NOW)


def test_an_issuer_may_be_asked_for_another_claim() -> None:
    """Then the usual one does not matter."""
    trust = TRUST._replace(
        entry=TRUST.entry.model_copy(update={"principal_claim": "https://login.example/user"})
    )
    claims = {**GOOD, "sub": None, "https://login.example/user": "bob"}
    assert name_of(trust.token(claims, NOW).principal) == f"bob@{LOGIN}"


def test_an_answer_about_a_token_may_leave_things_out() -> None:
    """But not that it is active, nor whose it is (RFC 7662 §2.2)."""
    token = TRUST.introspected({"active": True, "sub": "ann"}, NOW, 60.0)
    assert token.principal == TRUST.token(GOOD, NOW).principal
    assert token.expires == NOW + 60
    assert TRUST.introspected({"active": True, **GOOD}, NOW, 600.0).expires == NOW + 90


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"active": False}, "the token is not active"),
        ({"active": "true"}, "the token is not active"),
        ({"active": 1}, "the token is not active"),
        ({"iss": "https://other.example"}, "the token is of another issuer"),
        ({"iss": None}, "the token is of another issuer"),
        ({"exp": NOW - 30}, "the token has expired"),
        ({"exp": "never"}, "the token does not say when it expires"),
        ({"exp": None, "nbf": NOW + 31}, "the token is not valid yet"),
        ({"sub": None}, "the token lacks the claim sub"),
        ({"token_use": "refresh_token"}, "the token is no access token"),
    ],
)
def test_each_reason_of_an_answer_has_its_sentence(said: dict[str, Any], why: str) -> None:
    """The same as of claims."""
    with pytest.raises(ValueError, match="the token") as refused:
        TRUST.introspected({"active": True, **GOOD, **said}, NOW, 60.0)
    assert str(refused.value) == why


@given(st.text(), st.text(), st.text(), st.text())
def test_principals_are_one_only_where_issuer_and_person_are(a: str, b: str, c: str, d: str) -> None:
    """However both are written; the issuer is a URL, which has no NUL."""
    a, c = a.replace("\0", ""), c.replace("\0", "")
    assert (token_principal(a, b) == token_principal(c, d)) == ((a, b) == (c, d))


@given(st.text(max_size=400), st.text(min_size=1, max_size=400))
def test_a_principal_is_one_short_line(issuer: str, name: str) -> None:
    """It stands in logs and lists."""
    shown = name_of(token_principal(issuer, name))
    assert len(shown) <= 257
    assert shown.isascii() or not set(shown) & set("\n\r\x1b\u202e\u200b")


VALUES = st.none() | st.integers() | st.floats() | st.text() | st.lists(st.text())
NAMES = st.sampled_from([*GOOD, "nbf", "iat", "cnf", "typ", "active"])


@given(st.dictionaries(NAMES, VALUES))
def test_any_claims_can_be_judged(said: dict[str, Any]) -> None:
    """A ValueError, or a token of that issuer."""
    try:
        token = TRUST.token({**GOOD, **said}, NOW)
    except ValueError:
        return
    assert token.expires > NOW
