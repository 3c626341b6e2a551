"""Scopes: public ids that say nothing of what they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.principals import principal_scope, session_scope

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
