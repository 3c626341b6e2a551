"""Messages in pieces: whatever is asked of them, the answer is that of the whole message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.spans import MessagePieces

PIECES = st.lists(st.binary(max_size=4), max_size=6)


@given(PIECES)
def test_a_message_is_its_pieces(pieces: list[bytes]) -> None:
    """Their sizes add up, and joined they are the message."""
    message = MessagePieces(pieces)
    assert message.joined() == b"".join(pieces)
    assert message.size == len(message.joined())
    assert repr(message) == f"<MessagePieces: {message.size} bytes in {len(pieces)}>"


def test_a_single_piece_is_not_copied() -> None:
    """It is the message itself."""
    piece = b"{}"
    assert MessagePieces([piece]).joined() is piece


@given(PIECES, st.integers(1, 12))
def test_both_ends_of_a_message(pieces: list[bytes], most: int) -> None:
    """However its pieces are cut."""
    message = MessagePieces(pieces)
    assert message.beginning(most) == b"".join(pieces)[:most]
    assert message.ending(most) == b"".join(pieces)[-most:]


@given(PIECES, st.integers(0, 12), st.integers(0, 12))
def test_a_part_of_a_message_is_found(pieces: list[bytes], place: int, size: int) -> None:
    """Wherever it begins and ends."""
    text = b"".join(pieces)[place : place + size]
    assert MessagePieces(pieces).at(place, place + size) == text
    place = min(place, sum(map(len, pieces)))
    assert MessagePieces(pieces).has_at(place, b"before" + text + b"behind", 6, 6 + len(text))


@given(PIECES, st.integers(0, 12), st.binary(max_size=8))
def test_only_what_is_there_is_found(pieces: list[bytes], place: int, text: bytes) -> None:
    """Also of texts that differ in one byte, or reach beyond the end."""
    whole = b"".join(pieces)
    is_there = whole[place : place + len(text)] == text and place + len(text) <= len(whole)
    assert MessagePieces(pieces).has_at(place, b"x" + text, 1, 1 + len(text)) == is_there


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_one_other_byte_is_noticed(pieces: list[bytes], data: st.DataObject) -> None:
    """In whatever piece it is."""
    whole = b"".join(pieces)
    place = data.draw(st.integers(0, len(whole) - 1))
    other = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    assert not MessagePieces(pieces).has_at(0, other, 0, len(other))
