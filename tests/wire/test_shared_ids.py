"""Ids of several clients in one session: tagged on the way up, told apart on the way down."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.envelope import Envelope, dump, read_envelope
from adapter.wire.shared_ids import (
    EVERYBODY,
    TOKEN,
    Addressed,
    AskedId,
    TaggedId,
    asked_id,
    downward,
    plain_answer,
    request_upward,
    tagged,
    untagged,
)
from adapter.wire.spans import find
from tests.cpu_time import at_most, least_cpu

ADA, BEN = "a" * 16, "b" * 16
EPOCH = "0123abcd"

IDS = st.one_of(st.integers(-(2**53), 2**53), st.text(), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)


def everybody(_: bytes) -> str:
    return EVERYBODY


def request(body: bytes) -> Envelope:
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    return envelope


def down(data: bytes, tag: str = EVERYBODY) -> Addressed | None:
    return downward(data, orjson.loads(data), tag, EPOCH, everybody)


@given(IDS)
def test_id_comes_back_as_it_was_spelled(number: object) -> None:
    """Whatever an id is, its text under a tag leads to the same text and tag."""
    text = dump(number)
    assert untagged(orjson.loads(tagged(ADA, text))) == TaggedId(ADA, text)
    assert asked_id(orjson.loads(tagged(f"{EPOCH}.{ADA}", text))) == AskedId(EPOCH, ADA, text)


@given(st.one_of(VALUES, st.text().map(lambda text: f"{ADA}.{text}")))
def test_what_is_found_under_a_tag_is_an_id_and_nothing_else(value: object) -> None:
    """The text is going to be written into a message, so it is one JSON string or number."""
    found = untagged(value)
    assert found is None or isinstance(orjson.loads(found.id), str | int | float)


@pytest.mark.parametrize("text", ['1,"method":"tools/call"', "{}", "[1]", "true", "null", "", "1}"])
def test_more_than_an_id_is_none(text: str) -> None:
    """Nothing but an id can be put into the place of one."""
    assert untagged(f"{ADA}.{text}") is None and asked_id(f"{EPOCH}.{ADA}.{text}") is None


@given(IDS, VALUES)
def test_request_changes_in_its_ids_only(number: object, argument: object) -> None:
    """On the way up and with the answer on the way down, all but the ids stays."""
    message = {"id": number, "jsonrpc": "2.0", "method": "tools/call", "params": {"arguments": argument}}
    sent = orjson.loads(request_upward(request(dump(message)), ADA))
    assert untagged(sent["id"]) == TaggedId(ADA, dump(number))
    assert sent | {"id": number} == orjson.loads(dump(message))
    answer = dump({"jsonrpc": "2.0", "result": argument, "id": sent["id"]})
    back = down(answer)
    assert back is not None and back.tag == ADA
    assert back.data == dump({"jsonrpc": "2.0", "result": argument, "id": number})
    assert plain_answer(answer, ADA) in (back.data, None)


def test_progress_token_goes_with_the_id() -> None:
    """A token is tagged too, however its key is spelled, and leads to its client."""
    body = rb'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progress\u0054oken":"t"}}}'
    sent = orjson.loads(request_upward(request(body), ADA))
    token = sent["params"]["_meta"]["progressToken"]
    told = dump({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token}})
    found = down(told)
    assert found is not None and found.tag == ADA
    assert orjson.loads(found.data)["params"] == {"progressToken": "t"}


@pytest.mark.parametrize(
    "params",
    [
        b'{"name":"a","_meta":{"progressToken":7}}',
        b'{"_meta": {"x": "progressToken", "progressToken": "t\xc3\xa4 {"}, "arguments": {"progressToken": 1}}',
        b'{"arguments":{"_meta":{"progressToken":1}}}',
        b'{"_meta":{"a":1},"arguments":{"_meta":{"progressToken":1}}}',
        b'{"_meta":{"x":{"progressToken":1},"progressToken":2.50}}',
        b'{"_meta":"x","arguments":{"_meta":{"progressToken":1}}}',
        b'{"_meta":{"a":1},"arguments":["_meta",{"progressToken":1}]}',
    ],
)
def test_token_is_found_where_it_counts(params: bytes) -> None:
    """The short cut through what is usual tags what a walk tags, and nothing else."""
    body = b'{"jsonrpc":"2.0","id":12,"method":"tools/call","params":' + params + b"}"
    message, sent = orjson.loads(body), orjson.loads(request_upward(request(body), ADA))
    meta = message["params"].get("_meta")
    if isinstance(meta, dict) and "progressToken" in meta:
        start, end = find(body, TOKEN) or (0, 0)
        meta["progressToken"] = f"{ADA}.{body[start:end].decode()}"
    assert sent == message | {"id": f"{ADA}.12"}


@pytest.mark.parametrize("token", [b"{}", b"[]", b"true", b"null"])
def test_token_that_is_none_stays(token: bytes) -> None:
    """Only strings and numbers are progress tokens."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":' + token + b"}}}"
    assert b'"progressToken":' + token in request_upward(request(body), ADA)


def test_server_request_names_its_session_and_who_was_asked() -> None:
    """Its id and its token become ones that lead back; the server's own text of the id is told."""
    params = {"_meta": {"progressToken": 3}}
    data = dump({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": params})
    found = down(data, ADA)
    assert found is not None and found.tag == ADA and found.asks == b"7"
    message = orjson.loads(found.data)
    assert asked_id(message["id"]) == AskedId(EPOCH, ADA, b"7")
    assert asked_id(message["params"]["_meta"]["progressToken"]) == AskedId(EPOCH, ADA, b"3")


def test_cancellation_by_the_server_reaches_who_was_asked() -> None:
    """It names the id under which the request was asked."""
    data = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
    found = downward(
        data, orjson.loads(data), EVERYBODY, EPOCH, lambda number: ADA if number == b"7" else "*"
    )
    assert found is not None and found.tag == ADA
    assert asked_id(orjson.loads(found.data)["params"]["requestId"]) == AskedId(EPOCH, ADA, b"7")
    everybodys = down(data)
    assert everybodys is not None and everybodys.tag is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5}}',
    ],
)
def test_stray_answer_is_nobodys_on_everybodys_stream(data: bytes) -> None:
    """An id without a tag may be anybody's; on a client's own stream it is that client's, as it came."""
    assert down(data) is None
    assert down(data, ADA) == Addressed(data, None)


def test_news_are_for_everybody_as_they_came() -> None:
    """What has no addressee is not touched."""
    data = b'{ "jsonrpc":"2.0","method":"notifications/tools/list_changed" }'
    assert down(data) == Addressed(data, None)


# --- answers that are not parsed ------------------------------------------------------------------------------


def test_answer_of_another_is_not_taken() -> None:
    """Only the id of the tag that is asked for counts, and only in the place of an id."""
    answer = b'{"jsonrpc":"2.0","id":' + tagged(ADA, b"1") + b',"result":{}}'
    assert plain_answer(answer, ADA) == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert plain_answer(answer, BEN) is None
    assert plain_answer(b'{"result":' + tagged(ADA, b"1") + b',"id":2}', ADA) is None


def test_answer_that_echoes_its_request_is_read() -> None:
    """With the tag there twice, the place of the id takes reading."""
    number = tagged(ADA, b'"x"')
    answer = b'{"jsonrpc":"2.0","result":{"id":' + number + b'},"id":' + number + b"}"
    assert plain_answer(answer, ADA) is None
    found = down(answer)
    assert found is not None
    assert found.data == b'{"jsonrpc":"2.0","result":{"id":' + number + b'},"id":"x"}'


def test_huge_answer_costs_a_search() -> None:
    """The id of an answer of 32 MiB is found at its end in a moment, whatever its result says."""
    result = b'{"method":1,"text":"' + b"x" * (32 << 20) + b'"}'
    answer = b'{"jsonrpc":"2.0","result":' + result + b',"id":' + tagged(ADA, b"1") + b"}"
    with at_most(0.5):
        back = plain_answer(answer, ADA)
    assert back is not None and back.endswith(b',"id":1}')


@pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\", b'"id":', b'"' + ADA.encode() + b"."])
def test_hostile_answer_costs_a_search(unit: bytes) -> None:
    """Beginnings of ids by the thousand are passed over in linear time."""
    data = b'{"id":"' + ADA.encode() + b"." + unit * (200_000 // len(unit))
    assert plain_answer(data, ADA) is None
    assert least_cpu(lambda: plain_answer(data, ADA)) < 0.05
