"""Claims of access tokens: times, audiences, scopes, and bounds for those that strangers wrote. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.wire.envelope import parse
from adapter.wire.nesting import has_more_values

_SCOPE_CLAIMS = ("scope", "scp")

DEEPEST = 16
"""Levels of objects and arrays in claims, whose readers walk through them."""

MOST_VALUES = 4096
"""Values in claims; the groups of a person may be some hundreds."""


def untimely(claims: Mapping[str, Any], now: float, leeway: float) -> str | None:
    """Why these claims do not hold at ``now`` (Unix seconds), as a sentence about "the token"; None: they do.

    A token that does not say when it expires never holds.
    """
    expires = moment(claims.get("exp"))
    if expires is None:
        return "the token does not say when it expires"
    if now >= expires + leeway:
        return "the token has expired"
    return premature(claims, now, leeway)


def premature(claims: Mapping[str, Any], now: float, leeway: float) -> str | None:
    """As ``untimely``, without regard to the end."""
    for name in ("nbf", "iat"):
        if claims.get(name) is None:
            continue
        begins = moment(claims[name])
        if begins is None or now < begins - leeway:
            return "the token is not valid yet"
    return None


def moment(value: Any) -> float | None:
    """A NumericDate (RFC 7519 §2), None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def texts(value: Any) -> set[str]:
    """The texts of a claim that may be one text or a list."""
    listed = value if isinstance(value, list) else [value]
    return {each for each in listed if isinstance(each, str)}


def scopes_of(claims: Mapping[str, Any]) -> set[str]:
    """The scopes in ``scope`` and ``scp``, each a text with blanks or a list (RFC 8693 §4.2, and as issuers do).

    Nothing but a blank separates them (RFC 6749 §3.3): a name with another white space is no two scopes.
    """
    listed = (text for name in _SCOPE_CLAIMS for text in texts(claims.get(name)))
    return {scope for text in listed for scope in text.split(" ") if scope}


def is_bounded(value: Any) -> bool:
    """Tell whether a JSON value has at most MOST_VALUES values and DEEPEST levels."""
    level, found = _counted(value)
    return not level and found <= MOST_VALUES


def values_in(value: Any) -> int:
    """The number of values in a JSON value that ``is_bounded``, itself included; of any other, as far as is counted."""
    return _counted(value)[1]


def _counted(value: Any) -> tuple[list[Any], int]:
    """The level at which the counting of values has ended, which is empty where all are counted, and their number."""
    level, found = [value], 0
    for _ in range(DEEPEST + 1):
        found += len(level)
        if not level or found > MOST_VALUES:
            break
        level = [member for each in level for member in _members(each)]
    return level, found


def read_object(document: bytes) -> dict[str, Any]:
    """The JSON object that a stranger wrote, within the bounds of ``is_bounded``. Raises ValueError."""
    # An upper bound of the values that is cheap, before any of them is made.
    if has_more_values(document, MOST_VALUES):
        raise ValueError(f"the document has more than {MOST_VALUES} values")
    try:
        found = parse(document)
    except BadJson:
        raise ValueError("the document is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("the document is not a JSON object")
    if not is_bounded(found):
        raise ValueError("the document is nested too deep")
    return found


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


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
