"""Drift for people and models: as JSON, as a sentence, as a warning, and as two columns of a terminal. Pure.

Definitions are strangers' text, so characters that move the cursor, hide or change direction are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

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


# --- columns --------------------------------------------------------------------------------------------------

_DIVIDER = " │ "
_NARROWEST_COLUMN = 16
_LONGEST_VALUE = 4000
_MOST_FIELDS = 50
# Matching takes time in the square of the words; more of them are marked as a whole.
_MOST_MATCHED_WORDS = 300
_WORDS = re.compile(r"\n|[^\S\n]+|\w+|[^\w\s]")

Side = Literal["old", "new"]
_COLORS = {"old": "\x1b[31m", "new": "\x1b[32m"}
_RESET = "\x1b[0m"
_BRACKETS = {"old": ("[-", "-]"), "new": ("{+", "+}")}


class _Run(NamedTuple):
    """Words in a row that are all marked as changed, or all not."""

    words: tuple[str, ...]
    marked: bool


class _Page(NamedTuple):
    """The width of a column, in cells of the terminal, and whether it has colors."""

    column: int
    color: bool


def render(
    drift: Drift,
    baseline: Mapping[str, PinnedTool],
    now: Mapping[str, PinnedTool],
    width: int,
    color: bool,
) -> str:
    """The drift between two catalogues for a terminal of ``width`` cells, ending in a line break.

    Changed words are red and green, or without ``color`` in ``[-…-]`` and ``{+…+}``. Long texts are cut.
    """
    page = _Page(max(_NARROWEST_COLUMN, (width - len(_DIVIDER)) // 2), color)
    lines: list[str] = []
    for change in drift.changed:
        lines += _changed(change, baseline[change.name], now[change.name], page)
    for old, new in drift.renamed:
        lines += (f"renamed {_name(old)} to {_name(new)}", "")
    for name in drift.added:
        lines += (f"added {_name(name)}", *_columns(ABSENT, definition_of(now[name]), page), "")
    for name in drift.removed:
        lines += (f"removed {_name(name)}", *_columns(definition_of(baseline[name]), ABSENT, page), "")
    return "\n".join(lines) + "\n" if lines else ""


def _changed(change: Change, old: PinnedTool, new: PinnedTool, page: _Page) -> Iterator[str]:
    yield f"changed {_name(change.name)}"
    if change.unsafe:
        yield f"  less safe: {', '.join(change.unsafe)}"
    found = differences(definition_of(old), definition_of(new))
    for difference in islice(found, _MOST_FIELDS):
        yield f"  {difference.path}"
        yield from _columns(difference.old, difference.new, page)
    if next(found, None) is not None:
        yield "  … and more"
    if change.other_keys:
        yield "  members that are not part of the fingerprint differ as well"
    yield ""


def _columns(old: Any, new: Any, page: _Page) -> Iterator[str]:
    """Two values beside each other."""
    left, right = _compared(_words(old), _words(new))
    left_lines, right_lines = list(_lines(left, "old", page)), list(_lines(right, "new", page))
    for place in range(max(len(left_lines), len(right_lines))):
        text, cells = left_lines[place] if place < len(left_lines) else ("", 0)
        other = right_lines[place][0] if place < len(right_lines) else ""
        yield f"{text}{' ' * (page.column - cells)}{_DIVIDER}{other}".rstrip()


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


def _compared(old: Sequence[str], new: Sequence[str]) -> tuple[list[_Run], list[_Run]]:
    """The words of both sides; words that the other side lacks are marked."""
    begin = 0
    while begin < min(len(old), len(new)) and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < min(len(old), len(new)) - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = [_Run(tuple(old[:begin]), False)], [_Run(tuple(new[:begin]), False)]
    ours, theirs = old[begin : len(old) - end], new[begin : len(new) - end]
    if max(len(ours), len(theirs)) <= _MOST_MATCHED_WORDS:
        # Late: most adapters never show a difference.
        from difflib import SequenceMatcher

        codes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    else:
        codes = [("replace", 0, len(ours), 0, len(theirs))]
    for code, old_begin, old_end, new_begin, new_end in codes:
        left.append(_Run(tuple(ours[old_begin:old_end]), code != "equal"))
        right.append(_Run(tuple(theirs[new_begin:new_end]), code != "equal"))
    left.append(_Run(tuple(old[len(old) - end :]), False))
    right.append(_Run(tuple(new[len(new) - end :]), False))
    return left, right


def _lines(runs: Sequence[_Run], side: Side, page: _Page) -> Iterator[tuple[str, int]]:
    """The lines of one column, each with the cells it takes."""
    pieces: list[str] = []
    cells = 0
    for word, marked in _marked(runs, side, page):
        size = _cells(word)
        if word == "\n" or (cells + size > page.column and cells):
            yield _joined(pieces, side), cells
            pieces, cells = [], 0
            if word == "\n" or word.isspace():
                continue
        for part in _parts(word, size, page.column):
            if cells + _cells(part) > page.column:
                yield _joined(pieces, side), cells
                pieces, cells = [], 0
            pieces.append(f"{_COLORS[side]}{part}{_RESET}" if marked and page.color else part)
            cells += _cells(part)
    if pieces:
        yield _joined(pieces, side), cells


def _joined(pieces: Sequence[str], side: Side) -> str:
    """One line; neighbouring words of one color share the color's codes."""
    return "".join(pieces).replace(_RESET + _COLORS[side], "")


def _marked(runs: Sequence[_Run], side: Side, page: _Page) -> Iterator[tuple[str, bool]]:
    """Every word and whether it has a color; without colors there are brackets around what is marked."""
    opening, closing = _BRACKETS[side]
    for run in runs:
        brackets = run.marked and run.words and not page.color
        if brackets:
            yield opening, False
        for word in run.words:
            yield word, run.marked
        if brackets:
            yield closing, False


def _parts(word: str, cells: int, column: int) -> Iterator[str]:
    """A word that is longer than its column, in pieces that are not."""
    if cells <= column:
        yield word
        return
    # A character takes two cells at most.
    step = column // 2
    for begin in range(0, len(word), step):
        yield word[begin : begin + step]


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
