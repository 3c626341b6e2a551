"""Definitions of tools and their fingerprints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapter.errors import BadJson
from adapter.rules.tools.definitions import PinnedTool, pinned, read_tool
from tests.rules.tools.pinning import pin_of

SHOOT: dict[str, Any] = {
    "name": "shoot",
    "title": "Shoot",
    "description": "Takes a shot.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10}}},
    "annotations": {"readOnlyHint": True},
    "_meta": {"vendor": 1},
}


def read(definition: dict[str, Any], **spelling: Any) -> Any:
    return read_tool(json.dumps(definition, **spelling).encode())


def test_spelling_of_a_definition_does_not_count() -> None:
    """Order, white space, escapes, 10.0 and NFKC make no other tool."""
    other = dict(reversed(SHOOT.items()))
    other["inputSchema"] = {"properties": {"n": {"maximum": 10.0, "type": "integer"}}, "type": "object"}
    other["description"] = "Ｔakes a shot."
    one, two = read(SHOOT), read(other, indent=2)
    assert pinned(one)[:2] == pinned(two)[:2]
    assert pinned(one) == pinned(two) == PinnedTool(one.known, one.unknown, one.form)


@pytest.mark.parametrize("key", ["title", "description", "inputSchema", "annotations"])
def test_known_members_make_the_fingerprint(key: str) -> None:
    """Also where one is absent."""
    changed = pin_of({**SHOOT, key: "other"})
    absent = pin_of({member: item for member, item in SHOOT.items() if member != key})
    assert len({pin_of(SHOOT).known, changed.known, absent.known}) == 3
    assert changed.unknown == absent.unknown == pin_of(SHOOT).unknown
    assert pin_of({**SHOOT, "name": "other"}).known != pin_of(SHOOT).known


def test_other_members_count_apart() -> None:
    """What the specification may bring, and what vendors put into _meta."""
    changed = pin_of({**SHOOT, "_meta": {"vendor": 2}, "execution": {"taskSupport": "optional"}})
    assert changed.known == pin_of(SHOOT).known
    assert changed.unknown != pin_of(SHOOT).unknown


def test_a_tool_keeps_its_bytes() -> None:
    """They are what the client sees."""
    raw = b'{ "name":"x" ,"n":1.0}'
    tool = read_tool(raw)
    assert tool is not None and tool.raw is raw and tool.name == "x"
    assert repr(tool) == f"<Tool 'x': {tool.known[:12]}>"


def test_the_first_of_two_members_does_not_change_unseen() -> None:
    """Some readers take the first, so the bytes count then."""
    one = read_tool(b'{"name":"x","description":"evil","description":"good"}')
    two = read_tool(b'{"name":"x","description":"mild","description":"good"}')
    assert one is not None and two is not None
    assert one.known == two.known and one.unknown != two.unknown


def test_what_is_no_tool() -> None:
    """A list of tools may hold anything, but it is JSON."""
    for odd in (b"7", b"[]", b"{}", b'{"name":7}'):
        assert read_tool(odd) is None
    with pytest.raises(BadJson):
        read_tool(b"{")
