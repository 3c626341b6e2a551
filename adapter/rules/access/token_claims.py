"""Claims of access tokens: times, audiences, scopes, and bounds for those that strangers wrote; the policies of auth
plugins, which demand some of them, read once and strictly. Pure.

What is wrong with a policy is a ValueError with a sentence for whoever configures it; it never quotes a value.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.wire.envelope import parse
from adapter.wire.scan import has_more_values

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


# --- policies of auth plugins -----------------------------------------------------------------------------------

LEEWAY = 60.0
"""Seconds by which the clocks of issuer and adapter may differ, unless a policy says so."""


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
        if (why := untimely(claims, now, self.leeway)) is not None:
            return f"unauthorized: {why}"
        if self.issuers and claims.get("iss") not in self.issuers:
            return "unauthorized: the token is of another issuer"
        if self.audiences and not set(self.audiences) & texts(claims.get("aud")):
            return "unauthorized: the token is for another audience"
        if missing := [scope for scope in self.scopes if scope not in scopes_of(claims)]:
            return f"unauthorized: insufficient scope, the token lacks {' '.join(missing)}"
        for name in self.required:
            if claims.get(name) is None:
                return f"unauthorized: the token lacks the claim {name}"
        return None


_PLACEHOLDERS = ("{{", "${")


class AuthPolicy:
    """The members of one plugin's policy, each of a name in ``known``. A member that is null is absent."""

    def __init__(
        self, plugin: str, members: Mapping[str, Any], known: Collection[str], place: str = "policy"
    ) -> None:
        """``place`` is where the members stand. Raises ValueError for an unknown member, and where a placeholder was
        left as it was.
        """
        self._plugin = plugin
        self._place = place
        self._members = {name: value for name, value in members.items() if value is not None}
        if unknown := sorted(set(self._members) - set(known)):
            raise self.refused(
                f"{place} has no key {unknown[0]}; known keys: {', '.join(sorted(known)) or 'none'}"
            )
        refuse_placeholders(plugin, self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def text(self, name: str) -> str | None:
        """A member that is one text, without the white space around it; None where it is absent or blank."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.refused(f"{self._place}.{name} is a text; write it in quotes")
        return value.strip() or None

    def texts(self, name: str) -> tuple[str, ...]:
        """A member that is a text or a list of them; blank ones do not count."""
        value = self._members.get(name, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
            raise self.refused(f"{self._place}.{name} is a text or a list of texts; write each in quotes")
        return tuple(each.strip() for each in listed if each.strip())

    def entries(self, name: str, known: Collection[str]) -> Iterator[tuple[str, AuthPolicy]]:
        """A member that is a list of mappings: each with where it stands, its members each of a name in ``known``."""
        value = self._members.get(name, [])
        if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
            raise self.refused(f"policy.{name} is a list of mappings with {', '.join(known)}")
        for index, entry in enumerate(value):
            place = f"policy.{name}[{index}]"
            members = {str(key): member for key, member in entry.items()}
            yield place, AuthPolicy(self._plugin, members, known, place)

    def seconds(self, name: str, default: float) -> float:
        """A member that is a number of seconds, also when a variable gave it as text."""
        value = self._members.get(name, default)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise self.refused(f"policy.{name} is a number of seconds")
        return number

    def refused(self, why: str) -> ValueError:
        """The error to raise for a policy that cannot be used."""
        return ValueError(f"auth plugin {self._plugin!r}: {why}")


def refuse_placeholders(plugin: str, policy: Mapping[str, Any]) -> None:
    """Raises ValueError where a text anywhere in a policy still holds a placeholder: taken literally, it would be
    a secret that everybody can read in the configuration."""
    for name in _unresolved(policy, "policy"):
        raise ValueError(f"auth plugin {plugin!r}: {name} holds a placeholder that was not resolved")


def _unresolved(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, str):
        if any(mark in value for mark in _PLACEHOLDERS):
            yield name
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _unresolved(member, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _unresolved(member, name)
