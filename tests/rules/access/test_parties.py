"""Callers whom nobody knows are told apart by the credential that they bring for an upstream."""

from __future__ import annotations

from adapter.rules.access.parties import authorization_of, credential_digest, party_of
from adapter.rules.access.principals import ANONYMOUS, NOBODY, Caller


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
