"""Trace context: which values count, and that a message keeps all bytes but those of its own ``traceparent``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.envelope import LARGEST_EDITED, NO_META, Envelope, read_envelope, with_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FORMER = f"00-{TRACE}-{SPAN}-01"
NEW = f"00-{TRACE}-00000000000000ff-01"


def continued(body: bytes) -> bytes:
    return with_traceparent(body, NEW)


@pytest.mark.parametrize(
    ("body", "former"),
    [
        (b'{"method":"ping","jsonrpc":"2.0","id":1}', NO_META),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":null}}', NO_META),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{}}}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":7}}}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"a"}}}', "a"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"' + b"a" * 513 + b'"}}}',
            None,
        ),
    ],
)
def test_a_message_knows_its_trace(body: bytes, former: object) -> None:
    """The value if it is a short text, and otherwise what stands in its place."""
    message = read_envelope(body)
    assert isinstance(message, Envelope)
    assert message.trace is former or message.trace == former
    assert message.with_body(b"{}").trace is message.trace


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a"}}',
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","_meta":{"traceparent":"%b"}}}',
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{}}',
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"%b"}}}',
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x"}',
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"%b"}}}',
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta" : { "progressToken":1}}}',
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta" : { "progressToken":1,"traceparent":"%b"}}}',
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent" : "old","a":1}}}',
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent" : "%b","a":1}}}',
        ),
    ],
)
def test_the_usual_messages_get_one_value(body: bytes, expected: bytes) -> None:
    """Added where there is none, replaced where there is one; the rest keeps its bytes."""
    assert continued(body) == expected % NEW.encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":7,"a":1}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + b"x" * LARGEST_EDITED + b'"}}',
    ],
)
def test_a_message_that_has_no_room_stays_as_it_is(body: bytes) -> None:
    """Params or ``_meta`` without members, and long messages."""
    assert continued(body) is body


texts = st.sampled_from(
    [
        "traceparent",
        "_meta",
        "params",
        '"params":{"',
        '"_meta":{',
        '"traceparent":"a"',
        "{",
        "[",
        "\\",
        "é",
        FORMER,
    ]
)
values = st.recursive(
    st.one_of(st.none(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
metas: st.SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.none(), st.dictionaries(texts, values, max_size=3), st.just({"traceparent": FORMER, "a": 1})
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Requests in any order of members, with names in them that look like those that are sought."""
    params: dict[str, Any] = draw(
        st.dictionaries(texts.filter(lambda key: key != "_meta"), values, max_size=3)
    )
    meta = draw(metas)
    if meta is not None:
        params["_meta"] = meta
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": draw(st.one_of(st.integers(), texts)),
        "method": draw(texts),
    }
    with_empty = draw(st.booleans())
    if params or with_empty:
        message["params"] = params
    members = draw(st.permutations(list(message.items())))
    spaces: tuple[str, str] = draw(st.sampled_from([(",", ":"), (" , ", " : ")]))
    text = json.dumps(dict(members), separators=spaces, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        text = text.replace('"traceparent"', '"trace\\u0070arent"')
    return text.encode()


@given(messages())
def test_any_message_differs_in_that_one_value(body: bytes) -> None:
    """Read again it is the same message, with the new value at its place."""
    expected = json.loads(body)
    expected.setdefault("params", {}).setdefault("_meta", {})["traceparent"] = NEW
    assert json.loads(continued(body)) == expected
