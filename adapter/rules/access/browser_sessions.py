"""People who signed in with their browser: their sessions and roles, and the requests for which their cookie counts.

Pure. Source of the rules: OAuth 2.0 for Browser-Based Applications §6.1 (a backend keeps the tokens, the browser a
cookie), RFC 6265 (cookies), Fetch Metadata Request Headers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import orjson

from adapter.rules.access.access_rules import claim_of

LARGEST_COOKIE = 3800
"""Characters of a cookie's value; browsers drop a cookie of more than 4096 with its name and attributes."""

TAB_FIELD = "X-Adapter-Session"
"""The field by which the console's page tells its tabs apart."""

LONGEST_PLACE = 512
"""Characters of the place to which a browser returns when it has signed in."""

MOST_NAMED = 8
"""Scopes and values of claims that somebody without rights is told."""

_NOT_IN_A_PLACE = frozenset("\\\"'<>`{}|^ ")


class BrowserSession(NamedTuple):
    """The person at a browser: ``principal``, ``scopes`` and ``claims`` are those of the access token of the sign-in.

    Of the claims only those are kept that the settings ask for. ``expires`` is in Unix seconds.
    """

    principal: str
    scopes: frozenset[str]
    claims: Mapping[str, Any]
    expires: float


def encode_session(session: BrowserSession) -> bytes:
    """The session as bytes."""
    return orjson.dumps([session.principal, sorted(session.scopes), dict(session.claims), session.expires])


def decode_session(data: bytes, now: float) -> BrowserSession | None:
    """The session in bytes that this adapter made, None for one that has expired."""
    principal, scopes, claims, expires = orjson.loads(data)
    return BrowserSession(principal, frozenset(scopes), claims, expires) if now < expires else None


# --- roles ------------------------------------------------------------------------------------------------------

Role = Literal["operator", "viewer"]

SCOPE = "scope"
"""The claim that holds scopes (RFC 9068), in one text or a list."""


@dataclass(frozen=True, slots=True)
class RoleRules:
    """Claims that make an operator or a viewer; any one of them is enough.

    Each has values, of which the claim has to be or to hold one; that of ``scope`` is the scopes. Without terms for
    viewers everybody who has signed in is one.
    """

    operators: Mapping[str, Collection[str]] = field(default_factory=dict)
    viewers: Mapping[str, Collection[str]] = field(default_factory=dict)

    def role_of(self, scopes: frozenset[str], claims: Mapping[str, Any]) -> Role | None:
        """The role of a person with these scopes and claims, None for nobody of these."""
        if _fits(self.operators, scopes, claims):
            return "operator"
        return "viewer" if not self.viewers or _fits(self.viewers, scopes, claims) else None

    @property
    def needed(self) -> str:
        """What makes a viewer or an operator, in words; a part of it where there is much."""
        rights = (
            f"the scope {value}" if name == SCOPE else f"{value} in {name}"
            for terms in (self.viewers, self.operators)
            for name, values in terms.items()
            for value in sorted(values)
        )
        named = list(dict.fromkeys(rights))
        more = ["another right"] if len(named) > MOST_NAMED else []
        return " or ".join([*named[:MOST_NAMED], *more])


def _fits(wanted: Mapping[str, Collection[str]], scopes: frozenset[str], claims: Mapping[str, Any]) -> bool:
    for name, values in wanted.items():
        held = scopes if name == SCOPE else _texts(claim_of(claims, name))
        if not held.isdisjoint(values):
            return True
    return False


def _texts(value: Any) -> set[str]:
    held = value if isinstance(value, list | tuple) else (value,)
    return {each for each in held if isinstance(each, str)}


# --- cookies ----------------------------------------------------------------------------------------------------


def cookie_of(field: str | None, name: str) -> str | None:
    """The value of a cookie in a Cookie field; None where it is missing.

    None too where it is there twice: a neighbouring host can add a cookie of the same name, but not remove one.
    """
    if not field:
        return None
    pairs = (pair.strip().partition("=") for pair in field.split(";"))
    values = [value for found, _, value in pairs if found == name]
    return values[0] if len(values) == 1 else None


def set_cookie(name: str, value: str, path: str, *, seconds: int, secure: bool) -> str:
    """The value of Set-Cookie. No script reads the cookie, and no other site's form carries it.

    Lax: the cookie comes along where a link of another site, or an authorization server, opens a page.
    """
    parts = [f"{name}={value}", f"Path={path}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    return "; ".join([*parts, "Secure"] if secure else parts)


def is_own_page(headers: Mapping[str, str], base: str, marker: str) -> bool:
    """Tell whether a request comes from a script of a page of this adapter, at the public URL ``base``.

    Such a script sends the field ``marker``, which pages of other origins cannot send without asking first. A cookie
    counts for nothing in any other request, so that no other page acts with it.
    """
    if headers.get(marker) is None or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    origin = headers.get("Origin")
    return origin is None or origin == origin_of(base)


def origin_of(url: str) -> str:
    """The origin of a URL, as browsers write it."""
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def is_place(place: str, paths: tuple[str, ...]) -> bool:
    """Tell whether a browser may be sent to ``place`` when it has signed in: it is a path below one of ``paths``.

    Nothing else, or a link would make the adapter send people to a site of a stranger's.
    """
    if len(place) > LONGEST_PLACE or not place.isascii() or not place.isprintable():
        return False
    if not _NOT_IN_A_PLACE.isdisjoint(place) or "//" in place or "/." in place:
        return False
    path = place.partition("#")[0].partition("?")[0]
    return any(path == known or path.startswith(f"{known.rstrip('/')}/") for known in paths)
