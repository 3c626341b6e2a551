"""What became of the tools of a server since they were pinned, and how it is told."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.rules.text.canonical_json import canonical
from adapter.rules.tools.definitions import KNOWN, PinnedTool, pinned, read_tool
from adapter.rules.tools.drift import Change, Drift, Rename, drift
from adapter.rules.tools.drift_report import as_data, sentence, warned
from tests.cpu_time import at_most
from tests.rules.tools.pinning import pin_of

SHOOT: dict[str, Any] = {
    "name": "shoot",
    "title": "Shoot",
    "description": "Takes a shot.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where to"}},
        "required": ["path"],
    },
    "outputSchema": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    "_meta": {"vendor": {"n": 1}},
    "execution": {"taskSupport": "optional"},
}


def pin(**members: Any) -> PinnedTool:
    tool = read_tool(json.dumps({**SHOOT, **members}).encode())
    assert tool is not None
    return pinned(tool)


def catalogue(*pins: PinnedTool) -> dict[str, PinnedTool]:
    return {json.loads(found.definition)["name"]: found for found in pins}


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there are members and items in a value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    found = []
    for step, child in children:
        found += [(*path, step), *paths_of(child, (*path, step))]
    return found


def named(path: tuple[Any, ...]) -> list[str]:
    """The spellings of a path and of all that lead to it."""
    texts, text = [], ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        texts.append(text)
    return texts


new_items: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=[])) | st.just({})
)


@given(st.sampled_from(paths_of(SHOOT)), new_items, st.booleans())
def test_any_change_of_one_field_is_seen_and_named(
    path: tuple[Any, ...], item: Any, is_dropped: bool
) -> None:
    """Also where it is taken away; a change of what is unknown is told apart."""
    assume(path != ("name",))
    changed = copy.deepcopy(SHOOT)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    if is_dropped:
        del holder[path[-1]]
    else:
        assume(canonical(holder[path[-1]]) != canonical(item))
        holder[path[-1]] = item
    tool = pin_of(changed)
    found = drift({"shoot": pin()}, {"shoot": tool})
    assert found is not None and not (found.added or found.removed or found.renamed)
    (change,) = found.changed
    if path[0] in KNOWN:
        assert not change.other_keys and change.fields
        for field in change.fields:
            # What replaces an object as a whole is named by the object, or by its members that went.
            assert field in named(path) or field.startswith(named(path)[-1])
        assert found.unsettled == {"shoot"}
    else:
        assert change == Change("shoot", other_keys=True)
        assert found.unsettled == frozenset() and found.is_of_other_keys_only


tools = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcdef"), "description": st.text(max_size=3)}),
    unique_by=lambda tool: tool["name"],
)


@given(tools, tools)
def test_drift_accounts_for_every_tool(before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    """A tool of now is as it was pinned, or it is unsettled; one that was pinned is there, removed or renamed."""
    old = {tool["name"]: pin_of(tool) for tool in before}
    new = {tool["name"]: pin_of(tool) for tool in after}
    found = drift(old, new) or Drift()
    assert found.unsettled == {name for name in new if old.get(name) != new[name]}
    gone = {*found.removed, *(rename.old for rename in found.renamed)}
    assert gone == old.keys() - new.keys()
    assert (found == Drift()) == (old == new)
    for rename in found.renamed:
        (one,) = (tool for tool in before if tool["name"] == rename.old)
        (other,) = (tool for tool in after if tool["name"] == rename.new)
        assert canonical(one["description"]) == canonical(other["description"])


def test_equal_catalogues_do_not_drift() -> None:
    """Order does not matter."""
    one, two = pin(), pin(name="click")
    assert drift(catalogue(one, two), catalogue(two, one)) is None
    assert drift({}, {}) is None


def test_rename_is_the_same_behaviour_under_another_name() -> None:
    """Name and titles may be others, nothing else; two alike are paired in their order."""
    renamed = pin(name="snap", title="Snap", annotations={**SHOOT["annotations"], "title": "Snap"})
    assert drift(catalogue(pin()), catalogue(renamed)) == Drift(renamed=(Rename("shoot", "snap"),))
    other = pin(name="snap", description="Takes a shot and mails it.")
    assert drift(catalogue(pin()), catalogue(other)) == Drift(added=("snap",), removed=("shoot",))
    twins = drift(catalogue(pin(), pin(name="a")), catalogue(pin(name="y"), pin(name="x"), pin(name="z")))
    assert twins == Drift(added=("z",), renamed=(Rename("a", "x"), Rename("shoot", "y")))


@pytest.mark.parametrize(
    ("before", "after", "unsafe"),
    [
        ({"readOnlyHint": True}, {"readOnlyHint": False}, ("readOnlyHint",)),
        ({"readOnlyHint": True}, {}, ("readOnlyHint",)),
        ({"readOnlyHint": True}, None, ("readOnlyHint",)),
        ({"destructiveHint": False}, {"destructiveHint": True}, ("destructiveHint",)),
        ({"destructiveHint": False}, {}, ("destructiveHint",)),
        ({"openWorldHint": False}, {"openWorldHint": "no"}, ("openWorldHint",)),
        ({"readOnlyHint": False}, {"readOnlyHint": True}, ()),
        ({}, {"destructiveHint": True, "openWorldHint": True, "readOnlyHint": False}, ()),
        ({"idempotentHint": True}, {"idempotentHint": False}, ()),
    ],
)
def test_annotations_that_turn_less_safe(before: Any, after: Any, unsafe: tuple[str, ...]) -> None:
    """An absent one counts as MCP has it: not read-only, destructive, open world. Every change is drift."""
    found = drift(catalogue(pin(annotations=before)), catalogue(pin(annotations=after)))
    assert found is not None and found.changed[0].unsafe == unsafe and found.changed[0].fields


def test_data_tells_fifty_tools_at_most() -> None:
    """And how many more; names are short and safe to show."""
    found = drift(
        {**catalogue(pin()), "gone": pin(description="z")},
        {
            **catalogue(pin(description="x", _meta={})),
            **{f"t{n:03}\u202e{'x' * 200}": pin(title="n") for n in range(99)},
        },
    )
    assert found is not None
    data = as_data(found)
    assert data["changed"] == [
        {"name": "shoot", "fields": ["description"], "more_fields": 0, "unsafe": [], "other_keys": True}
    ]
    assert (len(data["added"]), data["renamed"], data["removed"], data["more"]) == (49, [], [], 51)
    assert data["added"][0].startswith("t000\\u202exx") and len(data["added"][0]) == 128
    assert data["added"][0].endswith("…")


def test_sentence() -> None:
    """It names what changed, five tools of a kind."""
    found = Drift(
        tuple("abcdefg"),
        ("z",),
        (Rename("x", "y"),),
        (Change("s", ("title",), ("readOnlyHint",)), Change("o", other_keys=True)),
    )
    assert sentence(found) == (
        "The server's tools are not those that were first seen: changed s (title; less safe: readOnlyHint), "
        "o (other members); added a, b, c, d, e and 2 more; renamed x to y; removed z."
    )


def test_warnings_stand_first_in_the_description() -> None:
    """Of a changed, a renamed and a new tool; also where there is no description."""
    end = "Ask the user before you rely on it.]"
    change = Change("s", tuple(f"inputSchema.{n}" for n in range(12)))
    fields = ", ".join(change.fields[:10]) + ", …"
    assert warned("Old.", change) == (
        f"[Warning: this tool is not as it was first seen; changed: {fields}. {end}\n\nOld."
    )
    assert warned("Old.", Rename("a\x1b", "b")) == (
        f"[Warning: this tool was called a\\u001b when it was first seen. {end}\n\nOld."
    )
    assert warned(None, None) == (
        f"[Warning: this tool was not there when this server's tools were first seen. {end}"
    )


def test_ten_thousand_tools_that_all_drift_cost_little() -> None:
    """Renamed and changed as they may be; and what is told of them stays short."""
    old = {f"t{n}": pin(name=f"t{n}", description=f"d{n}") for n in range(10_000)}
    new = {f"t{n}": pin(name=f"t{n}", description=f"d{n + 1}") for n in range(5_000, 15_000)}
    order = list(new)
    random.Random(1).shuffle(order)
    with at_most(5):
        found = drift(old, {name: new[name] for name in order})
    assert found is not None and len(found.changed) == 5_000 and len(found.unsettled) == 10_000
    assert len(json.dumps(as_data(found))) < 20_000 and len(sentence(found)) < 1_000


def test_change_of_very_many_fields_is_told_in_fifty() -> None:
    """The last of them says that there are more."""
    wide = {"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}
    other = {"properties": {f"p{n}": {"type": "number"} for n in range(1000)}}
    found = drift(catalogue(pin(inputSchema=wide)), catalogue(pin(inputSchema=other)))
    assert found is not None
    assert len(found.changed[0].fields) == 51 and found.changed[0].fields[-1] == "…"
    assert as_data(found)["changed"][0]["more_fields"] == 41


def test_definition_that_cannot_be_read_has_drifted_as_a_whole() -> None:
    """What a store gave back broken is no reason to fail."""
    broken = PinnedTool("0" * 64, pin().unknown, b"{")
    found = drift({"shoot": broken}, {"shoot": pin()})
    assert found is not None and set(found.changed[0].fields) == set(KNOWN)


def test_drift_within_what_a_caller_sees() -> None:
    """Nobody is told of a tool that he may not see; half of a rename is an addition or a removal."""
    whole = Drift(
        added=("a", "x"),
        removed=("b", "x2"),
        renamed=(Rename("c", "d"), Rename("e", "y"), Rename("z", "f"), Rename("x3", "x4")),
        changed=(Change("g", ("description",)), Change("x5", ("description",))),
    )
    assert whole.within(lambda name: name in "abcdefg") == Drift(
        ("a", "f"), ("b", "e"), (Rename("c", "d"),), (Change("g", ("description",)),)
    )
    assert whole.within(lambda _: False) is None
