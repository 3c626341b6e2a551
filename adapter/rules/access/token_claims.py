"""The demands on a token's claims before it lets anybody in (RFC 7519 §4.1, RFC 8693 §4.2). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEEWAY = 60.0
"""Seconds by which the clocks of issuer and adapter may differ, unless a policy says so."""

_SCOPE_CLAIMS = ("scope", "scp")


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The demands on claims; an empty tuple demands nothing.

    One of ``issuers``, one of ``audiences``, all of ``scopes`` and all of ``required``. ``leeway`` is in seconds.
    """

    issuers: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    leeway: float = LEEWAY

    def refusal(self, claims: Mapping[str, Any], now: float) -> str | None:
        """Why these claims let nobody in at ``now`` (Unix seconds), as a sentence for the caller; None: they do."""
        if (untimely := self._untimely(claims, now)) is not None:
            return untimely
        if self.issuers and claims.get("iss") not in self.issuers:
            return "unauthorized: the token is of another issuer"
        if self.audiences and not set(self.audiences) & _texts(claims.get("aud")):
            return "unauthorized: the token is for another audience"
        if missing := [scope for scope in self.scopes if scope not in _scopes(claims)]:
            return f"unauthorized: insufficient scope, the token lacks {' '.join(missing)}"
        for name in self.required:
            if claims.get(name) is None:
                return f"unauthorized: the token lacks the claim {name}"
        return None

    def _untimely(self, claims: Mapping[str, Any], now: float) -> str | None:
        expires = _moment(claims.get("exp"))
        if expires is None:
            return "unauthorized: the token does not say when it expires"
        if now >= expires + self.leeway:
            return "unauthorized: the token has expired"
        for name in ("nbf", "iat"):
            if claims.get(name) is None:
                continue
            begins = _moment(claims[name])
            if begins is None or now < begins - self.leeway:
                return "unauthorized: the token is not valid yet"
        return None


def _moment(value: Any) -> float | None:
    """A NumericDate (RFC 7519 §2), None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = float(value)
    except OverflowError:
        return None
    return moment if math.isfinite(moment) else None


def _texts(value: Any) -> set[str]:
    listed = value if isinstance(value, list) else [value]
    return {each for each in listed if isinstance(each, str)}


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    return {scope for name in _SCOPE_CLAIMS for text in _texts(claims.get(name)) for scope in text.split()}
