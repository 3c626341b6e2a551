"""Messages of servers that write one a line: for whom each is, and what changes when it is renumbered."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.wire.envelope import Envelope, Kind, read_envelope
from adapter.wire.line_messages import (
    LARGE,
    LARGEST,
    MOST_IN_BATCH,
    LineMessage,
    answered,
    as_line,
    messages_of,
    number_of_long_line,
    renumbered,
    token_in,
    with_subscription,
    without_capabilities,
)

KEY = "io.modelcontextprotocol/subscriptionId"
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
IDS = st.integers(-(10**15) + 1, 10**15 - 1) | st.text(max_size=30)


def only(line: bytes) -> LineMessage:
    (message,) = messages_of(line)
    return message


def envelope(body: bytes) -> Envelope:
    read = read_envelope(body)
    assert isinstance(read, Envelope)
    return read


# --- as a line --------------------------------------------------------------------------------------------------


@given(VALUES, st.sampled_from([None, 1, 4, "\t"]), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_text_of_many_lines_becomes_one_with_the_same_value(value: Any, indent: Any, end: bytes) -> None:
    """Only line ends go, and in JSON none of them is inside a string."""
    body = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    body = body.replace(b"\n", end)
    line = as_line(body)
    assert b"\n" not in line and b"\r" not in line
    assert line == body.translate(None, b"\r\n")
    assert json.loads(line) == value


def test_a_line_is_the_same_object() -> None:
    """Nothing is copied where nothing is to be done."""
    body = b'{"a":1}'
    assert as_line(body) is body


# --- reading ----------------------------------------------------------------------------------------------------


def test_a_message_tells_for_whom_it_is() -> None:
    """Responses name a request, progress a token, cancellations a request, updates a resource."""
    assert only(b'{"id":1,"result":{}}')[:4] == (Kind.RESPONSE, b'{"id":1,"result":{}}', "", 1)
    assert only(b'{"id":"a","error":{"code":-32601}}').code == -32601
    asked = only(b'{"id":2,"method":"m","params":{"_meta":{"progressToken":"t"}}}')
    assert (asked.kind, asked.method, asked.number, asked.token) == (Kind.REQUEST, "m", 2, "t")
    progress = only(b'{"method":"notifications/progress","params":{"progressToken":7}}')
    assert (progress.kind, progress.token, progress.about) == (Kind.NOTIFICATION, 7, None)
    assert only(b'{"method":"notifications/cancelled","params":{"requestId":"q"}}').about == "q"
    assert only(b'{"method":"n","params":{"_meta":{"%s":5}}}' % KEY.encode()).about == 5
    assert only(b'{"method":"n","params":{"uri":"file:///a"}}').uri == "file:///a"


@pytest.mark.parametrize(
    "line",
    [
        b"Listening on stdio",
        b"",
        b"[]",
        b"[1]",
        b"1",
        b"{}",
        b'{"id":1}',
        b'{"id":1,"method":2}',
        b'{"a":\xff}',
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    """Text that a program prints by mistake is told from messages."""
    with pytest.raises(BadJson):
        messages_of(line)


def test_odd_members_are_no_ids() -> None:
    """True is no number, and params may be anything."""
    assert only(b'{"id":true,"result":{}}').number is None
    assert only(b'{"method":"notifications/progress","params":[1]}').token is None
    assert only(b'{"method":"m","params":{"_meta":1,"uri":2}}').uri is None
    assert only(b'{"id":1,"error":{"code":true}}').code is None
    assert only(b'{"id":1,"error":"no"}').code is None


def test_a_long_integer_is_exact() -> None:
    """Two ids of more than 64 bits do not become one."""
    assert only(b'{"id":36893488147419103233,"result":{}}').number == 36893488147419103233
    assert only(b'{"id":1.5,"result":{}}').number == 1.5


def test_a_batch_has_few_messages() -> None:
    """One of a million would hold up everything else for seconds; it is dropped, unread if it is large."""
    assert len(messages_of(_batch(MOST_IN_BATCH))) == MOST_IN_BATCH
    for line in (_batch(MOST_IN_BATCH + 1), _batch(LARGE), b" " + _batch(LARGE), b"[" * LARGE):
        with pytest.raises(BadJson, match="batch"):
            messages_of(line)


def _batch(count: int) -> bytes:
    return b"[" + b",".join([b'{"method":"a"}'] * count) + b"]"


def test_a_batch_is_its_messages() -> None:
    """Each keeps its own bytes (MCP 2025-03-26)."""
    found = messages_of(b'[ {"id":1,"result":{}} , {"method":"n"}]')
    assert [each.data for each in found] == [b'{"id":1,"result":{}}', b'{"method":"n"}']


# --- large responses --------------------------------------------------------------------------------------------


@given(IDS, VALUES, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_large_response_is_found_as_by_parsing(number: Any, value: Any, first: bool, marks: Any) -> None:
    """Both shapes that serializers write tell the id, whatever stands in the result."""
    result = {"value": value, "fill": "x" * LARGE}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "result": result}
    if first:
        message = {"result": result, "jsonrpc": "2.0", "id": number}
    line = json.dumps(message, separators=marks).encode()
    found = only(line)
    assert (found.kind, found.number) == (Kind.RESPONSE, number)
    assert orjson.loads(answered(found, b'"mine"')) == {**message, "id": "mine"}


@given(st.text(max_size=20), VALUES)
def test_what_looks_like_an_id_inside_is_none(text: str, value: Any) -> None:
    """An id in a string or further in is not taken for that of the message."""
    inner = {"jsonrpc": "2.0", "id": 1, "text": '},"jsonrpc":"2.0","id":2}' + text, "value": value}
    message = {"result": {"inner": inner, "fill": "x" * LARGE}, "id": 3, "jsonrpc": "2.0"}
    assert only(json.dumps(message, separators=(",", ":")).encode()).number == 3


@pytest.mark.parametrize("names", [*itertools.permutations(("jsonrpc", "id", "result"))], ids=str)
def test_a_response_in_any_order_is_found_whatever_its_size(names: tuple[str, ...]) -> None:
    """Its first or its last members tell its id, and a million values between them are not read."""
    parts = {"jsonrpc": '"2.0"', "id": '"a.7"', "result": "{" + f'"values":[{"{}," * 1_000_000}{{}}]' + "}"}
    line = ("{" + ",".join(f'"{name}":{parts[name]}' for name in names) + "}").encode()
    (found,) = messages_of(line)
    assert (found.kind, found.number, found.data) == (Kind.RESPONSE, "a.7", line)


def test_a_message_that_takes_long_to_read_is_dropped() -> None:
    """A notification or a request has at most 100,000 values and 4 MiB: reading it holds up everybody."""
    for params in ('{"a":[' + "{}," * 100_000 + "{}]}", '{"a":"' + "x" * LARGEST + '"}'):
        for head in ('"method":"m"', '"method":"m","id":1', '"id":[1],"result":1'):
            with pytest.raises(BadJson, match="too large"):
                messages_of(f'{{"jsonrpc":"2.0",{head},"params":{params}}}'.encode())


def test_a_large_request_is_parsed() -> None:
    """It is no response, although it is as large as one."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": "x" * LARGE}}).encode()
    assert only(line).kind is Kind.REQUEST


def test_a_large_error_is_parsed() -> None:
    """Its code decides about the status in the modern era."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "data": "x" * LARGE}}).encode()
    assert only(line).code == -1


def test_a_line_that_is_too_long_tells_its_id() -> None:
    """Its first or last bytes are enough; where they are not, nobody is told."""
    line = b'{"jsonrpc":"2.0","id":7,"result":{"x":"' + b"x" * 1000 + b'"}}'
    assert number_of_long_line(line[:256], line[-256:]) == 7
    line = b'{"result":{"x":"' + b"x" * 1000 + b'"},"jsonrpc":"2.0","id":"s"}'
    assert number_of_long_line(line[:256], line[-256:]) == "s"
    assert number_of_long_line(b"x" * 256, b"x" * 256) is None


# --- renumbering ------------------------------------------------------------------------------------------------


def test_a_request_is_renumbered_and_its_answer_is_restored() -> None:
    """All other bytes stay."""
    body = b'{ "id": "a", "jsonrpc":"2.0", "method":"m", "params":{"_meta":{"progressToken": "t"}, "n":1e2}}'
    found = renumbered(envelope(body), b"9")
    assert found.data == body.replace(b'"a"', b"9").replace(b'"t"', b"9")
    assert found.token == b'"t"'
    assert answered(only(b'{"id": 9, "result": {"id":9}}'), b'"a"') == b'{"id": "a", "result": {"id":9}}'


@pytest.mark.parametrize("token", [b"null", b"true", b"{}", b"[1]"])
def test_what_is_no_token_stays(token: bytes) -> None:
    """The server is the one to refuse it."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":%s}}}' % token
    found = renumbered(envelope(body), b"2")
    assert found.token is None and token in found.data


def test_a_request_without_a_token_has_none() -> None:
    """Only the id changes."""
    found = renumbered(envelope(b'{"jsonrpc":"2.0","id":1,"method":"m"}'), b"2")
    assert found == (b'{"jsonrpc":"2.0","id":2,"method":"m"}', None)


@pytest.mark.parametrize("fill", ["", "x" * LARGE])
def test_a_token_is_found_in_short_and_long_requests(fill: str) -> None:
    """Both ways to read it say the same."""

    def request(meta: str) -> bytes:
        return f'{{"id":1,"method":"m","params":{{"fill":"{fill}","_meta":{meta}}}}}'.encode()

    assert token_in(request('{"progressToken":7}')) == 7
    assert token_in(request('{"progress\\u0054oken":"t"}')) == "t"
    assert token_in(request('{"progressToken":true}')) is None
    assert token_in(request('"progressToken"')) is None
    assert token_in(request("{}")) is None


def test_a_subscription_has_the_id_of_its_request() -> None:
    """In notifications, and in the result that ends it (MCP 2026-07-28)."""
    key = KEY.encode()
    told = only(b'{"method":"n","params":{"_meta":{"%s":5}}}' % key)
    assert with_subscription(told, b'"s"') == b'{"method":"n","params":{"_meta":{"%s":"s"}}}' % key
    ended = only(b'{"id":5,"result":{"_meta":{"%s":5}}}' % key)
    assert with_subscription(ended, b'"s"') == b'{"id":5,"result":{"_meta":{"%s":"s"}}}' % key
    plain = only(b'{"id":5,"result":{}}')
    assert with_subscription(plain, b'"s"') is plain.data


def test_an_initialize_without_capabilities() -> None:
    """A client that could be asked something becomes one that cannot."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities": {"roots":{}}, "x":1}}'
    expected = body.replace(b'{"roots":{}}', b"{}")
    assert without_capabilities(envelope(body)) == expected
    bare = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'
    assert without_capabilities(envelope(bare)) is bare
