"""Arguments by their dotted paths: every value is found where it stands, and only that is edited."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import HeaderMismatch
from adapter.rules.calls.arguments import (
    DEEPEST,
    Headers,
    annotated,
    check_parameters,
    headers_of,
    replaced,
    slot,
    values,
)
from adapter.wire.envelope import value_at
from adapter.wire.eras import encode_mirror
from tests.cpu_time import at_most


def call(arguments: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":%s}}' % (
        arguments.encode("utf-8", "surrogatepass")
    )


def found(arguments: str, path: str) -> list[tuple[tuple[str | int, ...], str | bytes]]:
    return [(tuple(where)[2:], value) for where, value, *_ in values(call(arguments), path)]


@pytest.mark.parametrize(
    ("arguments", "path", "expected"),
    [
        ('{"path":"a"}', "path", [(("path",), "a")]),
        ('{"paths":["a","b"]}', "paths", [(("paths", 0), "a"), (("paths", 1), "b")]),
        ('{"paths":["a"]}', "paths[]", [(("paths", 0), "a")]),
        ('{"paths":"a"}', "paths[]", [(("paths",), "a")]),
        (
            '{"files":[{"path":"a"},{"path":["b","c"]},{"x":1},7]}',
            "files[].path",
            [(("files", 0, "path"), "a"), (("files", 1, "path", 0), "b"), (("files", 1, "path", 1), "c")],
        ),
        ('{"files":[{"path":"a"}]}', "files.path", [(("files", 0, "path"), "a")]),
        ('{"files":{"path":"a"}}', "files[].path", [(("files", "path"), "a")]),
        ('{"grid":[["a"],["b"]]}', "grid[][]", [(("grid", 0, 0), "a"), (("grid", 1, 0), "b")]),
        ('{"paths":[["a"]]}', "paths", [(("paths", 0), b'["a"]')]),
        ('{"path":{"no":1.0}}', "path", [(("path",), b'{"no":1.0}')]),
        ('{"path":1e999}', "path", [(("path",), b"1e999")]),
        ('{"path":null,"x":1}', "path", []),
        ('{"paths":[null,"a"]}', "paths", [(("paths", 1), "a")]),
        ('{"paths":[]}', "paths", []),
        ('{"other":"a"}', "path", []),
        ('{"files":"a"}', "files[].path", []),
        ("null", "path", []),
        ("[]", "path", []),
        ('{"path":"a","path":"b"}', "path", [(("path",), "b")]),
        ('{"n\\u00e4me":"\\ud800 \\/"}', "näme", [(("näme",), "\ud800 /")]),
    ],
)
def test_every_shape_of_an_argument(arguments: str, path: str, expected: list[tuple[Any, Any]]) -> None:
    """Texts, lists, lists of objects; absent and null are none; what is no text is seen as it came."""
    assert found(arguments, path) == expected


def test_a_call_without_arguments_has_none() -> None:
    """Neither params nor arguments need to be there."""
    assert values(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', "path") == []
    assert values(b'{"params":{"name":"t"}}', "path") == []


def test_other_arguments_keep_their_bytes() -> None:
    """The replaced text alone is new: numbers, order and spaces of the rest are what the client wrote."""
    message = call(
        '{ "n" : 1.0, "paths": [ "upload://x" ,"keep"], "big":12345678901234567890123,"s":"\\u0041" }'
    )
    said, _ = values(message, "paths")
    changed = replaced(message, [(said, '/a/名\ud800".txt')])
    assert changed == message.replace(b'"upload://x"', b'"/a/\\u540d\\ud800\\".txt"')


def test_many_items_are_found_in_one_pass() -> None:
    """Tens of thousands of handles, and nesting beyond any parser's depth beside them, are no obstacle."""
    deep = "[" * 50_000 + "]" * 50_000
    files = ",".join(['{"path":"a"}'] * 20_000)
    arguments = '{"deep":' + deep + ',"files":[' + files + "]}"
    places = values(call(arguments), "files[].path")
    assert len(places) == 20_000
    changed = replaced(call(arguments), ((said, "b") for said in places))
    assert changed.count(b'{"path":"b"}') == 20_000
    assert values(call(arguments), "deep")[0][1] == deep[1:-1].encode()


@pytest.mark.parametrize(
    ("arguments", "path", "expected"),
    [
        ('{"a":1}', "filename", '{"a":1,"filename":"/x"}'),
        ('{ "filename" : "shot.png" , "a":1.0}', "filename", '{ "filename" : "/x" , "a":1.0}'),
        ('{"filename":null}', "filename", '{"filename":"/x"}'),
        ("{}", "out.file", '{"out":{"file":"/x"}}'),
        ('{"out":null}', "out.file", '{"out":{"file":"/x"}}'),
        ('{"out":{"k":1}}', "out.file", '{"out":{"k":1,"file":"/x"}}'),
        ("null", "out.file", '{"out":{"file":"/x"}}'),
    ],
)
def test_giving_an_argument(arguments: str, path: str, expected: str) -> None:
    """It is set where it is, added where it is not, with the objects on the way; null counts as absent."""
    message = call(arguments)
    place = slot(message, path)
    assert place is not None
    assert place.filled(message, "/x") == call(expected)


def test_giving_an_argument_to_a_call_without_any() -> None:
    """The arguments are made."""
    message = b'{"params":{"name":"t"}}'
    place = slot(message, "filename")
    assert place is not None
    assert place.filled(message, "/x") == b'{"params":{"name":"t","arguments":{"filename":"/x"}}}'


@pytest.mark.parametrize(
    ("arguments", "path"), [("[]", "f"), ('"f"', "f"), ('{"out":[1]}', "out.f"), ("7", "f")]
)
def test_arguments_of_another_shape_are_left_to_the_tool(arguments: str, path: str) -> None:
    """Nothing is overwritten to make room for a member."""
    assert slot(call(arguments), path) is None


names = st.sampled_from(["a", "b", "ä", '"'])
texts = st.text(st.characters(), max_size=5)
trees = st.recursive(
    texts | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def model(value: Any, path: list[str]) -> list[Any]:
    """What a path means, said over decoded JSON."""
    if not path:
        return [] if value is None else [value]
    if not isinstance(value, dict) or path[0] not in value:
        return []
    inner = value[path[0]]
    return [got for item in (inner if isinstance(inner, list) else [inner]) for got in model(item, path[1:])]


@given(trees, st.lists(names, min_size=1, max_size=3), st.booleans())
def test_values_agree_with_decoded_json(arguments: Any, path: list[str], ascii_only: bool) -> None:
    """What is found in the bytes is what is found in the decoded arguments, and each stands where it is said."""
    text = json.dumps(arguments)
    if not ascii_only and "\\ud" not in text:
        text = json.dumps(arguments, ensure_ascii=False)
    message = call(text)
    places = values(message, ".".join(path))
    assert [v if isinstance(v, str) else json.loads(v) for _, v, *_ in places] == model(arguments, path)
    for where, value, start, end in places:
        assert json.loads(message[start:end]) == (value if isinstance(value, str) else json.loads(value))
        here: Any = json.loads(message)
        for step in where:
            here = here[step]
        assert here == (value if isinstance(value, str) else json.loads(value))


@given(trees, st.lists(names, min_size=1, max_size=3), st.lists(texts, min_size=40, max_size=40))
def test_what_was_replaced_is_found_again(arguments: Any, path: list[str], new: list[str]) -> None:
    """Whatever text replaces a value is read back in its place, as many as there were."""
    message = call(json.dumps(arguments))
    places = values(message, ".".join(path))
    changed = replaced(message, zip(places, new, strict=False))
    assert [said.value for said in values(changed, ".".join(path))] == new[: len(places)]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"f":"here"}',
        '{"g":"f" , "f" : "here" }',
        '{"f":{"f":"no"}}',
        '{"g":{"f":"no"}}',
        '{"g":"f","h":["f"]}',
        r'{"g":"say \"f","f":"here"}',
        r'{"g":"say \"f"}',
        '{"f":7}',
        '{"f":["one","two"]}',
        '{"f":"no","f":"here"}',
        '{"f":null}',
    ],
)
def test_an_argument_is_found_where_a_walk_finds_it(arguments: str) -> None:
    """Whether its name stands in the message once or often, as a key or as a text."""
    message = call(arguments)
    walked = message.replace(b'"t"', rb'"\u0074"')
    short, long = slot(message, "f"), slot(walked, "f")
    assert short is not None and long is not None
    assert short.value == long.value
    assert short.filled(message, "/x").replace(b'"t"', rb'"\u0074"') == long.filled(walked, "/x")


@given(trees, st.lists(names, min_size=1, max_size=3), texts)
def test_a_given_argument_is_found(arguments: Any, path: list[str], text: str) -> None:
    """Where an argument can be given it is the one value of its path afterwards, and what else was there stays."""
    message = call(json.dumps(arguments))
    place = slot(message, ".".join(path))
    if place is not None:
        first = next((said.value for said in values(message, ".".join(path))), None)
        assert place.value == first
        changed = place.filled(message, text)
        assert [said.value for said in values(changed, ".".join(path))] == [text]


# --- which header mirrors which argument, and when the two disagree --------------------------------------------


CITY: Headers = {("city",): "Mcp-Param-City"}


def test_header_of_what_lies_very_deep_is_not_looked_for() -> None:
    """A schema is a server's to write, and each path costs its length."""
    for deep, found in ((DEEPEST, 1), (DEEPEST + 1, 0)):
        schema: dict[str, Any] = {"x-mcp-header": "Deep"}
        for _ in range(deep):
            schema = {"properties": {"a": schema}}
        assert len(list(annotated(schema))) == found


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("Bonn", "Bonn"),
        ("=?base64?S8O2bG4=?=", "Köln"),
        ("", ""),
        ("true", True),
        ("42", 42),
        ("42.0", 42),
        ("9007199254740993", 2**53 + 1),
        ("4.2e1", 42),
        (None, None),
        (None, ["Bonn"]),
        ("whatever", {"name": "Bonn"}),
    ],
)
def test_same_values_pass(said: str | None, value: Any) -> None:
    """Numbers compare as numbers; an argument that is null or absent has no header, and one that is a list any."""
    check_parameters(CITY, {"city": value}, {} if said is None else {"mcp-param-city": said})


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("Bonn", "bonn"),
        ("Bonn", None),
        (None, "Bonn"),
        (None, 0),
        ("True", True),
        ("1", True),
        ("true", "True"),
        ("43", 42),
        ("9007199254740992", 2**53 + 1),
        ("4_2", 42),
        ("nan", 42),
        ("", 42),
        ("=?base64?!?=", "x"),
        ("é", "é"),
        ("Bonn, Bonn", "Bonn"),
    ],
)
def test_others_are_a_mismatch(said: str | None, value: Any) -> None:
    """Also a header without its argument, and an argument without its header. The sentence names the header."""
    with pytest.raises(HeaderMismatch, match="Mcp-Param-City"):
        check_parameters(CITY, {"city": value}, {} if said is None else {"mcp-param-city": said})


def test_arguments_that_are_none_have_no_values() -> None:
    """What is no object on the way leads nowhere."""
    assert value_at([{"city": "Bonn"}], "city") is None
    assert value_at({"form": {"city": "Bonn"}}, "form", "city") == "Bonn"
    check_parameters(CITY, None, {})


@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), st.booleans()))
def test_what_a_client_encodes_is_what_it_means(value: Any) -> None:
    """A header as the specification has it always agrees with its argument."""
    check_parameters(CITY, {"city": value}, {"mcp-param-city": encode_mirror(value)})


# --- which arguments are mirrored by headers -------------------------------------------------------------------


def test_properties_of_properties_have_headers() -> None:
    """At any depth that honest schemas have; not within lists or alternatives, nor by what is no name of a header."""
    schema = {
        "properties": {
            "file": {"x-mcp-header": "File", "properties": {"name": {"x-mcp-header": "Name"}}},
            "form": {"properties": {"file": {"x-mcp-header": "Form"}}},
            "files": {"items": {"properties": {"path": {"x-mcp-header": "Never"}}}},
            "either": {"oneOf": [{"properties": {"a": {"x-mcp-header": "Never"}}}]},
            "odd": {"x-mcp-header": 7},
            "bad": {"x-mcp-header": "no\nname"},
            "line": {"x-mcp-header": "A\r\nB"},
            "none": None,
        }
    }
    found = {("file",): "Mcp-Param-File", ("file", "name"): "Mcp-Param-Name"}
    found |= {("form", "file"): "Mcp-Param-Form"}
    assert dict(annotated(schema)) == found
    assert dict(annotated({"properties": []})) == dict(annotated(None)) == {}
    definition = json.dumps({"name": "x", "inputSchema": schema}).encode()
    assert headers_of(definition, json.loads(definition)) == found


@pytest.mark.parametrize("definition", [b'{"name":"x"}', b'{"name":"x","inputSchema":7,"y":"x-mcp-header"}'])
def test_most_tools_have_none(definition: bytes) -> None:
    """Nor does one whose schema is none."""
    assert headers_of(definition, json.loads(definition)) == {}


def test_the_word_may_be_escaped() -> None:
    """JSON has several spellings of a key."""
    definition = b'{"name":"x","inputSchema":{"properties":{"a":{"x\\u002dmcp-header":"A"}}}}'
    assert headers_of(definition, json.loads(definition)) == {("a",): "Mcp-Param-A"}


def test_a_schema_of_many_levels_takes_no_more_than_its_size() -> None:
    """A path is written out for each argument, so what is nested without measure has no headers."""
    leaf = {"x-mcp-header": "A"}
    schema: dict[str, Any] = {"properties": {f"p{number}": leaf for number in range(20_000)}}
    for _ in range(900):
        schema = {"properties": {"p": schema}}
    with at_most(0.5):
        assert list(annotated(schema)) == []
    within: dict[str, Any] = leaf
    for _ in range(DEEPEST):
        within = {"properties": {"p": within}}
    assert dict(annotated(within)) == {("p",) * DEEPEST: "Mcp-Param-A"}
