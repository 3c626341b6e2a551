"""Callers who bring credentials for an upstream and none for the adapter: told apart by what they bring."""

from __future__ import annotations

import hashlib

from adapter.rules.access.principals import ANONYMOUS, Caller


def authorization_of(caller: Caller) -> str | None:
    """The value of the Authorization field of a caller's request."""
    value = caller.fields.get("authorization")
    return caller.lower_fields().get("authorization") if value is None else value


def party_of(caller: Caller) -> str:
    """The name of those who may share what an upstream told one of them, beside a session that they are in.

    It is the principal. Where nobody is known, it is the principal and a digest of the credential for the upstream.
    """
    value = authorization_of(caller) if caller.principal == ANONYMOUS else None
    return caller.principal if value is None else f"{ANONYMOUS} {_digest(value)}"


def credential_digest(caller: Caller) -> str | None:
    """A digest of the Authorization field, by which results are told apart; None without one."""
    value = authorization_of(caller)
    return None if value is None else _digest(value)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
