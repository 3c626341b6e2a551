"""The lock file: what is written is read back, and nothing hides in it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.rules.text.unicode import escaped
from adapter.rules.tools.definitions import PinnedTool, pinned, read_tool
from adapter.rules.tools.lock_file import HEADER, LockError, pretty, read_lock, write_lock
from tests.cpu_time import at_most
from tests.rules.tools.pinning import pin_of


def pin(**members: Any) -> PinnedTool:
    tool = read_tool(json.dumps({"name": "shoot", **members}).encode())
    assert tool is not None
    return pinned(tool)


SHOOT = pin(description="Takes a shot.", inputSchema={"required": ["a", "b"], "properties": {}}, _meta=1)
LOCK = write_lock({"one": {"shoot": SHOOT}})

texts = st.text(st.characters(exclude_categories=[]), max_size=9)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
pins = st.dictionaries(
    texts, st.fixed_dictionaries({"description": values, "inputSchema": values, "_meta": values}), max_size=3
).map(lambda tools: {name: pin_of({"name": name, **tool}) for name, tool in tools.items()})


def test_form() -> None:
    """One line for a tool and its digests, its definition below it with a line for each member."""
    assert (
        f"""{HEADER}
server "one"

tool "shoot" known sha256:{SHOOT.known} other sha256:{SHOOT.unknown}
  {{
    "description": "Takes a shot.",
    "inputSchema": {{
      "properties": {{}},
      "required": [
        "a",
        "b"
      ]
    }},
    "name": "shoot"
  }}
"""
    ) == LOCK


@given(st.dictionaries(texts, pins, max_size=3))
@example({"": {"tool": pin_of({"name": "tool", "inputSchema": {"2": 1, "²": 2}})}})
def test_what_is_written_is_read_back(servers: dict[str, dict[str, PinnedTool]]) -> None:
    """Whatever names and definitions hold; the order of servers and tools does not show."""
    text = write_lock(servers)
    assert read_lock(text) == servers
    backwards = {server: dict(reversed(tools.items())) for server, tools in reversed(servers.items())}
    assert write_lock(backwards) == text
    assert text.encode("utf-8")


@given(pins)
def test_nothing_hides_in_the_text(tools: dict[str, PinnedTool]) -> None:
    """A reviewer sees every character, and every line is one."""
    text = write_lock({"one": tools})
    for line in text.split("\n"):
        assert escaped(line) == line
        assert not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in line)


def test_line_ends_of_other_systems_are_read() -> None:
    """Git may have written them."""
    assert read_lock(LOCK.replace("\n", "\r\n")) == read_lock(LOCK) == {"one": {"shoot": SHOOT}}


def test_comments_and_empty_servers() -> None:
    """A server without tools is one all the same: its first tool will be new."""
    assert read_lock('# mine\n\nformat 1\nserver "a"\n# none\nserver "b"\n') == {"a": {}, "b": {}}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "format 1"),
        ("# only\n", 1, "format 1"),
        ("format 2\n", 1, "format 1"),
        (LOCK.replace("Takes a shot.", "Takes a shot!"), 7, "does not match its digest"),
        (LOCK.replace('"name": "shoot"', '"name": "click"'), 7, "not of this tool"),
        (LOCK.replace('"a",', '"a"'), 7, "not JSON"),
        (LOCK + "x\n", 19, "neither a server nor a tool"),
        (LOCK.replace('server "one"\n', ""), 6, "neither a server nor a tool"),
        (LOCK.replace('server "one"', 'server "\\x"'), 5, "not a JSON string"),
        (LOCK + LOCK[len(HEADER) :], 20, "this server appears twice"),
        (LOCK + LOCK[LOCK.index('tool "') :], 19, "this tool appears twice"),
        ("format 1\n  {}\n", 2, "belongs to a tool"),
        (f'format 1\nserver "a"\ntool "x" known sha256:{"0" * 64} other sha256:{"0" * 64}\n', 3, "not JSON"),
        (LOCK.replace("Takes", "\ud800"), 7, "not JSON"),
    ],
)
def test_what_is_no_lock_file(text: str, line: int, says: str) -> None:
    """The error says where and why; an edited definition does not pass for the one that was exported."""
    with pytest.raises(LockError, match=says) as caught:
        read_lock(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"tools.lock, line {line}: ")


def test_depth_is_no_matter() -> None:
    """Hostile definitions take no stack, and their indentation no room."""
    deep = "[" * 100_000 + "]" * 100_000
    with at_most(5):
        assert pretty(deep).count("[") == 100_000


def test_ten_thousand_tools_cost_little() -> None:
    """To write and to read."""
    tools = {f"t{n}": pin(name=f"t{n}", description="Does something. " * 20) for n in range(10_000)}
    with at_most(5):
        assert read_lock(write_lock({"one": tools})) == {"one": tools}
