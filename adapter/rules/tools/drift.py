"""The changes of a server's tools since they were pinned: found as a value, and put in words. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.rules.text.canonical_json import canonical, differences
from adapter.rules.text.unicode import shown
from adapter.rules.tools.definitions import PinnedTool
from adapter.wire.envelope import parse
from adapter.wire.piecewise import Piecewise, at_once, one_piece

# MCP, "ToolAnnotations": what a client assumes of a tool that does not say, and what is the less safe.
_HINTS = {"readOnlyHint": (False, False), "destructiveHint": (True, True), "openWorldHint": (True, True)}
_MOST_FIELDS = 50
_MOST_NAMES = 50
_MOST_FIELDS_TOLD = 10
_MOST_NAMES_SAID = 5
_LONGEST_NAME = 128
_EACH = 512


class Rename(NamedTuple):
    """The same behaviour under another name."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Change:
    """The changes in one tool.

    ``fields`` are the paths of the differences in the known members, at most 50, then ``…``. ``unsafe`` names the
    annotations that became less safe. ``other_keys`` says that the unknown members differ; that alone does not
    change what a model is told.
    """

    name: str
    fields: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    other_keys: bool = False


@dataclass(frozen=True)
class Drift:
    """All that is not as it was pinned, each in the order of names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[Rename, ...] = ()
    changed: tuple[Change, ...] = ()

    @cached_property
    def unsettled(self) -> frozenset[str]:
        """The tools of now that are not those that were pinned; one of which only other keys differ is."""
        altered = (change.name for change in self.changed if change.fields)
        return frozenset((*self.added, *altered, *(rename.new for rename in self.renamed)))

    @cached_property
    def reasons(self) -> Mapping[str, Change | Rename]:
        """The changes and renames of the present tools, by present name; added tools are not in it."""
        changed: dict[str, Change | Rename] = {change.name: change for change in self.changed}
        return changed | {rename.new: rename for rename in self.renamed}

    @property
    def is_of_other_keys_only(self) -> bool:
        """Tell whether nothing that a model is told has changed."""
        return not (self.unsettled or self.removed)

    @property
    def size(self) -> int:
        """The number of tools that are not as they were pinned."""
        return len(self.changed) + len(self.added) + len(self.renamed) + len(self.removed)


Pinned = Mapping[str, PinnedTool]


def drift(baseline: Pinned, now: Pinned) -> Drift | None:
    """Return the difference between two catalogues, by the names of their tools; None if there is none."""
    return at_once(drift_piecewise(baseline, now))


def drift_piecewise(baseline: Pinned, now: Pinned) -> Piecewise[Drift | None]:
    """As ``drift``."""
    added = sorted(now.keys() - baseline.keys())
    removed = sorted(baseline.keys() - now.keys())
    yield None
    changed: list[Change] = []
    for place, (name, tool) in enumerate(now.items()):
        before = baseline.get(name)
        if before is not None and before[:2] != tool[:2]:
            size = len(before.definition) + len(tool.definition)
            changed.append((yield from one_piece(partial(_change, name, before, tool), size)))
        elif place % _EACH == 0:
            yield None
    changed.sort(key=lambda change: change.name)
    renamed = yield from _renames(baseline, removed, now, added)
    old_names, new_names = {rename.old for rename in renamed}, {rename.new for rename in renamed}
    found = Drift(
        tuple(name for name in added if name not in new_names),
        tuple(name for name in removed if name not in old_names),
        tuple(renamed),
        tuple(changed),
    )
    return found if found.size else None


def _renames(baseline: Pinned, removed: list[str], now: Pinned, added: list[str]) -> Piecewise[list[Rename]]:
    if not removed or not added:
        return []
    gone: dict[str, list[str]] = {}
    for name in reversed(removed):
        behaviour = yield from one_piece(partial(_behaviour, baseline[name]), len(baseline[name].definition))
        gone.setdefault(behaviour, []).append(name)
    renames = []
    for name in added:
        behaviour = yield from one_piece(partial(_behaviour, now[name]), len(now[name].definition))
        if alike := gone.get(behaviour):
            renames.append(Rename(alike.pop(), name))
    return sorted(renames)


def _behaviour(pin: PinnedTool) -> str:
    """A digest of all that a model is told but what the tool is called."""
    value = definition_of(pin)
    annotations = value.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop("title", None)
    told = {key: item for key, item in value.items() if key not in ("name", "title")}
    return hashlib.sha256(canonical(told)).hexdigest()


def _change(name: str, old: PinnedTool, new: PinnedTool) -> Change:
    other_keys = old.unknown != new.unknown
    if old.known == new.known:
        return Change(name, other_keys=other_keys)
    before, after = definition_of(old), definition_of(new)
    fields = [difference.path for difference in islice(differences(before, after), _MOST_FIELDS + 1)]
    if len(fields) > _MOST_FIELDS:
        fields[-1] = "…"
    return Change(name, tuple(dict.fromkeys(fields)), _unsafe(before, after), other_keys)


def definition_of(pin: PinnedTool) -> dict[str, Any]:
    """The known members of a pinned tool; none where they cannot be read."""
    try:
        value = parse(pin.definition)
    except BadJson:
        return {}
    return value if isinstance(value, dict) else {}


def _unsafe(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        hint
        for hint, (assumed, unsafe) in _HINTS.items()
        if _hint(after, hint, assumed) is unsafe and _hint(before, hint, assumed) is not unsafe
    )


def _hint(definition: dict[str, Any], hint: str, assumed: bool) -> bool:
    annotations = definition.get("annotations")
    stated = annotations.get(hint) if isinstance(annotations, dict) else None
    return stated if isinstance(stated, bool) else assumed


# --- telling --------------------------------------------------------------------------------------------------


def as_data(drift: Drift) -> dict[str, Any]:
    """The drift for a JSON-RPC error's ``data``: at most 50 tools, and how many more there are."""
    left = _MOST_NAMES
    changed = [_told(change) for change in drift.changed[:left]]
    left -= len(changed)
    added = [_name(name) for name in drift.added[:left]]
    left -= len(added)
    renamed = [{"old": _name(rename.old), "new": _name(rename.new)} for rename in drift.renamed[:left]]
    left -= len(renamed)
    removed = [_name(name) for name in drift.removed[:left]]
    left -= len(removed)
    told = {"changed": changed, "added": added, "renamed": renamed, "removed": removed}
    return {**told, "more": drift.size - (_MOST_NAMES - left)}


def counts(drift: Drift) -> dict[str, int]:
    """Return the number of tools that drifted, for each way of drifting."""
    return {
        "changed": len(drift.changed),
        "added": len(drift.added),
        "renamed": len(drift.renamed),
        "removed": len(drift.removed),
        "less_safe": sum(bool(change.unsafe) for change in drift.changed),
    }


def sentence(drift: Drift) -> str:
    """One sentence that says what drifted, of bounded length and safe to show."""
    parts = [
        *_said("changed", map(_described, drift.changed), len(drift.changed)),
        *_said("added", map(_name, drift.added), len(drift.added)),
        *_said(
            "renamed", (f"{_name(old)} to {_name(new)}" for old, new in drift.renamed), len(drift.renamed)
        ),
        *_said("removed", map(_name, drift.removed), len(drift.removed)),
    ]
    return f"The server's tools are not those that were first seen: {'; '.join(parts)}."


def warned(description: str | None, found: Change | Rename | None) -> str:
    """The description of a drifted tool with a warning before it; None as ``found`` is a tool that was added."""
    match found:
        case None:
            what = "was not there when this server's tools were first seen"
        case Rename(old, _):
            what = f"was called {_name(old)} when it was first seen"
        case Change():
            what = f"is not as it was first seen; changed: {_fields(found)}"
    warning = f"[Warning: this tool {what}. Ask the user before you rely on it.]"
    return f"{warning}\n\n{description}" if description else warning


def _told(change: Change) -> dict[str, Any]:
    return {
        "name": _name(change.name),
        "fields": list(change.fields[:_MOST_FIELDS_TOLD]),
        "more_fields": max(0, len(change.fields) - _MOST_FIELDS_TOLD),
        "unsafe": list(change.unsafe),
        "other_keys": change.other_keys,
    }


def _said(word: str, tools: Iterable[str], count: int) -> list[str]:
    if not count:
        return []
    more = f" and {count - _MOST_NAMES_SAID} more" if count > _MOST_NAMES_SAID else ""
    return [f"{word} {', '.join(islice(tools, _MOST_NAMES_SAID))}{more}"]


def _described(change: Change) -> str:
    return f"{_name(change.name)} ({_fields(change)})"


def _fields(change: Change) -> str:
    told = [*change.fields[:_MOST_FIELDS_TOLD]]
    if len(change.fields) > _MOST_FIELDS_TOLD:
        told.append("…")
    if change.other_keys and not told:
        told.append("other members")
    less_safe = f"; less safe: {', '.join(change.unsafe)}" if change.unsafe else ""
    return ", ".join(told) + less_safe


def _name(name: str) -> str:
    return shown(name, _LONGEST_NAME)
