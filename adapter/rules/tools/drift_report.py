"""Drift for people and models: as JSON, as a sentence, as a warning, and as the changed lines in a terminal. Pure.

Definitions are strangers' text, so characters that move the cursor, hide or change direction are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from adapter.rules.text.canonical_json import ABSENT, canonical, differences
from adapter.rules.text.unicode import escaped, shown
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.drift import Change, Drift, DriftSummary, Rename, definition_of
from adapter.rules.tools.lock_file import pretty

_LONGEST_NAME = 128
_MOST_NAMES = 50
_MOST_NAMES_IN_SENTENCE = 5
_MOST_FIELDS_OF_TOOL = 10


def as_data(drift: Drift) -> dict[str, Any]:
    """The drift for a JSON-RPC error's ``data``: at most 50 tools, and how many more there are."""
    left = _MOST_NAMES
    changed = [_change_data(change) for change in drift.changed[:left]]
    left -= len(changed)
    added = [_name(name) for name in drift.added[:left]]
    left -= len(added)
    renamed = [{"old": _name(rename.old), "new": _name(rename.new)} for rename in drift.renamed[:left]]
    left -= len(renamed)
    removed = [_name(name) for name in drift.removed[:left]]
    left -= len(removed)
    named = {"changed": changed, "added": added, "renamed": renamed, "removed": removed}
    return {**named, "more": drift.size - (_MOST_NAMES - left)}


def summary(drift: Drift) -> DriftSummary:
    return DriftSummary(counts(drift), sentence(drift))


def counts(drift: Drift) -> dict[str, int]:
    """The number of tools that drifted, for each way of drifting."""
    return {
        "changed": len(drift.changed),
        "added": len(drift.added),
        "renamed": len(drift.renamed),
        "removed": len(drift.removed),
        "less_safe": sum(bool(change.unsafe) for change in drift.changed),
    }


def sentence(drift: Drift) -> str:
    """One sentence that names the tools that drifted, of bounded length and safe to show."""
    parts = [
        *_listed("changed", map(_described, drift.changed), len(drift.changed)),
        *_listed("added", map(_name, drift.added), len(drift.added)),
        *_listed(
            "renamed", (f"{_name(old)} to {_name(new)}" for old, new in drift.renamed), len(drift.renamed)
        ),
        *_listed("removed", map(_name, drift.removed), len(drift.removed)),
    ]
    return f"The server's tools are not those that were first seen: {'; '.join(parts)}."


def warned(description: str | None, reason: Change | Rename | None) -> str:
    """The description of a drifted tool with a warning before it. A tool without a ``reason`` was added."""
    match reason:
        case None:
            what = "was not there when this server's tools were first seen"
        case Rename(old, _):
            what = f"was called {_name(old)} when it was first seen"
        case Change():
            what = f"is not as it was first seen; changed: {_fields(reason)}"
    warning = f"[Warning: this tool {what}. Ask the user before you rely on it.]"
    return f"{warning}\n\n{description}" if description else warning


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "name": _name(change.name),
        "fields": list(change.fields[:_MOST_FIELDS_OF_TOOL]),
        "more_fields": max(0, len(change.fields) - _MOST_FIELDS_OF_TOOL),
        "unsafe": list(change.unsafe),
        "other_keys": change.other_keys,
    }


def _listed(word: str, tools: Iterable[str], count: int) -> list[str]:
    if not count:
        return []
    more = f" and {count - _MOST_NAMES_IN_SENTENCE} more" if count > _MOST_NAMES_IN_SENTENCE else ""
    return [f"{word} {', '.join(islice(tools, _MOST_NAMES_IN_SENTENCE))}{more}"]


def _described(change: Change) -> str:
    return f"{_name(change.name)} ({_fields(change)})"


def _fields(change: Change) -> str:
    fields = [*change.fields[:_MOST_FIELDS_OF_TOOL]]
    if len(change.fields) > _MOST_FIELDS_OF_TOOL:
        fields.append("…")
    if change.other_keys and not fields:
        fields.append("other members")
    less_safe = f"; less safe: {', '.join(change.unsafe)}" if change.unsafe else ""
    return ", ".join(fields) + less_safe


def _name(name: str) -> str:
    return shown(name, _LONGEST_NAME)


# --- changed fields -------------------------------------------------------------------------------------------

_LONGEST_VALUE = 4000
_MOST_FIELDS = 50


def render(drift: Drift, baseline: Mapping[str, PinnedTool], now: Mapping[str, PinnedTool]) -> str:
    """The drift between two catalogues for a terminal, ending in a line break.

    Lines that only the old value has begin with ``-``, those of the new one with ``+``. Long texts are cut.
    """
    lines: list[str] = []
    for change in drift.changed:
        lines += _changed(change, baseline[change.name], now[change.name])
    for old, new in drift.renamed:
        lines += (f"renamed {_name(old)} to {_name(new)}", "")
    for name in drift.added:
        lines += (f"added {_name(name)}", *_compared(ABSENT, definition_of(now[name])), "")
    for name in drift.removed:
        lines += (f"removed {_name(name)}", *_compared(definition_of(baseline[name]), ABSENT), "")
    return "\n".join(lines) + "\n" if lines else ""


def _changed(change: Change, old: PinnedTool, new: PinnedTool) -> Iterator[str]:
    yield f"changed {_name(change.name)}"
    if change.unsafe:
        yield f"  less safe: {', '.join(change.unsafe)}"
    found = differences(definition_of(old), definition_of(new))
    for difference in islice(found, _MOST_FIELDS):
        yield f"  {difference.path}"
        yield from _compared(difference.old, difference.new)
    if next(found, None) is not None:
        yield "  … and more"
    if change.other_keys:
        yield "  members that are not part of the fingerprint differ as well"
    yield ""


def _compared(before: Any, after: Any) -> Iterator[str]:
    """The lines of two values; of the lines with which both begin, and end, there is one."""
    old, new = _lines(before), _lines(after)
    begin = _alike(old, new)
    end = min(_alike(old[::-1], new[::-1]), len(old) - begin, len(new) - begin)
    yield from (f"    {line}" for line in old[:begin])
    yield from (f"  - {line}" for line in old[begin : len(old) - end])
    yield from (f"  + {line}" for line in new[begin : len(new) - end])
    yield from (f"    {line}" for line in old[len(old) - end :])


def _lines(value: Any) -> list[str]:
    """The shown part of a value, line by line; each is safe to show."""
    if value is ABSENT:
        return []
    # Eight bytes of compact JSON make at least one character here, so no more than can be shown is laid out.
    text = (
        value
        if isinstance(value, str)
        else pretty(canonical(value)[: 8 * _LONGEST_VALUE].decode("utf-8", "ignore"))
    )
    cut = ["… (and more)"] if len(text) > _LONGEST_VALUE else []
    return [*map(escaped, text[:_LONGEST_VALUE].split("\n")), *cut]


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of lines with which both begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))
