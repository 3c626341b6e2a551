"""The parts of a response with a list, found piece by piece: as json has them, whatever is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.wire.envelope import answers
from adapter.wire.outline import DEEPEST, STEP, Outline, TooManyItems, member, outline, responds
from adapter.wire.piecewise import Apart, Piecewise, at_once, one_piece
from tests.wire.pieces import timed
from tests.wire.test_spans import documents

MOST = 100_000
MIB = 1 << 20


def found(doc: bytes, most: int = MOST) -> Outline:
    made = at_once(outline(doc, "tools", most))
    assert made is not None
    return made


@given(st.lists(documents, max_size=4), documents, documents)
def test_parts_are_those_that_json_has(items: list[bytes], other: bytes, behind: bytes) -> None:
    """The items with their bytes, the members, and a rest that is JSON by itself."""
    doc = b' {"x":%b,"result" : {"x":%b, "tools" :[%b] ,"y":%b} ,"id":"a"}' % (
        other,
        other,
        b" ,".join(items),
        behind,
    )
    made = found(doc)
    assert [json.loads(doc[slice(*span)]) for span in made.spans] == list(map(json.loads, items))
    assert doc[slice(*made.members["id"])] == b'"a"' and "method" not in made.members
    expected = json.loads(doc)
    expected["result"]["tools"] = []
    assert json.loads(made.rest(doc)) == expected


@pytest.mark.parametrize(
    "doc",
    [
        b'{"result":{"tools":[1],"tools":[2,3]}}',
        b'{"result":{"tools":[1]},"result":{"tools":[2,3]}}',
        b'{"result":{"tools":7,"tools":[2,3]}}',
        b'{"result":7,"re\\u0073ult":{"too\\u006cs":[2,3]}}',
    ],
)
def test_of_members_that_stand_twice_the_last_counts(doc: bytes) -> None:
    """As it does for who parses the whole, in any spelling."""
    assert [doc[slice(*span)] for span in found(doc).spans] == [b"2", b"3"]


@pytest.mark.parametrize(
    "doc",
    [
        b'{"result":{"tools":[1],"tools":{}}}',
        b'{"result":{"tools":[1]},"result":7}',
        b'{"result":[{"tools":[1]}]}',
        b'{"tools":[1]}',
        b"{}",
    ],
)
def test_what_has_no_such_list_is_all_rest(doc: bytes) -> None:
    """Its outline has its members all the same."""
    made = found(doc)
    assert made.list_at is None and not made.spans and made.rest(doc) is doc


@pytest.mark.parametrize("doc", [b"", b" ", b"[]", b"7", b'"{}"', b"nonsense"])
def test_what_is_no_object_has_no_outline(doc: bytes) -> None:
    """Whatever else it is."""
    assert at_once(outline(doc, "tools", MOST)) is None


@pytest.mark.parametrize(
    "doc",
    [
        b"{",
        b'{"result"',
        b'{"result":',
        b'{"result":{',
        b'{"result":{"tools":[',
        b'{"result":{"tools":[1',
        b'{"result":{"tools":[1 2]}}',
        b'{"result":{"tools":[{"a":"b}]}}',
        b'{"result":{"tools":["\\"]}}',
        b'{"result":{"tools":["a\\',
        b'{"a" 1}',
        b'{"a":}',
        b"{1:1}",
        b'{"\xff":1}',
    ],
)
def test_what_ends_too_early_is_no_json(doc: bytes) -> None:
    """Nothing is looked for behind the end."""
    with pytest.raises(BadJson):
        found(doc)


def test_a_list_of_too_many_is_not_read_to_its_end() -> None:
    """Whoever sends it gets no farther than that."""
    assert len(found(b'{"result":{"tools":[1,2,3]}}', most=3).spans) == 3
    with pytest.raises(TooManyItems):
        found(b'{"result":{"tools":[1,2,3,4', most=3)


def hostile() -> Iterator[tuple[str, bytes]]:
    yield "brackets", b"[" * DEEPEST + b"]" * DEEPEST
    yield "objects", b'{"a":' * DEEPEST + b"1" + b"}" * DEEPEST
    yield "small ones", b"[" + b"[]," * MIB + b"1]"
    yield "quotes", b'"' + b'\\"' * MIB + b'"'
    yield "backslashes", b'"' + b"\\\\" * MIB + b'"'
    yield "spaces", b" " * MIB + b"1" + b"\n" * MIB
    yield "digits", b"1" * 4 * MIB
    yield "strings", b"[" + b'"a",' * MIB + b"1]"
    yield "numbers", b"[" + b"1," * MIB + b"1]"
    yield "members", b"{" + b'"a":1,' * MIB + b'"b":1}'
    yield "text", b'"' + b"a" * 4 * MIB + b'"'
    yield "edges", b"[" + b",".join(b'"' + b"x" * (STEP - size) + b'\\""' for size in range(9)) + b"]"


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in hostile()])
def test_no_piece_of_a_hostile_list_is_long(value: bytes) -> None:
    """Whether it stands in the list, beside it, or behind."""
    doc = b'{"x":%b,"result":{"tools":[%b,7],"x":%b}}' % (value, value, value)
    made = timed(outline(doc, "tools", 2 * MIB))
    assert made is not None and len(made.spans) == 2
    assert doc[slice(*made.spans[0])].strip() == value.strip() and doc[slice(*made.spans[1])] == b"7"


def test_what_is_nested_beyond_all_measure_is_not_followed() -> None:
    """It would take as long as it is deep."""
    deep = b"[" * (DEEPEST + 10) + b"]" * (DEEPEST + 10)
    with pytest.raises(BadJson):
        found(b'{"result":{"tools":[%b]}}' % deep)


@pytest.mark.parametrize(
    ("doc", "request_id"),
    [
        (b'{"id":1,"result":{}}', 1),
        (b'{"id":1.0,"result":{}}', 1),
        (b'{"id":"a","error":{}}', "a"),
        (b'{"error":{}}', 1),
        (b'{"id":null,"error":{}}', 1),
        (b'{"id":null,"result":{}}', 1),
        (b'{"result":{}}', 1),
        (b'{"id":true,"result":{}}', 1),
        (b'{"id":2,"id":1,"result":{}}', 1),
        (b'{"id":1,"id":2,"result":{}}', 1),
        (b'{"id":1,"method":"x","result":{}}', 1),
        (b'{"id":1}', 1),
        (b'{"i\\u0064":1,"r\\u0065sult":{}}', 1),
        (b'[{"id":1,"result":{}}]', 1),
        (b'{"id":1,"result":', 1),
        (b"", 1),
        (b'{"id":123456789012345678901,"result":{}}', 123456789012345678901),
        (b'{"id":123456789012345678901,"result":{}}', 123456789012345678902),
    ],
)
def test_a_response_is_told_as_by_who_parses_it(doc: bytes, request_id: str | float) -> None:
    """Its id, and that it is one, stand beside what is large."""
    assert at_once(responds(doc, request_id)) is answers(doc, request_id)


def test_what_nobody_can_tell_is_for_others_to_refuse() -> None:
    """What is nested beyond all measure may be a response; an id of a megabyte is nobody's."""
    deep = b"[" * (DEEPEST + 10) + b"]" * (DEEPEST + 10)
    assert at_once(responds(b'{"id":1,"result":%b}' % deep, 1))
    assert not at_once(responds(b'{"id":"%b","result":1}' % (b"a" * MIB), "a" * MIB))


@given(documents)
def test_members_of_any_object_are_found(value: bytes) -> None:
    """By their key, and of two the last; a key of any length may stand beside them."""
    doc = b'{"name":7,"%b":1,"name":%b}' % (b"k" * 1000, value)
    span = at_once(member(doc, "name"))
    assert span is not None and json.loads(doc[slice(*span)]) == json.loads(value)
    assert at_once(member(doc, "nam")) is None and at_once(member(b"[1]", "name")) is None


def test_an_object_that_does_not_end_has_no_members() -> None:
    """It is no JSON."""
    with pytest.raises(BadJson):
        at_once(member(b'{"name":7', "name"))


def test_work_is_done_apart_where_it_is_long() -> None:
    """What it returns, and what it raises, comes back to who asked for it."""

    def fails() -> int:
        raise BadJson

    def work() -> Piecewise[Any]:
        done = [(yield from one_piece(lambda: 1, 1)), (yield from one_piece(lambda: 2, MIB))]
        try:
            yield Apart(fails)
        except BadJson:
            done.append(3)
        return done

    assert at_once(work()) == [1, 2, 3]

    def failing() -> Piecewise[Any]:
        return (yield Apart(fails))

    with pytest.raises(BadJson):
        at_once(failing())
