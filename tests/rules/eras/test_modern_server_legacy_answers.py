"""Answers of modern servers as legacy clients read them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.rules.eras.modern_server import (
    MODERN_ONLY,
    SHORT,
    TASKS,
    agreed_version,
    initialize_response,
    legacy_notification,
    legacy_response,
)
from adapter.wire.names import SUBSCRIPTION_KEY

_KEYS = st.text(max_size=5) | st.sampled_from([*MODERN_ONLY, "_meta", "content"])
_VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from(["complete", "private", '"ttlMs":5', "\\u"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


def message(**content: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, **content})


@given(st.dictionaries(_KEYS, _VALUES, max_size=6), st.booleans())
def test_result_has_nothing_of_the_modern_era(result: dict[str, Any], is_long: bool) -> None:
    """What only modern results have is left out of the result, and of nothing that is within it."""
    if is_long:
        result["filling"] = "x" * SHORT
    found = orjson.loads(legacy_response(message(result=result), "tools/call"))
    left = {name: value for name, value in result.items() if name not in MODERN_ONLY}
    assert found == {"jsonrpc": "2.0", "id": 1, "result": left}


@given(st.permutations(["resultType", "a", "ttlMs", "cacheScope"]), st.sampled_from([b"", b" ", b"\n\t"]))
def test_members_are_taken_away_with_their_commas(order: list[str], space: bytes) -> None:
    """In whichever order they stand, and however they are spaced."""
    values = {"resultType": b'"complete"', "ttlMs": b"5", "cacheScope": b'"public"', "a": b"1.50"}
    members = [
        b'%b"%b"%b:%b%b%b' % (space, name.encode(), space, space, values[name], space) for name in order
    ]
    response = b'{"id":1,"result":{' + b",".join(members) + b"}}"
    found = legacy_response(response, "tools/list")
    assert orjson.loads(found) == {"id": 1, "result": {"a": 1.5}} and b"1.50" in found


def test_name_that_is_spelled_with_escapes_is_seen() -> None:
    """It is the same name."""
    assert legacy_response(b'{"id":1,"result":{"\\u0074tlMs":5,"a":1}}', "x") == b'{"id":1,"result":{"a":1}}'
    plain = b'{"id":1,"result":{"a":"\\u00e4"}}'
    assert legacy_response(plain, "tools/call") == plain


def test_member_of_that_name_which_is_no_text_is_left_out_too() -> None:
    """A server may put anything there."""
    response = b'{"id":1,"result":{"ttlMs":{"a":[1]},"b":{"ttlMs":3}}}'
    assert orjson.loads(legacy_response(response, "x"))["result"] == {"b": {"ttlMs": 3}}
    assert legacy_response(b'{"id":1,"result":"ttlMs"}', "x") == b'{"id":1,"result":"ttlMs"}'
    assert legacy_response(b'["ttlMs"]', "x") == b'["ttlMs"]'


@pytest.mark.parametrize(
    ("error", "code"), [({"code": -32602, "message": "m", "data": 1}, -32002), ({"code": -32603}, -32603)]
)
def test_missing_resource_has_a_code_of_its_own(error: dict[str, Any], code: int) -> None:
    """Where a resource was read, and nowhere else."""
    found = orjson.loads(legacy_response(message(error=error), "resources/read"))
    assert found["error"] == {**error, "code": code}
    assert orjson.loads(legacy_response(message(error=error), "tools/call"))["error"] == error


def test_word_in_a_result_is_no_error() -> None:
    """The text of a resource may be about errors."""
    response = message(result={"contents": [], "error": 1, "ttlMs": 1})
    assert orjson.loads(legacy_response(response, "resources/read"))["result"] == {"contents": [], "error": 1}
    odd = message(error=[])
    assert legacy_response(odd, "resources/read") == odd


def test_notification_loses_its_subscription() -> None:
    """One without keeps its bytes."""
    meta = {SUBSCRIPTION_KEY: "s", "mine": 1}
    found = orjson.loads(legacy_notification(message(method="m", params={"_meta": meta, "uri": "a"})))
    assert found["params"] == {"_meta": {"mine": 1}, "uri": "a"}
    plain = message(method="m", params={"text": SUBSCRIPTION_KEY})
    assert legacy_notification(plain) == plain


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 3}, {"protocolVersion": "2026-07-28"}])
def test_newest_version_is_agreed_with_who_wants_another_one(params: object) -> None:
    """A version that there is is agreed as it is wanted."""
    assert agreed_version(params) == "2025-11-25"
    assert agreed_version({"protocolVersion": "2024-11-05"}) == "2024-11-05"


def test_initialize_says_what_was_discovered() -> None:
    """In the members of its era; tasks are others there."""
    extensions: dict[str, Any] = {TASKS: {}, "other": {}}
    result = {
        "capabilities": {"tools": {}, "extensions": extensions},
        "instructions": "Be kind.",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}},
    }
    found = orjson.loads(initialize_response(message(result=result), b'"a"', "2025-06-18"))
    assert found["id"] == "a"
    assert found["result"] == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "extensions": {"other": {}}},
        "serverInfo": {"name": "s", "version": "2"},
        "instructions": "Be kind.",
    }


@pytest.mark.parametrize("result", [{}, {"capabilities": [], "instructions": 1, "_meta": {}}, {"_meta": 3}])
def test_server_that_says_nothing_of_itself_has_a_name_all_the_same(result: dict[str, Any]) -> None:
    """A legacy client needs one."""
    found = orjson.loads(initialize_response(message(result=result), b"1", "2025-06-18"))["result"]
    assert found["serverInfo"] == {"name": "unknown", "version": "0"} and found["capabilities"] == {}
    assert "instructions" not in found


@pytest.mark.parametrize("response", [b"[]", b'{"error":{}}', b'{"result":[]}', b"{"])
def test_answer_without_a_result_is_refused(response: bytes) -> None:
    """There is nothing that a session could be opened by."""
    with pytest.raises(BadJson):
        initialize_response(response, b"1", "2025-06-18")
