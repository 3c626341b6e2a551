"""Scopes: who owns files, quotas and pins. A session, or a principal. Pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple


class Scope(NamedTuple):
    """``id`` is public: 32 hex digits that stand in handles and URLs. ``owner`` is not: it names the row of a
    session, or a principal, and goes into the store only.
    """

    id: str
    owner: str

    @property
    def session_key(self) -> str | None:
        """The key of the owning session's row, or None where a principal owns the scope."""
        kind, _, key = self.owner.partition(":")
        return key if kind == "session" else None


def session_scope(secret: bytes, session_key: str) -> Scope:
    return _scope(secret, f"session:{session_key}")


def principal_scope(secret: bytes, principal: str) -> Scope:
    return _scope(secret, f"principal:{principal}")


def _scope(secret: bytes, owner: str) -> Scope:
    digest = hmac.new(secret, owner.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return Scope(digest.hexdigest()[:32], owner)
