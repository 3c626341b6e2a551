"""Tokens and the principals they stand for."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.principals import (
    ANONYMOUS,
    NOBODY,
    Caller,
    Principals,
    authorization_of,
    bearer,
    credential_digest,
    is_of_token,
    party_of,
    principal_scope,
    principals_named,
    session_scope,
    token_principal,
    told_name,
)

_ALICE, _BOB = sha256(b"alices token").digest(), sha256(b"bobs token").digest()


def test_a_token_stands_for_its_principal() -> None:
    """The name and the digest's first 16 hex digits, the first time and from then on."""
    principals = Principals([("alice", _ALICE), ("bob", _BOB)])
    assert principals.accept("bobs token") == f"bob:{_BOB.hex()[:16]}"
    assert principals.accept("bobs token") == f"bob:{_BOB.hex()[:16]}"
    assert principals.accept("alices token") == f"alice:{_ALICE.hex()[:16]}"


def test_a_replaced_token_is_another_principal() -> None:
    """The same name with a new token owns nothing of the old one's."""
    old, new = Principals([("ci", _ALICE)]), Principals([("ci", _BOB)])
    assert old.accept("alices token") != new.accept("bobs token")


@pytest.mark.parametrize(
    "token", ["", "alices token ", "Alices token", _ALICE.hex(), "\udcff", "x" * 100_000]
)
def test_another_token_stands_for_nobody(token: str) -> None:
    """Near misses, the digest itself and text that is no UTF-8 are all simply wrong."""
    assert Principals([("alice", _ALICE)]).accept(token) is None


def test_without_tokens_nobody_is_accepted() -> None:
    """An empty list locks the door; nobody is anonymous by a token."""
    assert Principals([]).accept("") is None
    assert Principals([]).accept(ANONYMOUS) is None


def test_a_digest_of_the_wrong_length_is_refused() -> None:
    """A token in place of its digest is noticed at start."""
    with pytest.raises(ValueError, match="SHA-256"):
        Principals([("alice", b"alices token")])


def test_a_repr_shows_no_token() -> None:
    """Printing the object gives neither a digest nor a name away."""
    assert repr(Principals([("alice", _ALICE)])) == "<Principals: 1 tokens>"


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER   abc  ", "abc"),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer a b", None),
        ("Basic YTpi", None),
        ("Bearerabc", None),
        ("abc", None),
        ("", None),
        (None, None),
    ],
)
def test_bearer_finds_the_token(value: str | None, token: str | None) -> None:
    """The scheme in any case, one token, nothing else."""
    assert bearer(value) == token


@given(st.text())
def test_no_authorization_raises(value: str) -> None:
    """Hostile text has a token or has none."""
    token = bearer(value)
    assert token is None or token in value


@given(st.text(max_size=200), st.sampled_from(["https://login.example.org", "http://localhost:9/@a"]))
def test_a_name_in_the_settings_means_exactly_one_value(value: str, issuer: str) -> None:
    """However it is shown, and wherever an ``@`` stands in it."""
    principal = token_principal(issuer, value)
    assert is_of_token(principal)
    assert principal in principals_named(f"{value}@{issuer}")
    assert principal in principals_named(principal)
    assert principal not in principals_named(f"{value}x@{issuer}")
    assert principal in principals_named(told_name(principal))


def test_a_static_principal_is_told_by_its_name() -> None:
    """It is no access token's, whatever its name is."""
    assert not is_of_token("ann@example.org:0123456789abcdef")
    assert told_name("ann@example.org:0123456789abcdef") == "ann@example.org"
    assert told_name(ANONYMOUS) == ANONYMOUS


# --- callers whom nobody knows are told apart by the credential that they bring for an upstream ----------------


def bringing(value: str, principal: str = ANONYMOUS, name: str = "authorization") -> Caller:
    return Caller(principal, fields={"host": "here", name: value})


def test_field_is_found_in_any_spelling() -> None:
    """Field names have no case."""
    assert authorization_of(bringing("a", name="AuthoriZation")) == "a" == authorization_of(bringing("a"))
    assert authorization_of(NOBODY) is None


def test_strangers_are_one_party_each() -> None:
    """Two credentials are two parties, and no credential is a third; none of the names holds the credential."""
    names = {party_of(caller) for caller in (bringing("Bearer ann"), bringing("Bearer bob"), NOBODY)}
    assert len(names) == 3 and ANONYMOUS in names and not any("ann" in name for name in names)
    assert party_of(bringing("Bearer ann")) == party_of(bringing("Bearer ann", name="Authorization"))


def test_principals_are_parties_by_themselves() -> None:
    """Whoever the adapter knows keeps files and pins when a token is renewed."""
    assert party_of(bringing("Bearer ann", "ann:1")) == party_of(bringing("Bearer new", "ann:1")) == "ann:1"


def test_results_are_told_apart_by_credential() -> None:
    """Also those of one principal, which may be a team."""
    ann, bob = bringing("Bearer ann", "team:1"), bringing("Bearer bob", "team:1")
    assert credential_digest(ann) != credential_digest(bob) != credential_digest(NOBODY) is None


# --- scopes: public ids that say nothing of what they stand for ------------------------------------------------


# Surrogates included: a principal's name may hold them.
_any_text = st.text(st.characters(codec=None))


@given(st.binary(), _any_text)
def test_an_id_is_hex_of_fixed_length(secret: bytes, owner: str) -> None:
    """It fits a handle and a directory's name, whatever the owner is called."""
    for scope in (session_scope(secret, owner), principal_scope(secret, owner)):
        assert len(scope.id) == 32
        assert set(scope.id) <= set("0123456789abcdef")


def test_an_id_depends_on_secret_and_owner() -> None:
    """Who knows the owner but not the secret cannot name the scope, and no two owners share one."""
    scopes = {
        make(secret, owner).id
        for make in (session_scope, principal_scope)
        for secret in (b"one", b"two")
        for owner in ("a", "b", "session:a")
    }
    assert len(scopes) == 12


@given(_any_text)
def test_only_a_sessions_scope_has_a_session(owner: str) -> None:
    """A principal cannot pass for a session by its name."""
    assert session_scope(b"secret", owner).session_key == owner
    assert principal_scope(b"secret", owner).session_key is None
    assert principal_scope(b"secret", f"session:{owner}").session_key is None
