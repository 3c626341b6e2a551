"""Which tool calls could be read in two ways, and which could not."""

from __future__ import annotations

import pytest

from adapter.rules.ambiguity import ambiguous


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
