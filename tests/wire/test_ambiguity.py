"""Messages that readers of JSON could take for different ones, and readers that do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.wire.ambiguity import MOST_PLACES, doubt_of_answer, leads_elsewhere, may_hold, stands_twice
from adapter.wire.envelope import Envelope, Kind, read_envelope
from adapter.wire.names import MOST_MEMBERS, RESULT, TOOL, VERSION_KEY, Names, likeness, repeats_a_key
from tests.wire.readers import MATCHES, pairs, value

CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}'


def doubt(message: str | bytes) -> str | None:
    envelope = read_envelope(message.encode() if isinstance(message, str) else message)
    assert isinstance(envelope, Envelope)
    return envelope.doubt


# --- what is doubtful -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        CALL,
        CALL.replace('"name"', '"n\\u0061me"'),
        CALL.replace("{}", '{"Name":"b","NAME":"c","name":"d","arguments":{"arguments":1},"ſ":1}'),
        CALL.replace('"name"', '"cursor":"c","extension":{"Name":1},"meta":{},"name"'),
        CALL.replace("tools/call", "vendor/Tools/Call"),
        CALL.replace("tools/call", "vendor/call").replace('{"name":"a","arguments":{}}', '["a",{}]'),
        CALL.replace('"id"', '"result":null,"error":null,"id"'),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        '{"jsonrpc":"2.0","id":"a","result":{"Method":"tools/call","method":"tools/call"}}',
        '{"jsonrpc":"2.0","id":1,"error":null,"result":{}}',
        CALL.replace('"name"', f'"_meta":{{"{VERSION_KEY}":"x","vendor/key":1,"progressToken":1}},"name"'),
    ],
)
def test_what_every_reader_reads_alike_is_clear(message: str) -> None:
    """A server's own members are no second spelling, and what is within arguments or a result is none."""
    assert doubt(message) is None


RESPONSE = '{"jsonrpc":"2.0","id":1,"result":{},%s}'


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (RESPONSE % '"Method":"tools/call","params":{"name":"a"}', '"Method" could be read as another'),
        (RESPONSE % '"METHOD":"tools/call"', "METHOD"),
        (RESPONSE % '"Result":{}', "Result"),
        (RESPONSE % '"method\\u0000":"tools/call"', "NUL"),
        (RESPONSE % '"ID":1', "ID"),
        (RESPONSE % '"error":{},"error":null', "twice"),
        (CALL.replace('"id"', '"method ":"tools/call","id"'), "another member"),
        (CALL.replace('"id"', '"result":{},"id"'), "must not have a result"),
        (CALL.replace('"id"', '"error":{},"id"'), "must not have a result"),
        (CALL.replace('"params"', '"param\\u017f"'), r"param\u017f"),
        (CALL.replace('"id"', '"Id":2,"id"'), "Id"),
        *(
            (CALL.replace('"name"', f'"{key}":"b","name"'), "another member")
            for key in (
                "Name",
                "NAME",
                " name",
                "name\\t",
                "na\u200bme",
                "nam\u00e9",
                "na_me",
                "ｎａｍｅ",
                "\ufeffname",
            )
        ),
        (CALL.replace('"name"', '"name\\u0000x":"b","name"'), "NUL"),
        (CALL.replace('"name"', '"tas\u212a":{},"name"'), r"tas\u212a"),
        (CALL.replace('"name"', '"ARGUMENTS":{},"name"'), "ARGUMENTS"),
        (CALL.replace('"name"', '"Uri":"b","name"'), "Uri"),
        (CALL.replace('"name"', '"\u0131d":1,"ur\u0131":"b","name"'), r"ur\u0131"),
        (CALL.replace('"name"', '"request_id":1,"name"'), "request_id"),
        (CALL.replace('"name"', '"_Meta":{},"name"'), "_Meta"),
        (CALL.replace('"name"', '"_meta":{},"meta":{},"name"'), '"meta"'),
        (CALL.replace('"name"', f'"_meta":{{"{VERSION_KEY.upper()}":"x"}},"name"'), "another member"),
        (CALL.replace('"name"', '"arguments":{},"name"'), "twice"),
        (CALL.replace('"name"', '"task":1,"t\\u0061sk":2,"name"'), "twice"),
        (CALL.replace('{"name":"a","arguments":{}}', '["a",{}]'), "an object"),
        *(
            (CALL.replace("tools/call", method), "another method")
            for method in (
                "Tools/Call",
                " tools/call",
                "tools/call\\n",
                "/tools/call",
                "tools//call",
                "tool\u017f/call",
            )
        ),
        (CALL.replace("tools/call", "tools/call\\ud800"), "another method"),
        (CALL.replace("tools/call", "tools/call\\u0000x"), "NUL"),
        (CALL.replace('"name"', f'"{"x" * 300}":1,"name"'), "too long"),
        (
            CALL.replace('"name"', ",".join(f'"{n}":1' for n in range(MOST_MEMBERS)) + ',"name"'),
            "1000 members",
        ),
    ],
)
def test_what_a_reader_may_read_otherwise_is_doubtful(message: str, told: str) -> None:
    """Whatever kind of message it seems to be; the sentence names what it is, escaped and short."""
    said = doubt(message)
    assert said is not None and told in said and said.isascii() and len(said) < 200


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + CALL.encode(),
        CALL.encode("utf-16"),
        CALL.encode("utf-16-le"),
        CALL.encode("utf-32"),
        CALL.encode("utf-32-be"),
        CALL.encode() + CALL.encode(),
        CALL.encode() + b"\n" + CALL.encode(),
        CALL.encode() + b"\0",
        b"\0" + CALL.encode(),
        b"\x1e" + CALL.encode() + b"\n",
        CALL.encode() + b"//",
        b"/**/" + CALL.encode(),
        CALL.replace("{}", "{},").encode(),
        CALL.replace("{}", "NaN").encode(),
        CALL.replace("{}", "-Infinity").encode(),
        CALL.replace("{}", "+1").encode(),
        CALL.replace("{}", "01").encode(),
        CALL.replace("{}", "0x1").encode(),
        CALL.replace("{}", ".5").encode(),
        CALL.replace('"name"', "name").encode(),
        CALL.replace('"name"', "'name'").encode(),
        CALL.replace('"a"', '"a\nb"').encode(),
        CALL.replace('"a"', '"\\x61"').encode(),
        CALL.replace('"a"', '"\ud800"').encode("utf-8", "surrogatepass"),
        CALL.encode().replace(b'"a"', b'"\xc0\xe1"'),
        b"while(1);" + CALL.encode(),
        CALL.replace(" ", "\u00a0").replace(",", ",\u00a0").encode(),
    ],
)
def test_what_only_lenient_readers_take_for_json_is_none(body: bytes) -> None:
    """Marks, other encodings, several documents, comments, and whatever else JSON does not have."""
    with pytest.raises(BadJson):
        read_envelope(body)


def test_an_object_of_too_many_members_is_not_looked_through() -> None:
    """Where counting settles nothing, one by one would take as long as a sender likes."""
    many = ",".join(['"x":1'] * MOST_MEMBERS)
    with pytest.raises(BadRequest, match="more than 1000 members"):
        read_envelope(CALL.replace('"name"', f'"id":1,{many},"name"').encode())


# --- the way to an argument -----------------------------------------------------------------------------------

PATH = (("params", 0), ("arguments", 0), ("path", 0))
FILES = (("params", 0), ("arguments", 0), ("files", 1), ("path", 0))


def leads(arguments: str, way: Sequence[tuple[str, int]] = PATH) -> bool:
    return leads_elsewhere(CALL.replace("{}", arguments).encode(), way)


ONE_WAY = [
    *('{"path":"a"}', "{}", "null", '{"pathname":"a\\n","Other":1}', '{"p\\u0061th":"a"}'),
    '{"other":{"Path":1,"path":2}}',
]
TWO_WAYS = [
    *('{"path":"a","path":"b"}', '{"path":"a","Path":"b"}', '{" path":"b"}', '{"pa_th":"b"}', '["a"]', '"a"'),
    *('{"path\\t":"b"}', '{"path\x7f":"b"}', '{"path\\u0000x":"b"}', '{"path\u0301":"b"}'),
    '{"' + "x" * 300 + '":1,"Path":1}',
    "{" + '"x":1,' * (MOST_MEMBERS + 1) + '"PATH":1}',
]


def test_a_way_that_readers_go_in_two_directions() -> None:
    """Whatever somebody could take for the name, and what is too much to be looked at; one member of that name, or
    none, leads every reader to the same."""
    assert [arguments for arguments in ONE_WAY if leads(arguments)] == []
    assert [arguments for arguments in TWO_WAYS if not leads(arguments)] == []


def test_a_way_through_lists_has_an_end() -> None:
    """Items are followed one by one, so there are only so many."""
    assert not leads('{"files":[{"path":"a"},{"path":"b"},null,7]}', FILES)
    assert leads('{"files":[{"path":"a"},{"PATH":"b"}]}', FILES)
    assert leads('{"files":[' + "{}," * MOST_PLACES + "{}]}", FILES)


# --- real readers ---------------------------------------------------------------------------------------------

NAMES = ("jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "arguments", "_meta", "task")

names = st.sampled_from(NAMES)
noise = st.sampled_from(
    ["", " ", "\u200b", "\0", "_", "-", "\u0301", "\ufeff", "\t", "\ud800", "\u3164", "\u00a0"]
)


@st.composite
def misspelled(draw: st.DrawFn) -> str:
    """One of the names as some reader would still know it."""
    name = draw(names)
    swaps = str.maketrans(
        draw(st.sampled_from([{}, {"s": "ſ"}, {"k": "\u212a"}, {"i": "ı"}, {"a": "ａ"}, {"e": "é"}]))
    )
    name = draw(st.sampled_from([name, name.upper(), name.title(), name.translate(swaps)]))
    at = draw(st.integers(0, len(name)))
    return name[:at] + draw(noise) + name[at:] + draw(st.sampled_from(["", "", "\0x", " "]))


VALUES = st.sampled_from(["tools/call", "tools/list", "ping", "hidden", "seen", 1, 2, 1.0, None, (), "2.0"])
usual = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.sampled_from([1, "1", 1.5])},
    optional={
        "method": st.sampled_from(["tools/call", "tools/list", "ping"]),
        "result": st.just(()),
        "error": VALUES,
    },
)


@st.composite
def objects(
    draw: st.DrawFn, base: dict[str, Any], odd: st.SearchStrategy[Any]
) -> tuple[tuple[str, Any], ...]:
    extra = draw(st.lists(st.tuples(names | misspelled() | st.text(max_size=3), odd), max_size=2))
    return tuple(draw(st.permutations([*base.items(), *extra])))


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    inner = draw(objects(draw(st.fixed_dictionaries({"name": VALUES}, optional={"uri": VALUES})), VALUES))
    base = draw(usual)
    if draw(st.booleans()):
        base["params"] = inner
    return spelled(draw(objects(base, VALUES | st.just(inner))), draw(st.booleans())).encode(
        "utf-8", "replace"
    )


def spelled(found: Any, escaped: bool) -> str:
    if isinstance(found, tuple):
        return "{" + ",".join(f"{text(key, escaped)}:{spelled(inner, escaped)}" for key, inner in found) + "}"
    return text(found, escaped) if isinstance(found, str) else json.dumps(found)


def text(said: str, escaped: bool) -> str:
    if escaped:
        return '"' + "".join(f"\\u{ord(each):04x}" if ord(each) < 0x10000 else each for each in said) + '"'
    return json.dumps(said)


def readings(body: bytes) -> Iterable[tuple[Any, Any, Any, Any]]:
    """What each reader takes for method, id, params and the name in them."""
    read = pairs(body)
    for match in MATCHES:
        for last in (False, True):
            method, number, params = (
                value(read, name, match, last=last) for name in ("method", "id", "params")
            )
            yield method, number, params, value(params, "name", match, last=last)


@settings(max_examples=2 * settings().max_examples)
@given(messages())
def test_readers_agree_about_what_is_clear(body: bytes) -> None:
    """Method, id, params and name are the same for every reader, whichever key it takes and of several whichever."""
    try:
        envelope = read_envelope(body)
    except AdapterError:
        assume(False)
        raise
    assert isinstance(envelope, Envelope)
    if envelope.doubt is not None:
        return
    expected = json.loads(body)
    for method, number, params, name in readings(body):
        assert (method or "") == envelope.method
        assert number == envelope.id and type(number) is type(expected.get("id"))
        if envelope.kind is not Kind.RESPONSE:
            assert json.loads(spelled(params, False)) == expected.get("params")
            if isinstance(params, tuple):
                assert json.loads(spelled(name, False)) == expected["params"].get("name")


@settings(max_examples=2 * settings().max_examples)
@given(
    st.lists(
        st.sampled_from(["tools", "/", "call", "TOOLS", "Call", "ſ", " ", "\0", "\u200b", "x", "ａ"]),
        max_size=6,
    )
)
def test_readers_agree_about_methods(parts: list[str]) -> None:
    """Where a method is clear nobody takes it for a call of a tool that it is not."""
    method = "".join(parts)
    if doubt(CALL.replace('"tools/call"', json.dumps(method))) is None and method != "tools/call":
        assert all(match(method).strip("/") != match("tools/call") for match in MATCHES)


@given(misspelled(), names)
def test_what_any_reader_takes_for_one_is_alike(key: str, name: str) -> None:
    """Likeness is no finer than any reader's rule, but for what follows a NUL."""
    for match in MATCHES:
        if match(key) == match(name):
            assert likeness(key) == likeness(name) or "\0" in key


# --- responses ------------------------------------------------------------------------------------------------


LISTS = [
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"a","Vendor":1,"vendor":2}}', True),
    ('{"jsonrpc":"2.0","id":1,"result":[]}', True),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}', True),
    ('{"jsonrpc":"2.0","id":1,"error":null,"result":{"tools":[]}}', True),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"Result":{}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"result":{}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[]},"error":{}}', False),
    ('{"jsonrpc":"2.0","id":1,"ID":2,"result":{"tools":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[],"Tools":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tool\u017f":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"tools":[],"next_cursor":"a"}}', False),
]
"""Of a list's result only what is read counts; other members may be as they like."""

USUAL = [
    ('{"jsonrpc":"2.0","id":1,"result":{"content":[{"a":1}],"isError":false,"_meta":{"A":1,"a":2}}}', True),
    ('{"jsonrpc":"2.0", "id":1, "result":{"content":[], "structuredContent":{}}}', True),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":[],"content":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":[]},"result":{"content":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":[],"Content":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":[],"c\\u006fntent":[]}}', False),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":["\\ud800"]}}', True),
    ('{"jsonrpc":"2.0","id":1,"result":{"content":%s}}' % ("[" * 300 + "]" * 300), True),
    ('{"jsonrpc":"2.0","id":1,"result":[]}', True),
]
"""They have one reading as long as they have each member once, however they are spelled."""


@pytest.mark.parametrize(
    ("names", "response", "clear"), [*((RESULT, *each) for each in LISTS), *((None, *each) for each in USUAL)]
)
def test_answers_that_a_client_could_read_otherwise(names: Names | None, response: str, clear: bool) -> None:
    """Those with a list, and all others."""
    assert (doubt_of_answer(response.encode(), names) is None) is clear


def test_no_two_members_of_a_reshaped_result_are_alike() -> None:
    """Whatever they are called: nobody knows which of them a client reads."""
    response = '{"jsonrpc":"2.0","id":1,"result":{"Vendor":1,"vendor":2}}'
    assert doubt_of_answer(response.encode(), RESULT) is None
    assert doubt_of_answer(response.encode()) is not None
    many = ",".join(f'"{number}":1' for number in range(MOST_MEMBERS + 1))
    assert doubt_of_answer(f'{{"result":{{{many}}}}}'.encode()) is not None
    assert doubt_of_answer(f"{{{many}}}".encode()) is not None


def test_tools_have_names_to_be_read() -> None:
    """A second spelling in a definition is found as in a message."""
    assert TOOL.second_spelling({"name": 1, "Description": 2}) is not None
    assert TOOL.second_spelling({"name": 1, "vendor": 2}) is None
    assert stands_twice(b'{"name":1,"n\\u0061me":2}', TOOL)
    assert not stands_twice(b' {"name":1,"x":1,"x":2}', TOOL)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"id": 1, "Result": {"TOOLS": []}}, True),
        ([{"method": "a"}, {"result": {"tools": []}}], True),
        (dict.fromkeys(map(str, range(MOST_MEMBERS + 1))), True),
        ({"result": {"Result": {}}}, False),
        ({"result": {}, "tools": []}, False),
        ({"result": [{"tools": []}]}, False),
        ({"error": {}}, False),
        ("text", False),
        ([], False),
    ],
)
def test_what_a_client_could_take_for_a_list(message: object, expected: bool) -> None:
    """Names in any spelling, one within the other, alone or in one of several messages."""
    assert may_hold(message, "result", "tools") is expected


# --- any JSON -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (b'{"a":1,"b":{"a":1}}', False),
        (b'{"a":[{"b":1,"\\u0062":2}]}', True),
        (b'{"a":1,"A":2}', False),
        (b'{"a":"a","b":["a","a"]}', False),
        (b'{"a":"x","b":{"c":"x","c":"x"}}', True),
        (b'{"a":1,"b":{"c":[{}]},"b":{"c":[{}]}}', True),
        (b'{"a":"\\"","b":"\\""}', False),
        (b'[{"a":%b,"b":1e999}]' % (b"1" * 5000), False),
        (b'"\\ud800"', False),
        (b'{ "a": 1, "b": ["a", 2] }', False),
        (b'{ "a": 1, "a": 2 }', True),
        (b"[" * 300 + b'{"a":1,"b":2}' + b"]" * 300, False),
        (b"[" * 300 + b'{"a":1,"a":2}' + b"]" * 300, True),
    ],
)
def test_a_key_is_found_twice_wherever_it_is(doc: bytes, found: bool) -> None:
    """Escaped spellings are the same key; no number is too large to be passed over."""
    assert repeats_a_key(doc) is found


def test_what_is_too_deep_counts_as_repeated() -> None:
    """Nobody says that nothing repeats where nobody could look."""
    assert repeats_a_key(b"[" * 100_000 + b"]" * 100_000)
