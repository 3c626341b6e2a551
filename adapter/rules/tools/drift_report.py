"""Drift for people and models: as JSON, as a sentence, as a warning, and as the changed words in a terminal. Pure.

Definitions are strangers' text, so characters that move the cursor, hide or change direction are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

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


# --- changed words --------------------------------------------------------------------------------------------

_LONGEST_VALUE = 4000
_MOST_FIELDS = 50
# Matching takes time in the square of the words; more of them are marked as a whole.
_MOST_MATCHED_WORDS = 300
_WORDS = re.compile(r"\n|[^\S\n]+|\w+|[^\w\s]")


class _Marks(NamedTuple):
    """What stands around words that only the old or only the new value has; see ``git diff --word-diff``."""

    old: tuple[str, str] = ("[-", "-]")
    new: tuple[str, str] = ("{+", "+}")


_PLAIN = _Marks()
_COLORS = _Marks(("\x1b[31m", "\x1b[0m"), ("\x1b[32m", "\x1b[0m"))


def render(
    drift: Drift, baseline: Mapping[str, PinnedTool], now: Mapping[str, PinnedTool], color: bool
) -> str:
    """The drift between two catalogues for a terminal, ending in a line break.

    Changed words are red and green, or without ``color`` in ``[-…-]`` and ``{+…+}``. Long texts are cut.
    """
    marks = _COLORS if color else _PLAIN
    lines: list[str] = []
    for change in drift.changed:
        lines += _changed(change, baseline[change.name], now[change.name], marks)
    for old, new in drift.renamed:
        lines += (f"renamed {_name(old)} to {_name(new)}", "")
    for name in drift.added:
        lines += (f"added {_name(name)}", _compared(ABSENT, definition_of(now[name]), marks), "")
    for name in drift.removed:
        lines += (f"removed {_name(name)}", _compared(definition_of(baseline[name]), ABSENT, marks), "")
    return "\n".join(lines) + "\n" if lines else ""


def _changed(change: Change, old: PinnedTool, new: PinnedTool, marks: _Marks) -> Iterator[str]:
    yield f"changed {_name(change.name)}"
    if change.unsafe:
        yield f"  less safe: {', '.join(change.unsafe)}"
    found = differences(definition_of(old), definition_of(new))
    for difference in islice(found, _MOST_FIELDS):
        yield f"  {difference.path}"
        yield _compared(difference.old, difference.new, marks)
    if next(found, None) is not None:
        yield "  … and more"
    if change.other_keys:
        yield "  members that are not part of the fingerprint differ as well"
    yield ""


def _words(value: Any) -> list[str]:
    """The shown part of a value, cut into words, spaces and line breaks; each is safe to show."""
    if value is ABSENT:
        return []
    text = value if isinstance(value, str) else _laid_out(value)
    words = _WORDS.findall(text[:_LONGEST_VALUE])
    if len(text) > _LONGEST_VALUE:
        words += ["…", "\n", "(and more)"]
    return [word if word == "\n" else escaped(word) for word in words]


def _laid_out(value: Any) -> str:
    # Eight bytes of compact JSON make at least one character here, so no more than can be shown is laid out.
    return pretty(canonical(value)[: 8 * _LONGEST_VALUE].decode("utf-8", "ignore"))


def _compared(before: Any, after: Any, marks: _Marks) -> str:
    """Two values as one text, with marks around the words that only one of them has."""
    old, new = _words(before), _words(after)
    begin = _alike(old, new)
    end = min(_alike(old[::-1], new[::-1]), len(old) - begin, len(new) - begin)
    ours, theirs = old[begin : len(old) - end], new[begin : len(new) - end]
    if max(len(ours), len(theirs)) <= _MOST_MATCHED_WORDS:
        # Late: most adapters never show a difference.
        from difflib import SequenceMatcher

        codes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    else:
        codes = [("replace", 0, len(ours), 0, len(theirs))]
    pieces = old[:begin]
    for code, old_begin, old_end, new_begin, new_end in codes:
        if code == "equal":
            pieces += ours[old_begin:old_end]
        else:
            pieces += (
                _marked(ours[old_begin:old_end], marks.old),
                _marked(theirs[new_begin:new_end], marks.new),
            )
    return "".join((*pieces, *old[len(old) - end :]))


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of words with which both begin."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


def _marked(words: Sequence[str], marks: tuple[str, str]) -> str:
    begin, end = marks
    return f"{begin}{''.join(words)}{end}" if words else ""
