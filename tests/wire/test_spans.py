"""Spans and edits of JSON bytes: what they mean agrees with json, what they do not touch keeps its bytes."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.scan import end_of_value, text_pieces
from adapter.wire.spans import Drop, Edit, Insert, Path, Replace, edit, find, items, members

keys = st.sampled_from(["a", "b", "ä", 'q"', "\\", "", "{", "\ud800"])
leaves = st.one_of(
    st.sampled_from([b"null", b"true", b"false", b"-0", b"1.0", b"1e3", b"-1.5E-7", b"9" * 40, b'"\\ud800"']),
    st.text(max_size=6).map(lambda text: json.dumps(text).encode()),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(
        lambda text: json.dumps(text, ensure_ascii=False).encode()
    ),
    st.integers(190, 210).map(lambda size: b'"' + b"]" * size + b'"'),
)
spaces = st.sampled_from([b"", b"", b"", b" ", b"\n\t", b"\r\n  "])


@st.composite
def array(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    parts = draw(st.lists(inner, max_size=4))
    return b"[" + b",".join(draw(spaces) + part + draw(spaces) for part in parts) + draw(spaces) + b"]"


@st.composite
def object_(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    parts = [
        draw(spaces)
        + json.dumps(draw(keys)).encode()
        + draw(spaces)
        + b":"
        + draw(spaces)
        + part
        + draw(spaces)
        for part in draw(st.lists(inner, max_size=4))
    ]
    return b"{" + b",".join(parts) + draw(spaces) + b"}"


documents = st.tuples(
    spaces, st.recursive(leaves, lambda inner: array(inner) | object_(inner), max_leaves=12), spaces
).map(b"".join)


@st.composite
def deep(draw: st.DrawFn) -> list[Any]:
    """A value of many levels, of which some end and others begin on the way."""
    root: list[Any] = []
    way = [root]
    texts = st.sampled_from(["", "]", "[{", "\\", '"', "x", "]" * 201, "\n" * 60, "\\]" * 30])
    for step in draw(st.lists(st.integers(-12, 12), max_size=12)):
        del way[max(1, len(way) + min(step, 0)) :]
        for _ in range(step):
            inner: list[Any] = []
            beside = draw(st.lists(texts | st.integers(0, 9), max_size=1))
            way[-1] += [*beside, {draw(texts): inner} if draw(st.booleans()) else inner]
            way.append(inner)
    return root


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    if isinstance(value, dict):
        children: list[tuple[str | int, Any]] = list(value.items())
    else:
        children = list(enumerate(value)) if isinstance(value, list) else []
    for step, child in children:
        found += paths_of(child, (*path, step))
    return found


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


@given(documents)
def test_spans_agree_with_json(doc: bytes) -> None:
    """Every value that json finds is at its span, the last of duplicates, with no space around it."""
    value = json.loads(doc)
    for path in paths_of(value):
        span = find(doc, path)
        assert span is not None
        text = doc[slice(*span)]
        assert json.loads(text) == at(value, path)
        assert text == text.strip()


@given(documents)
def test_members_and_items_are_all_there(doc: bytes) -> None:
    """An object's members come in order with duplicates, an array's items in order."""
    pairs = json.loads(doc, object_pairs_hook=tuple)
    if doc.strip().startswith(b"{"):
        found = [(m.key, json.loads(doc[m.value_start : m.value_end])) for m in members(doc)]
        assert [key for key, _ in found] == [key for key, _ in pairs]
        assert [value for _, value in found] == [value for _, value in _plain_pairs(doc)]
    elif doc.strip().startswith(b"["):
        assert [json.loads(doc[start:end]) for start, end in items(doc)] == json.loads(doc)


def _plain_pairs(doc: bytes) -> list[tuple[str, Any]]:
    """The outermost object as pairs: inner ones are decoded as dicts by the time it is their turn."""
    outer: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        outer[:] = pairs
        return dict(pairs)

    json.loads(doc, object_pairs_hook=keep)
    return outer


def apply(value: Any, change: Edit) -> Any:
    value = deepcopy(value)
    if not change.path:
        return json.loads(change.value) if not isinstance(change, Drop) else None
    parent, step = at(value, change.path[:-1]), change.path[-1]
    if isinstance(change, Drop):
        del parent[step]
    elif isinstance(parent, list) and step == len(parent):
        parent.append(json.loads(change.value))
    else:
        parent[step] = json.loads(change.value)
    return value


@given(documents, st.data())
def test_an_edit_changes_the_value_it_names(doc: bytes, data: st.DataObject) -> None:
    """Editing bytes and loading them is loading them and editing the value."""
    value = json.loads(doc)
    path = data.draw(st.sampled_from(paths_of(value)))
    parent = at(value, path)
    changes: list[Edit] = [Replace(path, b"[7]"), Insert(path, b"[7]")]
    if path:
        changes.append(Drop(path))
    if isinstance(parent, dict):
        changes.append(Insert((*path, "new"), b'"n"'))
    elif isinstance(parent, list):
        changes.append(Insert((*path, len(parent)), b'"n"'))
    change = data.draw(st.sampled_from(changes))
    assert json.loads(edit(doc, [change])) == apply(value, change)


@given(documents, st.data())
def test_a_replacement_keeps_every_other_byte(doc: bytes, data: st.DataObject) -> None:
    """Bytes before and behind a replaced value stay."""
    path = data.draw(st.sampled_from(paths_of(json.loads(doc))))
    span = find(doc, path)
    assert span is not None
    assert edit(doc, [Replace(path, b"0")]) == doc[: span[0]] + b"0" + doc[span[1] :]


@given(st.lists(spaces, min_size=5, max_size=5), st.sets(st.integers(0, 4)), st.booleans())
def test_any_set_of_drops_leaves_valid_json(gaps: list[bytes], dropped: set[int], appended: bool) -> None:
    """However many items go, and whether one is added behind, the commas come out right."""
    doc = b"[" + b",".join(gap + b"%d" % index + gap for index, gap in enumerate(gaps)) + b"]"
    edits: list[Edit] = [Drop((index,)) for index in dropped]
    if appended:
        edits.append(Insert((5,), b"5"))
    kept = [index for index in range(5) if index not in dropped]
    assert json.loads(edit(doc, edits)) == kept + [5] * appended


@given(st.binary(max_size=60), st.lists(st.sampled_from(["a", 0]), max_size=2))
def test_invalid_input_raises_value_error_only(doc: bytes, path: list[str | int]) -> None:
    """What is no JSON ends in ValueError or in something meaningless, never in another error or a loop."""
    try:
        find(doc, path)
        edit(doc, [Insert(path, b"1")])
    except ValueError:
        pass


def test_edits_apply_together() -> None:
    """Several edits name places of the original and leave spacing, spelling and order alone."""
    doc = b'{ "a" : 1.0, "p":{"x":[1, 2 ,3], "y" : "\\u0041"}, "z":null }'
    edits: list[Edit] = [
        Drop(("p", "x", 0)),
        Replace(("p", "x", 2), b'"three"'),
        Insert(("p", "_meta", "k", "one"), b"1"),
        Insert(("p", "_meta", "k", "two"), b"2"),
        Drop(("a",)),
        Insert(("z",), b"[]"),
    ]
    expected = b'{ "p":{"x":[2 ,"three"], "y" : "\\u0041","_meta":{"k":{"one":1,"two":2}}}, "z":[] }'
    assert edit(doc, edits) == expected


def test_dropping_takes_every_duplicate() -> None:
    """A dropped member cannot come back as its own duplicate."""
    assert edit(b'{"a":1,"b":2,"\\u0061":3}', [Drop(("a",))]) == b'{"b":2}'


def test_dropping_what_is_absent_changes_nothing() -> None:
    """A drop states what shall not be there, so its absence is fine."""
    doc = b'{"a": {"b":1}, "c":[ ]}'
    drops: list[Edit] = [
        Drop(("x",)),
        Drop(("a", "x")),
        Drop(("a", "b", "x")),
        Drop(("c", 0)),
        Drop(("y", "z")),
    ]
    assert edit(doc, drops) == doc


@pytest.mark.parametrize(
    "edits",
    [
        [Replace(("a",), b"1"), Replace(("a",), b"2")],
        [Replace(("a",), b"1"), Insert(("a", "b"), b"2")],
        [Insert(("a", "b"), b"2"), Drop(("a",))],
        [Drop(())],
        [Replace(("x",), b"1")],
        [Replace(("x", "y"), b"1")],
        [Insert(("n", "y"), b"1")],
        [Insert(("l", 4), b"1")],
        [Insert(("l", "y"), b"1")],
        [Insert(("x", 0), b"1")],
    ],
)
def test_edits_without_meaning_are_refused(edits: list[Edit]) -> None:
    """Overlapping edits and paths that lead nowhere raise instead of guessing."""
    with pytest.raises(ValueError, match=r"edit|document|replace|array"):
        edit(b'{"a":{"b":1},"n":1,"l":[1,2]}', edits)


@given(deep(), deep())
def test_deep_values_end_where_json_says(first: list[Any], second: list[Any]) -> None:
    """However far they go down and come up again, and whatever brackets their texts hold."""
    texts = [json.dumps(value, separators=(",", ":")).encode() for value in (first, second)]
    doc = b'{"a":%s,"b":[%s,[1]],"c":1}' % (texts[0], texts[1])
    for path, text in ((("a",), texts[0]), (("b", 0), texts[1]), (("b", 1), b"[1]"), (("c",), b"1")):
        span = find(doc, path)
        assert span is not None and doc[slice(*span)] == text
    for cut in range(1, min(len(texts[0]), 200)):
        with pytest.raises(ValueError, match="end"):
            end_of_value(texts[0][:-cut], 0)


def test_nesting_and_size_are_no_obstacle() -> None:
    """100,000 levels and a string of a megabyte full of escapes are passed over, not climbed or retried."""
    deep = b"[" * 100_000 + b"]" * 100_000
    text = b'"' + b'\\\\\\"' * 250_000 + b'"'
    doc = b'{"deep":' + deep + b',"text":' + text + b',"last":1}'
    assert find(doc, ("last",)) == (len(doc) - 2, len(doc) - 1)
    assert edit(doc, [Drop(("deep",)), Drop(("text",))]) == b'{"last":1}'


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_long_string_with_escapes(size: int) -> None:
    """Its end is found wherever an escape stands, and a string without one ends in ValueError."""
    for text in (b"z" * size + b'\\"', b"\\\\" * (size // 2), b"z" + b'\\"' * (size // 2)):
        doc = b'["\\"' + text + b'",1]'
        assert list(items(doc)) == [(1, len(doc) - 3), (len(doc) - 2, len(doc) - 1)]
        for broken in (doc[:-4], doc[:-4] + b"\\"):
            with pytest.raises(ValueError, match="does not end"):
                end_of_value(broken, 1)


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize(
    "unit",
    [
        b'{"a":[{"]":"\\""}]},',
        b"[[[[7]],[]]],",
        b"[[1],[" + b"1234567," * 90_000 + b"8]],",
        b"123456,",
        b'"[[",',
    ],
)
def test_containers_of_many_looks_end_where_they_end(unit: bytes, shift: int) -> None:
    """Wherever a look ends: in a text, a number, or a container, which may be longer than a look itself."""
    size = (3 << 19) // len(unit)
    for doc in (b"[" + unit * size + b"0]", b"[[" + b"[" + unit * size + b"0]" + b",[]],[]]"):
        assert end_of_value(b" " * shift + doc + b",[]]", shift) == shift + len(doc)
        with pytest.raises(ValueError, match="does not end"):
            end_of_value(b" " * shift + doc[:-1], shift)


@given(
    st.lists(
        st.sampled_from(
            [
                b"x",
                b"\\n",
                b"\\\\",
                b'\\"',
                b"\\u0041",
                b"\\ud83d\\ude00",
                b"\\ud83d",
                b"\\ude00",
                "é名😀".encode(),
            ]
        ),
        max_size=60,
    ).map(b"".join),
    st.integers(13, 30),
)
def test_text_in_pieces_is_the_text(inside: bytes, step: int) -> None:
    """Wherever a long string is cut, no escape, no pair of surrogates and no character is torn."""
    doc = b'["' + inside + b'"]'
    pieces = list(text_pieces(doc, 2, len(doc) - 2, step))
    assert "".join(pieces) == json.loads(doc)[0]
    assert all(len(piece) <= step for piece in pieces)


@pytest.mark.parametrize("inside", [b"x\n" * 40, b"\x80" * 40, b"\xf0\x9f" * 30, b"\\x" * 40, b"\\ud83" * 20])
def test_what_is_no_text_is_none_in_pieces(inside: bytes) -> None:
    """Control characters, broken characters and unknown escapes end in ValueError."""
    with pytest.raises(ValueError):
        list(text_pieces(inside, 0, len(inside), 13))
