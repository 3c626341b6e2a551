"""Which tool calls could be read in two ways, and which could not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.arguments import ambiguous, values


def call(arguments: bytes) -> bytes:
    return b' {"id":1,"method":"tools/call","params":{"name":"t","arguments":' + arguments + b"}}"


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("path", b'{"path":"a"}'),
        ("path", b'{"p\\u0061th":"a"}'),
        ("path", b'{"paths":"a","other":{"path":"b","Path":"c"}}'),
        ("path", b'{"path":["a",["b"]]}'),
        ("path", b"{}"),
        ("path", b"null"),
        ("files[].path", b'{"files":[{"path":"a"},{"path":"b"},{}]}'),
        ("files[].path", b'{"files":null}'),
        ("files[].path", b'{"files":[null,7,false]}'),
        ("options.file", b'{"options":false}'),
        ("grid[][].file", b'{"grid":[[{"file":"a"}],[]]}'),
    ],
)
def test_what_every_reader_finds_alike_is_plain(path: str, arguments: bytes) -> None:
    """One member, spelled as it is named, or none; other members may be whatever they are."""
    assert not ambiguous(call(arguments), path)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("path", b'{"path":"a","path":"b"}'),
        ("path", b'{"path":"a","p\\u0061th":"b"}'),
        ("path", b'{"path":"a","Path":"b"}'),
        ("path", b'{"PATH":"b"}'),
        ("path", '{"ｐａｔｈ":"b"}'.encode()),
        ("task", b'{"ta\\u017fk":"b"}'),
        ("file_path", b'{"filePath":"b"}'),
        ("files[].path", b'{"files":[{"path":"a"},{"path":"b","path":"c"}]}'),
        ("files[].path", b'{"files":[],"Files":[{"path":"c"}]}'),
        ("files[].path", b'{"files":"b"}'),
        ("files[].path", b'{"files":["b"]}'),
        ("files[].path", b'{"files":[[{"path":"b"}]]}'),
        ("path", b'["b"]'),
        ("path", b'"b"'),
    ],
)
def test_what_readers_may_find_differently_is_ambiguous(path: str, arguments: bytes) -> None:
    """A key twice or in another spelling anywhere on the way, or something else than the objects on it."""
    assert ambiguous(call(arguments), path)


@pytest.mark.parametrize(
    "message",
    [
        b'{"params":{"arguments":{},"arguments":{"path":"b"}}}',
        b'{"params":{"arguments":{},"Arguments":{"path":"b"}}}',
        b'{"params":{"arguments":{}},"Params":{"arguments":{"path":"b"}}}',
    ],
)
def test_way_begins_at_the_message(message: bytes) -> None:
    """Arguments may be doubled as a whole, and params too."""
    assert ambiguous(message, "path")


# --- attacked -------------------------------------------------------------------------------------------------

HANDLE, PATH = "upload://it", "/etc/passwd"


def objects(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """An object as JSON has it: its members in order, some of them twice."""
    keys = st.sampled_from(["files", "Files", "path", "path", "PATH", "pa_th", "other"])
    return st.lists(st.tuples(keys, inner), max_size=3).map(tuple)


values_of_any_kind = st.recursive(
    st.sampled_from([HANDLE, PATH, None, 7, False]),
    lambda inner: st.lists(inner, max_size=2) | objects(inner),
    max_leaves=6,
)


def spelled(value: object) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{json.dumps(key)}:{spelled(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spelled, value)) + "]"
    return json.dumps(value)


def lenient(value: object, way: tuple[str, ...]) -> Iterator[object]:
    """All that some reader could take for the argument: any of its spellings and doubles, and short forms of it."""
    if isinstance(value, list):
        for item in value:
            yield from lenient(item, way)
    elif not isinstance(value, tuple) or not way:
        yield value
    else:
        for key, inner in value:
            if key.lower().replace("_", "") == way[0]:
                yield from lenient(inner, way[1:])


@pytest.mark.parametrize("path", ["path", "files[].path"])
@given(arguments=objects(values_of_any_kind))
def test_no_reader_finds_a_path_that_the_stage_did_not(path: str, arguments: object) -> None:
    """Where nothing is ambiguous and all values are handles, nobody reads anything else for the argument."""
    message = call(spelled(arguments).encode())
    found = [said.value for said in values(message, path)]
    if not ambiguous(message, path) and all(value == HANDLE for value in found):
        assert PATH not in lenient(arguments, tuple(path.replace("[]", "").split(".")))
