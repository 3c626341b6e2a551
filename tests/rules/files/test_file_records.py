"""File records: as bytes and back, and the keys and places they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.file_records import (
    FileContent,
    FileKind,
    FileRecord,
    Holders,
    Place,
    decode,
    decode_head,
    encode,
    encode_head,
    record_key,
    size_in,
)

_HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
# Surrogates included: a name may come out of a header or a directory.
_any_text = st.text(st.characters(codec=None))
_safe_text = st.text()

_records = st.builds(
    FileRecord,
    place=st.builds(Place, kind=st.sampled_from(FileKind), scope=_HEX, id=_HEX, name=_safe_text),
    owner=_any_text,
    server=_safe_text,
    filename=_any_text,
    content=st.builds(
        FileContent,
        media_type=_safe_text,
        size=st.integers(0, 2**53),
        sha256=_HEX,
        modified=st.integers(0, 2**63 - 1),
    ),
    created=st.floats(allow_nan=False, allow_infinity=False),
    exposed=st.booleans(),
)


@given(_records)
def test_decode_undoes_encode(record: FileRecord) -> None:
    """Any name comes back from the store as it went in."""
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1}',
        b'{"format": 1, "kind": "other"}',
        b'{"format": 1, "kind": "upload", "owner": 1}',
        b'{"format": 1, "kind": "upload", "owner": "", "filename": "", "more": 1}',
        b"\xff",
    ],
)
def test_what_is_no_record_is_a_value_error(value: bytes) -> None:
    """A row of another version, or of nothing at all, raises one kind of exception."""
    with pytest.raises(ValueError):
        decode(value)


@given(_records)
def test_key_and_place_name_the_same_file(record: FileRecord) -> None:
    """The key begins with the scope and the kind, so that what belongs together stands together."""
    assert record.key == record_key(record.scope, record.kind, record.id)
    assert record.key == f"{record.scope}/{record.kind.value}/{record.id}"
    assert record.place == Place(record.kind, record.scope, record.id, record.place.name)


@pytest.mark.parametrize(
    ("data", "size"), [(b'{"size":12}', 12), (b'{"size":"12"}', 0), (b"{}", 0), (b"[]", 0), (b"no JSON", 0)]
)
def test_size_is_read_out_of_a_row(data: bytes, size: int) -> None:
    """None counts where this version cannot read it."""
    assert size_in(data) == size


texts = st.text("0123456789abcdef/", max_size=40)


@given(st.dictionaries(texts, st.lists(texts)))
def test_head_is_read_as_it_was_written(holders: Holders) -> None:
    """Whatever it says."""
    assert decode_head(encode_head(holders)) == holders


def test_head_of_an_earlier_version_is_read() -> None:
    """It also counted the files."""
    head = b'{"format":1,"size":5,"uploads":1,"artifacts":0,"holders":{"a":["upload/1"]},"writer":"a"}'
    assert decode_head(head) == {"a": ["upload/1"]}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b'{"size":1}', b'{"format":2}', b'{"format":1,"more":1}', b'{"format":99}']
)
def test_what_is_no_head_of_this_version_is_refused(data: bytes) -> None:
    """By one exception."""
    with pytest.raises(ValueError, match=r".*"):
        decode_head(data)
