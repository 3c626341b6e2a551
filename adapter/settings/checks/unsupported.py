"""Features that may be written in the file but do not exist yet: a value that asks for one is refused, never ignored.

Remove the lines of a feature from ``MISSING`` once the feature exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from adapter.settings.problems import Problem, spelled
from adapter.settings.root import Settings


class Missing(NamedTuple):
    """A path (``[]`` stands for every entry of a list), the values that ask for the feature, and its name."""

    path: str
    asks: Callable[[Any], bool]
    feature: str


def _is(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def _snapshots_memory(state: dict[str, Any]) -> bool:
    return state.get("type") == "memory" and bool(state.get("disk", {}).get("local_path"))


MISSING = (
    Missing("servers[].upstream.transport", _is("sse"), "upstreams over SSE"),
    Missing("servers[].upstream.transport", _is("stdio"), "upstreams over stdio"),
    Missing("state_persistence.type", _is("redis"), "state in Redis"),
    Missing("state_persistence.unavailable_policy", _is("fallback_memory"), "going on in memory"),
    Missing("state_persistence.refresh_on_startup", bool, "forgetting stored state at start"),
    Missing("state_persistence.reconciliation.mode", _is("always"), "reconciling records with files"),
    Missing("state_persistence.reconciliation.legacy_server_id", bool, "reconciling records with files"),
    Missing("state_persistence", _snapshots_memory, "snapshots of memory to disk.local_path"),
    Missing("storage.lock_mode", _is("redis"), "locks in Redis"),
)


def missing_features(settings: Settings) -> Iterator[Problem]:
    """Every explicit value that asks for a feature which is not there. Defaults ask for nothing."""
    written = settings.model_dump(exclude_unset=True)
    for missing in MISSING:
        for location, value in _values_at(written, missing.path.replace("[]", ".[]").split(".")):
            if missing.asks(value):
                asked = value if isinstance(value, str) and value.isidentifier() else None
                yield Problem(spelled(location), _refusal(asked, missing.feature))


def _refusal(asked: str | None, feature: str) -> str:
    cause = f"{asked} asks for {feature}" if asked else f"this asks for {feature}"
    return f"{cause}, and this version of the adapter cannot do that yet; leave the key out or turn it off"


def _values_at(value: Any, steps: list[str]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if not steps:
        yield (), value
    elif steps[0] == "[]":
        for index, entry in enumerate(value):
            for location, found in _values_at(entry, steps[1:]):
                yield (index, *location), found
    elif steps[0] in value:
        for location, found in _values_at(value[steps[0]], steps[1:]):
            yield (steps[0], *location), found
