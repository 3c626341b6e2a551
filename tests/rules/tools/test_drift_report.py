"""A drift as the changed lines in a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.unicode import escaped
from adapter.rules.tools.definitions import PinnedTool, pinned, read_tool
from adapter.rules.tools.drift import drift
from adapter.rules.tools.drift_report import render
from tests.cpu_time import at_most

texts = st.text(st.characters(exclude_categories=[]), max_size=60)


def catalogue(**tools: dict[str, Any]) -> dict[str, PinnedTool]:
    found = {}
    for name, members in tools.items():
        tool = read_tool(json.dumps({"name": name, **members}).encode())
        assert tool is not None
        found[name] = pinned(tool)
    return found


def shown(old: dict[str, PinnedTool], new: dict[str, PinnedTool]) -> str:
    found = drift(old, new)
    assert found is not None
    return render(found, old, new)


def test_changed_lines_are_marked() -> None:
    """Each field is shown once, with what was and what is."""
    old = catalogue(shoot={"description": "Takes a shot.\nQuickly.", "annotations": {"readOnlyHint": True}})
    new = catalogue(
        shoot={
            "description": "Takes and mails a shot.\nQuickly.",
            "annotations": {"readOnlyHint": False},
            "title": "S",
        }
    )
    assert shown(old, new) == (
        """\
changed shoot
  less safe: readOnlyHint
  annotations.readOnlyHint
  - true
  + false
  description
  - Takes a shot.
  + Takes and mails a shot.
    Quickly.
  title
  + S

"""
    )


def test_added_removed_and_renamed_tools() -> None:
    """A new or an old one is marked as a whole, a renamed one is told in a sentence."""
    old = catalogue(gone={"description": "G"}, old={"description": "same"})
    new = catalogue(extra={"description": "E"}, new={"description": "same"})
    assert shown(old, new) == (
        """\
renamed old to new

added extra
  + {
  +   "description": "E",
  +   "name": "extra"
  + }

removed gone
  - {
  -   "description": "G",
  -   "name": "gone"
  - }

"""
    )


def test_other_members_are_told_apart() -> None:
    """They are no part of what was shown."""
    assert shown(catalogue(x={"_meta": 1}), catalogue(x={"_meta": 2})) == (
        "changed x\n  members that are not part of the fingerprint differ as well\n\n"
    )


@given(texts, texts)
def test_hostile_text_cannot_leave_its_place(old: str, new: str) -> None:
    """No control or invisible character reaches the terminal."""
    before, after = catalogue(x={"description": old, "a": 1}), catalogue(x={"description": new, "a": 2})
    text = shown(before, after)
    for line in text.split("\n"):
        assert escaped(line) == line
    assert text.encode("utf-8")


@pytest.mark.parametrize("unit", ["a ", "a", "\n", "\u202e", "語", "a b\n"])
def test_a_megabyte_costs_little(unit: str) -> None:
    """A long text is cut."""
    old = catalogue(x={"description": unit * (10**6 // len(unit))})
    new = catalogue(x={"description": "b " + unit * (10**6 // len(unit)) + "c"})
    with at_most(5):
        text = shown(old, new)
    assert len(text) < 10**6 and "(and more)" in text


def test_change_of_very_many_fields_is_cut() -> None:
    """Fifty of them are shown."""
    old = catalogue(x={"inputSchema": {f"k{n}": 1 for n in range(99)}})
    new = catalogue(x={"inputSchema": {f"k{n}": 2 for n in range(99)}})
    text = shown(old, new)
    assert text.count("inputSchema.") == 50 and "… and more" in text
