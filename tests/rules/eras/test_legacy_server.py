"""Modern requests as legacy servers read them: only what is modern goes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.eras.legacy_server import LEVELS, MODERN_META, legacy_fields, legacy_request, severity

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_META = st.dictionaries(st.sampled_from(sorted(MODERN_META)) | st.text(), _VALUES, max_size=6)


@given(st.dictionaries(st.text(), _VALUES, max_size=4), _META | st.none(), st.booleans())
def test_foreign_members_stay(params: dict[str, Any], meta: dict[str, Any] | None, answers: bool) -> None:
    """Whatever else a request says, the server reads the same."""
    params = dict(params)
    for name in ("_meta", "inputResponses", "requestState"):
        params.pop(name, None)
    if meta is not None:
        params["_meta"] = meta
    if answers:
        params |= {"inputResponses": {"a": {}}, "requestState": "s"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}
    found = orjson.loads(legacy_request(orjson.dumps(message), params))
    kept = {key: value for key, value in (meta or {}).items() if key not in MODERN_META}
    assert found["params"].get("_meta", {}) == kept
    del message["params"], params
    rest = {key: value for key, value in found.pop("params").items() if key != "_meta"}
    assert found == message and not {"inputResponses", "requestState"} & set(rest)


@pytest.mark.parametrize(
    "meta",
    [
        b'"_meta":{"KEY":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}}},"progressToken":7}',
        b'"_meta": {"KEY": {"a": {"b": {"c": {"d": [{}]}}}}, "progressToken": 7}',
        b'"_meta"\n:\t{"KEY":"}\\"{","progressToken":7}',
        b'"arguments":{"_meta":{"KEY":"{"}},"_meta":{"KEY":["}",{"a":"{"}],"progressToken":7}',
        b'"_meta":{"progressToken":7,"KEY":"}{"},"arguments":{"_meta":1}',
        b'"\\u005fmeta":{"progressToken":7,"KEY":1},"x":"_meta"',
    ],
)
def test_meta_is_found_however_it_is_written(meta: bytes) -> None:
    """Short cuts through what is usual find the same as a walk."""
    key = "io.modelcontextprotocol/clientCapabilities"
    body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{%b}}' % meta.replace(b"KEY", key.encode())
    read = orjson.loads(body)
    found = orjson.loads(legacy_request(body, read["params"]))
    read["params"]["_meta"] = {"progressToken": 7}
    assert found == read


def test_bytes_that_need_no_change_stay() -> None:
    """A request without anything modern is passed on as it came."""
    body = b'{ "jsonrpc":"2.0","id":1e0,"method":"x","params":{"a":1.0} }'
    assert legacy_request(body, {"a": 1.0}) is body


def test_mirrors_and_session_ids_do_not_travel() -> None:
    """What mirrors the message, or names a session that is none, is left out; the rest stays in its order."""
    fields = [
        ("mcp-Param-City", "x"),
        ("A", "1"),
        ("Mcp-Method", "x"),
        ("MCP-SESSION-ID", "x"),
        ("Mcp-Name", "x"),
    ]
    assert legacy_fields([*fields, ("B", "2")]) == [("A", "1"), ("B", "2")]


@pytest.mark.parametrize("level", [None, 3, "loud", ["debug"]])
def test_what_is_no_level_has_no_severity(level: object) -> None:
    """Anything may stand there."""
    assert severity(level) is None
    assert [severity(each) for each in LEVELS] == list(range(8))
