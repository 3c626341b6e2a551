"""Requests of legacy clients as modern servers read them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.eras.legacy_server import CAPABILITIES_KEY
from adapter.rules.eras.modern_server import (
    INFO_KEY,
    LONGEST_META,
    PREFIX,
    ClientTooLarge,
    client_meta,
    mirrored_name,
    modern_request,
    next_round,
    own_request,
    subscription,
)
from adapter.wire.envelope import Envelope, dump, read_envelope

META = client_meta({"clientInfo": {"name": "c"}, "capabilities": {"roots": {}}})
MEMBERS = dump(META)[1:-1]
_VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.text(max_size=5) | st.sampled_from(
    ["_meta", "name", "arguments", PREFIX + "logLevel", "\\", '"_meta"']
)
_PARAMS = st.dictionaries(_KEYS, _VALUES, max_size=4)


def envelope(message: dict[str, Any]) -> Envelope:
    found = read_envelope(orjson.dumps({"jsonrpc": "2.0", "id": 1, **message}))
    assert isinstance(found, Envelope)
    return found


@given(st.none() | _PARAMS, st.dictionaries(_KEYS, _VALUES, max_size=3), st.booleans())
def test_request_says_who_asks_and_keeps_the_rest(
    params: dict[str, Any] | None, own: dict[str, Any], has_meta: bool
) -> None:
    """Its ``_meta`` gains what the client said of itself, whatever else stands in the request."""
    if params is not None:
        params.pop("_meta", None)
        if has_meta:
            params["_meta"] = own
    message = {"method": "tools/list"} if params is None else {"method": "tools/list", "params": params}
    found = orjson.loads(modern_request(envelope(message), META, MEMBERS))
    expected = dict(params or {})
    expected["_meta"] = {**expected.get("_meta", {}), **META}
    assert found == {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": expected}


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1,"method":"m","params":{},"_meta":{"a":1}}',
        b'{"id":1,"_meta":{"a":1},"method":"m","params":{"b":1}}',
        b'{"id":1,"x":{"params":{"c":1}},"method":"m"}',
        b'{"id":1,"x":{"_meta":{}},"params":{"y":{"_meta":{}}},"method":"m"}',
        b'{"id":1,"x":[{}],"params":{"_meta":{}},"method":"m"}',
        b'{"id":1,"method":"params","params" : {"_meta" : {"a":"}{"}}}',
        b' {"id":1,"method":"_meta","params":{"z":"{","_meta":{"a":1}}}',
        b'{"id":1,"method":"m","params":{"_meta":3}}',
    ],
)
def test_member_of_that_name_elsewhere_is_another_one(body: bytes) -> None:
    """Whatever stands around the params, and in which order, theirs alone are changed."""
    request = read_envelope(b'{"jsonrpc":"2.0",' + body.lstrip()[1:])
    assert isinstance(request, Envelope)
    before, after = orjson.loads(request.body), orjson.loads(modern_request(request, META, MEMBERS))
    meta = after["params"].pop("_meta")
    known = before.setdefault("params", {}).pop("_meta", {})
    assert after == before and meta == (known if known == 3 else {**known, **META})


@pytest.mark.parametrize("params", [[1], []])
def test_params_that_are_no_object_stay(params: list[int]) -> None:
    """The server says what is wrong with them."""
    request = envelope({"method": "tools/list", "params": params})
    assert modern_request(request, META, MEMBERS) == request.body


@given(_PARAMS, st.none() | st.dictionaries(st.text(max_size=5), _VALUES, max_size=3), st.none() | _VALUES)
def test_next_round_has_answers_and_state(
    params: dict[str, Any], given: dict[str, Any] | None, state: object
) -> None:
    """And another id; all else is as it was in the first."""
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    responses = None if given is None else {key: dump(value) for key, value in given.items()}
    found = orjson.loads(next_round(body, b'"r"', responses, None if state is None else dump(state)))
    expected = dict(params)
    if given is not None:
        expected["inputResponses"] = given
    if state is not None:
        expected["requestState"] = state
    assert found == {"jsonrpc": "2.0", "id": "r", "method": "tools/call", "params": expected}


@pytest.mark.parametrize("params", [None, [], {"capabilities": 3, "clientInfo": "c"}, {}])
def test_client_that_says_nothing_of_itself_can_do_nothing(params: object) -> None:
    """What is not of the right kind counts as not said."""
    assert client_meta(params) == {PREFIX + "protocolVersion": "2026-07-28", CAPABILITIES_KEY: {}}


def test_client_is_known_by_what_it_said() -> None:
    """But for what means something else in the other era; too much is refused."""
    info = {"name": "c", "version": "1"}
    meta = client_meta({"clientInfo": info, "capabilities": {"tasks": {}, "sampling": {}}})
    assert (meta[INFO_KEY], meta[CAPABILITIES_KEY]) == (info, {"sampling": {}})
    with pytest.raises(ClientTooLarge, match=str(LONGEST_META)):
        client_meta({"clientInfo": {"name": "x" * LONGEST_META}})


def test_own_requests_are_whole() -> None:
    """What the adapter asks for a client has the client's ``_meta`` as well."""
    found = orjson.loads(own_request(b"7", "subscriptions/listen", MEMBERS, subscription(["a:b"])))
    assert found["id"] == 7 and found["params"]["_meta"] == META
    assert found["params"]["notifications"]["resourceSubscriptions"] == ["a:b"]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ({"method": "tools/call", "params": {"name": "t"}}, "t"),
        ({"method": "resources/read", "params": {"uri": "a:ä"}}, "=?base64?YTrDpA==?="),
        ({"method": "prompts/get", "params": {}}, None),
        ({"method": "completion/complete", "params": {"name": "t"}}, None),
    ],
)
def test_name_is_mirrored_where_the_era_says_so(message: dict[str, Any], name: str | None) -> None:
    """Of three methods, in a spelling that a header has room for."""
    assert mirrored_name(envelope(message)) == name
