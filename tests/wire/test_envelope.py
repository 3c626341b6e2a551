"""Envelopes: what is read of a message, and which messages are refused."""

from __future__ import annotations

import contextlib
import gc
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.errors import BadJson, BadRequest
from adapter.wire.envelope import (
    KEPT_META,
    SHORT,
    Batch,
    Envelope,
    Kind,
    MetaVersion,
    answers,
    dump,
    parse,
    read_envelope,
)
from adapter.wire.names import VERSION_KEY
from adapter.wire.spans import find


def read(body: bytes) -> Envelope:
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    return envelope


def call(params: bytes = b"{}", id: bytes = b"1") -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id + b',"method":"tools/call","params":' + params + b"}"


def test_request() -> None:
    """A call's method, id, tool and version are read, and its bytes are kept."""
    body = call(b'{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}')
    assert read(body) == Envelope(
        Kind.REQUEST, "tools/call", 1, "echo", MetaVersion("2026-07-28", True), body
    )


def test_notification_and_responses() -> None:
    """A message without an id is a notification; a response has no method and may have failed."""
    assert read(b'{"jsonrpc":"2.0","method":"n"}').kind is Kind.NOTIFICATION
    assert read(b'{"jsonrpc":"2.0","method":"n","params":[1]}').name is None
    done = read(b'{"jsonrpc":"2.0","id":"a","result":{}}')
    assert (done.kind, done.method, done.id, done.failed) == (Kind.RESPONSE, "", "a", False)
    assert read(b'{"jsonrpc":"2.0","id":null,"error":{}}').failed


def test_batch_members_keep_their_own_bytes() -> None:
    """Each member of a batch knows which bytes of the body are its own."""
    body = b'[ {"jsonrpc":"2.0", "method":"a"} ,\n{"jsonrpc":"2.0","id":1.0,"method":"b"}]'
    batch = read_envelope(body)
    assert isinstance(batch, Batch)
    assert [member.method for member in batch.members] == ["a", "b"]
    assert batch.members[0].body == b'{"jsonrpc":"2.0", "method":"a"}'
    assert batch.members[1].id_bytes == b"1.0"


def test_a_batch_may_have_a_limit() -> None:
    """One more is refused before any of them is looked at."""
    assert isinstance(read_envelope(b'[{"jsonrpc":"2.0","method":"a"}]', 1), Batch)
    with pytest.raises(BadRequest, match="2 messages, and at most 1 are allowed"):
        read_envelope(b"[{},{}]", 1)


@pytest.mark.parametrize("collecting", [True, False])
def test_a_large_text_is_read_without_a_look_for_garbage(collecting: bool) -> None:
    """Whether there is one afterwards is as it was before."""
    text = b"[" + b'"a",' * 100_000 + b"0]"
    if not collecting:
        gc.disable()
    try:
        assert len(parse(text)) == 100_001
        assert gc.isenabled() is collecting
        with pytest.raises(BadJson):
            parse(text + b"]")
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


LONG = b'"' + b"QUJD" * 100_000 + b'"'


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
@example(10**30)
@example([-(2**63), -(2**63) - 1, 2**64 - 1, {"a": 2**64}])
@example([-0.0, 1e400, "\ud800", "\x7f"])
def test_long_strings_change_nothing_of_what_is_read(value: object) -> None:
    """Another parser reads them; what stands beside them has the value that it has alone."""
    text = json.dumps(value).encode()
    for each in (text, b"[" * 300 + text + b"]" * 300, text + b",", b"\xff" + text, b'"\n"', b"01"):
        assert read_or_refused(b"[" + LONG + b"," + each + b"]") == read_or_refused(b"[" + each + b"]")


def read_or_refused(text: bytes) -> object:
    """What stands last in a list, as it is told apart by its type and its sign; BadJson is None."""
    try:
        return repr(parse(text)[-1])
    except BadJson:
        return None


def test_many_values_are_no_long_strings() -> None:
    """However few quotes a text has: what is made of it would be searched for garbage again and again."""
    searched: list[str] = []

    def note(phase: str, _: object) -> None:
        searched.append(phase)

    gc.callbacks.append(note)
    try:
        parse(b"[" + b"[]," * 100_000 + LONG + b"]")
        assert len(searched) <= 2  # one may come when it is looked for again
    finally:
        gc.callbacks.remove(note)


@pytest.mark.parametrize("value", [{"a": 1}, "\ud800", ["\udfff", None]])
def test_any_text_is_written(value: object) -> None:
    """Also halves of characters, which only ASCII can spell."""
    assert json.loads(dump(value)) == value


@pytest.mark.parametrize("spelled", [b"1.0", b"-0", b"1e2", b"9007199254740993", b'"\\u0061"', b"9" * 30])
def test_id_keeps_its_spelling(spelled: bytes) -> None:
    """The id's bytes are those of the body and its value is exact."""
    envelope = read(call(id=spelled))
    assert envelope.id_bytes == spelled
    assert envelope.id == json.loads(spelled)


@pytest.mark.parametrize("kind", [b"9%s", b'"%s"', b"0.%s", b"1%se9", b'"\\u0061%s"'])
def test_id_has_an_end(kind: bytes) -> None:
    """It stands in every answer, so nobody may have one of megabytes."""
    with pytest.raises(BadRequest, match="at most 1024"):
        read(call(id=kind % (b"1" * 1030)))
    assert read(call(id=kind % (b"1" * 1000))).id_bytes == kind % (b"1" * 1000)


def test_id_that_is_absent_is_null() -> None:
    """A message without an id has null for its bytes."""
    assert read(b'{"jsonrpc":"2.0","method":"n"}').id_bytes == b"null"


def test_name_of_a_resource_is_its_uri() -> None:
    """For resources the uri is what the message is about, whatever else is there; elsewhere the name."""
    params = b'{"uri":"file:///a","name":"b"}'
    assert read(call(params)).name == "b"
    assert read(call(params).replace(b"tools/call", b"resources/read")).name == "file:///a"
    assert read(call(b'{"uri":"u","name":5}')).name is None
    assert read(call(b'{"uri":"u","name":5}').replace(b"tools/call", b"completion/complete")).name == "u"


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, (None, False)),
        ({"progressToken": 1}, (None, False)),
        ({VERSION_KEY: "x"}, ("x", True)),
        ({VERSION_KEY: 5}, ("", True)),
        ({VERSION_KEY: None}, (None, True)),
        ({VERSION_KEY + "2": "x"}, (None, True)),
        ("text", (None, False)),
    ],
)
def test_version_of_the_meta(meta: object, expected: tuple[str | None, bool]) -> None:
    """A version that is no string reads as "", and a key that begins like the version's is a modern sign."""
    envelope = read(call(json.dumps({"_meta": meta}).encode()))
    assert envelope.meta == expected


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{}x", b"\xff", b"NaN", b'{"a":Infinity}', b"\xef\xbb\xbf{}", b"'", b"[" * 5000]
)
def test_what_is_no_json_is_bad_json(body: bytes) -> None:
    """Broken JSON, broken UTF-8, numbers JSON does not have and nesting beyond reason are bad JSON."""
    with pytest.raises(BadJson):
        read_envelope(body)


@pytest.mark.parametrize(
    "body",
    [
        *(b"1", b'"x"', b"null", b"{}", b"[]", b"[1]", b"[[]]"),
        b'{"jsonrpc":"1.0","method":"a"}',
        b'{"jsonrpc":2.0,"method":"a"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        b'{"jsonrpc":"2.0","id":null,"method":"a"}',
        b'{"jsonrpc":"2.0","id":true,"method":"a"}',
        b'{"jsonrpc":"2.0","id":[1],"result":1}',
        call(b"null"),
        call(b'"x"'),
    ],
)
def test_what_is_no_message_is_a_bad_request(body: bytes) -> None:
    """JSON that is no JSON-RPC 2.0 message is a bad request."""
    with pytest.raises(BadRequest):
        read_envelope(body)


def test_json_that_orjson_refuses_is_read_all_the_same() -> None:
    """Lone surrogates, numbers without bounds and a number of 5,000 digits are legal JSON."""
    arguments = b'{"a":"\\ud800","b":1e999,"c":' + b"7" * 5000 + b"}"
    assert read(call(b'{"name":"echo","arguments":' + arguments + b"}")).name == "echo"


TWICE = [
    b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"a"}',
    b'{"jsonrpc":"2.0","id":1,"i\\u0064":2,"method":"a"}',
    b'{"jsonrpc":"2.0","method":"a","method":"b"}',
    b'{"jsonrpc":"2.0","method":"a","params":{},"params":{"name":"x"}}',
    call(b'{"name":"a","arguments":{},"name":"b"}'),
    call(b'{"name":"a","arguments":{"name":1},"n\\u0061me":"b"}'),
    call(b'{"uri":"a","uri":"b"}'),
    call(b'{"_meta":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}'),
    call(
        b'{"_meta":{"io.modelcontextprotocol\\/protocolVersion":"x","io.modelcontextprotocol/protocolVersion":"y"}}'
    ),
    call(b'{"name":"a","arguments":{"file":"' + b"A" * 50_000 + b'"},"name":"b"}'),
]


@pytest.mark.parametrize("body", TWICE, ids=range(len(TWICE)))
def test_a_member_that_is_read_must_not_appear_twice(body: bytes) -> None:
    """The upstream might read the other one, in whatever spelling it comes."""
    with pytest.raises(BadRequest, match="appears twice"):
        read_envelope(body)


NAMES = ["jsonrpc", "id", "method", "params", "name", "uri", "_meta", "arguments", VERSION_KEY, "x"]


@st.composite
def spelled_objects(draw: st.DrawFn, value: st.SearchStrategy[bytes]) -> bytes:
    members = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4)):
        at = draw(st.integers(0, len(name) * 4))
        spelling = name if at >= len(name) else f"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"
        if draw(st.integers(0, 4)) == 0:
            spelling = spelling.replace("/", "\\/")
        members.append(b'"%s": %s' % (spelling.encode(), draw(value)))
    return b"{" + b",".join(members) + b"}"


any_params = st.recursive(st.sampled_from([b'"name"', b'"x"', b"1"]), spelled_objects, max_leaves=8)


@given(any_params.filter(lambda params: params.startswith(b"{")))
def test_duplicates_are_found_exactly(params: bytes) -> None:
    """A call is refused if and only if a plain reading of its pairs finds one of the members twice."""
    pairs = json.loads(params, object_pairs_hook=lambda pairs: pairs)
    if read_twice(pairs):
        with pytest.raises(BadRequest, match="appears twice"):
            read_envelope(call(params))
    else:
        assert read(call(params)).kind is Kind.REQUEST


def read_twice(pairs: list[tuple[str, Any]]) -> bool:
    names = [name for name, _ in pairs]
    meta = dict(pairs).get("_meta")
    versions = [name for name, _ in meta if name == VERSION_KEY] if isinstance(meta, list) else []
    return len(versions) > 1 or any(names.count(name) > 1 for name in ("name", "uri", "_meta"))


@given(st.binary() | st.recursive(any_params, spelled_objects))
@example(b"1" * 5000)
@example(b'{"a":' * 3000)
def test_nothing_but_two_errors(body: bytes) -> None:
    """Whatever the bytes are, they are a message, bad JSON or a bad request."""
    with contextlib.suppress(BadJson, BadRequest):
        read_envelope(body)


@pytest.mark.parametrize(
    ("data", "request_id", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', 1, True),
        (b'{"jsonrpc":"2.0","id":1.0,"result":{}}', 1, True),
        (b'{"jsonrpc":"2.0","id":1,"error":{}}', 1, True),
        (b'{"jsonrpc":"2.0","id":1,"r\\u0065sult":{}}', 1, True),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', 1, True),
        (b'{"jsonrpc":"2.0","error":{}}', "a", True),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', 1, False),
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', 1, False),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}', 1, False),
        (b'{"jsonrpc":"2.0","id":2,"result":{}}', 1, False),
        (b'{"jsonrpc":"2.0","id":1180591620717411303425,"result":{}}', 1180591620717411303424, False),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"result":1}}', 1, False),
        (b'{"jsonrpc":"2.0","id":1,"x":{"result":1}}', 1, False),
        (b'{"method":"notifications/progress"}', 1, False),
        (b'["result"]', 1, False),
        (b'"error" and no JSON', 1, False),
    ],
)
def test_which_data_answers_a_request(data: bytes, request_id: str | int, expected: bool) -> None:
    """A response with the request's id answers it, and so does an error that could not name an id."""
    assert answers(data, request_id) is expected


META = b',"_meta":{"%s": "%%s"}' % VERSION_KEY.encode()


@pytest.mark.parametrize("number", [b"7", b"0", b"-0", b"1.50", b'"a\\u0062"', b"null"])
@pytest.mark.parametrize("meta", [b"", META % b"1", META % (b"x" * KEPT_META)], ids=["none", "short", "long"])
def test_a_message_that_was_sent_keeps_its_id_and_what_its_client_says(number: bytes, meta: bytes) -> None:
    """As they were spelled, twice as well as once; what a client says of itself only while it is short."""
    text = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"%s},"id":%s}' % (meta, number)
    text = b" " * SHORT + (text if number != b"null" else text.replace(b',"id":null', b""))
    envelope = read_envelope(text)
    assert isinstance(envelope, Envelope)
    for _ in range(2):
        envelope.shrink()
        assert envelope.id_bytes == number
        kept = find(envelope.body, ("params", "_meta"))
        assert kept is not None
        said = meta.partition(b":")[2]
        assert envelope.body[slice(*kept)] == (said if 0 < len(said) <= KEPT_META else b"{}")
    assert len(envelope.body) < 200


def test_a_batch_that_was_sent_keeps_the_ids_of_its_members() -> None:
    """Nothing else of it is needed where its answer breaks off."""
    members = [
        b'{"jsonrpc":"2.0","method":"ping","id":%s%s}' % (each, b" " * SHORT) for each in (b'"a"', b"2")
    ]
    batch = read_envelope(b"[" + b",".join(members) + b"]")
    assert isinstance(batch, Batch)
    batch.shrink()
    assert (batch.body, [each.id_bytes for each in batch.members]) == (b"", [b'"a"', b"2"])
    assert all(len(each.body) < 50 for each in batch.members)
