"""The comparison of a server's tools with those that its sessions start from, tool by tool, for an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from adapter.relay.tools.pins import PinStatus
from adapter.rules.text.canonical_json import ABSENT, canonical, differences
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.drift import Change, Drift, definition_of

MOST_TOOLS = 5000
"""Tools that are listed, those that changed first."""

MOST_CHANGES = 50
"""Changes of one tool that are listed."""

LONGEST_VALUE = 8000
"""Characters of one value; of a longer one the beginning is shown, as text."""

LARGEST = 4_000_000
"""Characters of all values together; what changed beyond them is named by its path."""

Pinned = Mapping[str, PinnedTool]


def as_data(status: PinStatus) -> dict[str, Any]:
    """The status as JSON, which takes a second for thousands of changed tools.

    ``accepted`` is when an operator accepted the baseline (Unix seconds), a text for a lock file, null if nobody did.
    ``remembered`` is the drift that sessions met, null if there is none. ``pinned`` and ``now`` of a tool are its
    fingerprints, null where it was or is not there; ``before`` or ``after`` of a change is null where there was or is
    no value.
    """
    origin, baseline, since = status.baseline
    before = baseline.tools if baseline is not None else {}
    now = status.now.tools if status.now is not None else {}
    tools = list(islice(_tools(status.drift, before, now), MOST_TOOLS))
    accepted = since if origin == "accepted" else None
    return {
        "mode": status.mode,
        "origin": origin,
        "digest": status.now.digest if status.now is not None else None,
        "accepted": "by a lock file" if origin == "lock" else accepted,
        "remembered": status.remembered.as_data() if status.remembered is not None else None,
        "drift": status.drifted,
        "tools": tools,
        "more": max(0, len(before.keys() | now.keys()) - len(tools)),
    }


def _tools(found: Drift | None, before: Pinned, now: Pinned) -> Iterator[dict[str, Any]]:
    room = _Room()
    if found is not None:
        yield from _drifted(found, before, now, room)
    concerned = _names(found) if found is not None else frozenset()
    for name in sorted(now.keys() - concerned):
        yield {"name": name, "pinned": _print(before, name), "now": _print(now, name), "changes": []}


def _drifted(found: Drift, before: Pinned, now: Pinned, room: _Room) -> Iterator[dict[str, Any]]:
    for change in found.changed:
        yield {
            "name": change.name,
            "pinned": _print(before, change.name),
            "now": _print(now, change.name),
            "changes": _changes(change, before, now, room),
            "unsafe": list(change.unsafe),
        }
    for old, new in found.renamed:
        renaming = [{"path": "name", "before": old, "after": new}]
        yield {"name": new, "pinned": _print(before, old), "now": _print(now, new), "changes": renaming}
    for name in found.added:
        whole = [room.change("", ABSENT, definition_of(now[name]))]
        yield {"name": name, "pinned": None, "now": _print(now, name), "changes": whole}
    for name in found.removed:
        whole = [room.change("", definition_of(before[name]), ABSENT)]
        yield {"name": name, "pinned": _print(before, name), "now": None, "changes": whole}


def _changes(change: Change, before: Pinned, now: Pinned, room: _Room) -> list[dict[str, Any]]:
    differing = differences(definition_of(before[change.name]), definition_of(now[change.name]))
    found = [room.change(each.path, each.old, each.new) for each in islice(differing, MOST_CHANGES)]
    if next(differing, None) is not None:
        found.append({"path": "…", "before": None, "after": None})
    if change.other_keys:
        # Of other members only a digest is kept.
        found.append({"path": "(other members)", "before": None, "after": None})
    return found


def _names(found: Drift) -> frozenset[str]:
    renamed = (rename.new for rename in found.renamed)
    return frozenset((*found.added, *found.removed, *renamed, *(change.name for change in found.changed)))


def _print(tools: Pinned, name: str) -> str | None:
    pin = tools.get(name)
    return pin.known if pin is not None else None


@dataclass(slots=True)
class _Room:
    """The number of characters of values that may still be shown."""

    left: int = field(default=LARGEST)

    def change(self, path: str, before: Any, after: Any) -> dict[str, Any]:
        shown = [self._value(value) for value in (before, after)]
        return {"path": path, "before": shown[0], "after": shown[1]}

    def _value(self, value: Any) -> Any:
        if value is ABSENT or self.left <= 0:
            return None
        text = value if isinstance(value, str) else canonical(value).decode("utf-8", "replace")
        self.left -= min(len(text), LONGEST_VALUE)
        return value if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
