"""Policies of auth plugins as they are configured, read once and strictly. Pure.

What is wrong with one is a ValueError with a sentence for whoever configures it; it never quotes a value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.rules.access.token_claims import scopes_of, texts, untimely

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
