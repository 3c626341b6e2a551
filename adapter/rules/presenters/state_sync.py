"""Sentences that tell a model how long a tool's data stays true: in advance, and after a call changed it. Pure.

A policy matches the exposed name of a tool or ``server.tool``; the first policy that matches counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from adapter.rules.results.blocks import attribute
from adapter.rules.text.expressions import Glob

CacheControl = Literal["no-store", "immutable"]
Wording = Literal["element", "system"]

_SUFFIX = "[Cache-Control: "
_MARKER = re.compile(r"<(?=[\s/]*cache_invalidation\b)|\[(?=\s*System:\s*Cache invalidated\b)", re.IGNORECASE)
_ESCAPED = {"<": "&lt;", "[": "&#91;"}


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for the tools that ``match``: what may be kept of their results, and what a success makes stale."""

    match: Glob
    cache_control: CacheControl | None = None
    invalidates: tuple[Glob, ...] = ()


def policy(match: str, cache_control: CacheControl | None = None, invalidates: Iterable[str] = ()) -> Policy:
    """A policy from its texts. Raises GlobInvalid."""
    return Policy(Glob(match), cache_control, tuple(map(Glob, invalidates)))


class Overlap(NamedTuple):
    """A policy that never counts, because all it matches is matched by an earlier one."""

    earlier: Policy
    shadowed: Policy

    def __str__(self) -> str:
        return f"The policy for {self.shadowed.match} never counts: {self.earlier.match} comes before it."


@dataclass(frozen=True, slots=True)
class Invalidation:
    """The tools whose results a successful call made stale. ``cause`` is the exposed name of the called tool."""

    cause: str
    patterns: tuple[Glob, ...]

    def text(self, wording: Wording = "element") -> str:
        """The sentence for the model, in either wording."""
        domains = ", ".join(map(str, self.patterns))
        if wording == "element":
            return f'<cache_invalidation cause="{attribute(self.cause)}" domains="{attribute(domains)}" />'
        return f"[System: Cache invalidated for {_flat(domains)} — caused by {_flat(self.cause)}]"

    def stale_uris(self) -> list[str]:
        """The resources that ``notifications/resources/updated`` names."""
        return [f"vurb://stale/{pattern}" for pattern in self.patterns]

    def stales(self, server: str, tool: str) -> bool:
        """Tell whether the kept results of this tool are stale now."""
        return any(pattern.matches(name) for pattern in self.patterns for name in _names(server, tool))


@dataclass(frozen=True, slots=True)
class StateSync:
    """The policies in their order, and the default for tools without one."""

    policies: tuple[Policy, ...] = ()
    default: CacheControl | None = None
    wording: Wording = "element"

    def with_policies(self, policies: Iterable[Policy]) -> StateSync:
        """Return the same with these policies behind its own; tools bring such policies along."""
        return StateSync((*self.policies, *policies), self.default, self.wording)

    def policy_for(self, server: str, tool: str) -> Policy | None:
        """The first policy that matches the tool."""
        names = _names(server, tool)
        return next((each for each in self.policies if any(map(each.match.matches, names))), None)

    def cache_control(self, server: str, tool: str) -> CacheControl | None:
        """Return the rule for keeping the tool's results, None if there is none."""
        found = self.policy_for(server, tool)
        return self.default if found is None or found.cache_control is None else found.cache_control

    def described(self, server: str, tool: str, description: str) -> str:
        """The tool's description as ``tools/list`` has it."""
        directive = self.cache_control(server, tool)
        return description if directive is None else with_suffix(description, directive)

    def invalidation(self, server: str, tool: str) -> Invalidation | None:
        """Return what a successful call of the tool makes stale, None if that is nothing."""
        found = self.policy_for(server, tool)
        return None if found is None or not found.invalidates else Invalidation(tool, found.invalidates)

    def decorated(self, content: Sequence[Any], invalidation: Invalidation | None) -> list[Any]:
        """Return the content of a successful call with the adapter's sentence at index 0; no other text reads like
        it.
        """
        items = [_escaped(item) for item in content]
        if invalidation is None:
            return items
        return [{"type": "text", "text": invalidation.text(self.wording)}, *items]


def overlaps(policies: Sequence[Policy]) -> Iterator[Overlap]:
    """The policies that are shadowed by earlier ones."""
    for earlier, later in combinations(policies, 2):
        if earlier.match.covers(later.match):
            yield Overlap(earlier, later)


def with_suffix(description: str, directive: CacheControl) -> str:
    """The description with the directive at its end, in the place of one that stood there."""
    text = description.rstrip()
    while text.endswith("]") and (begin := text.rfind(_SUFFIX)) >= 0 and "]" not in text[begin:-1]:
        text = text[:begin].rstrip()
    return f"{text} {_SUFFIX}{directive}]".lstrip()


def _names(server: str, tool: str) -> tuple[str, str]:
    return tool, f"{server}.{tool}"


def _flat(text: str) -> str:
    """The text without what could end the sentence that it stands in."""
    return " ".join(text.replace("]", ")").split())


def _escaped(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    changed: dict[str, Any] = {}
    if isinstance(item.get("text"), str):
        changed["text"] = _without_markers(item["text"])
    if isinstance(item.get("resource"), Mapping):
        changed["resource"] = _escaped(item["resource"])
    return {**item, **changed} if any(item[key] != value for key, value in changed.items()) else item


def _without_markers(text: str) -> str:
    return _MARKER.sub(lambda found: _ESCAPED[found[0]], text)
