"""OAuth access tokens that were checked, and what they say about their bearer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple


def digest_of(token: str) -> bytes:
    """The key of a token in caches, which hold no tokens: 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class VerifiedToken(NamedTuple):
    """An access token of a trusted issuer (RFC 9068, or RFC 7662 for an opaque one), its signature and times checked.

    Its audience is not checked: that depends on the resource which is asked for. ``principal`` names issuer and
    person. ``audiences`` are those of the token; ``audience`` is the one that the settings demand of its issuer
    instead of the resource's URL. ``required_scopes`` are demanded of every token of its issuer. ``expires`` is in Unix
    seconds, with the leeway already added.
    """

    principal: str
    audiences: frozenset[str]
    scopes: frozenset[str]
    claims: Mapping[str, Any]
    expires: float
    audience: str | None = None
    required_scopes: tuple[str, ...] = ()
