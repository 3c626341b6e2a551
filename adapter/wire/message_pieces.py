"""A message in the pieces that it came in, which is compared and cut without being joined. Pure.

To join the pieces of a long message costs more than everything else that is done with one that is known already: the
system has to find and to clear new memory for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence


class MessagePieces:
    """The ``pieces`` of a message of ``size`` bytes, in order."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    def __repr__(self) -> str:
        return f"<MessagePieces: {self.size} bytes in {len(self.pieces)}>"

    def joined(self) -> bytes:
        """The whole message; a single piece is returned itself."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def beginning(self, most: int) -> bytes:
        """The first ``most`` bytes, or all there are."""
        found = b""
        for piece in self.pieces:
            found += piece[: most - len(found)]
            if len(found) == most:
                break
        return found

    def ending(self, most: int) -> bytes:
        """The last ``most`` bytes, or all there are; ``most`` is above zero."""
        found = b""
        for piece in reversed(self.pieces):
            if len(found) == most:
                break
            found = piece[len(found) - most :] + found
        return found

    def at(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``."""
        found = b""
        for piece in self.pieces:
            found += piece[max(0, start) : max(0, end)]
            start, end = start - len(piece), end - len(piece)
            if end <= 0:
                break
        return found

    def has_at(self, place: int, text: bytes, start: int, end: int) -> bool:
        """Tell whether the bytes of ``text`` from ``start`` to ``end`` stand at byte ``place`` of the message."""
        if len(self.pieces) == 1:
            return self.pieces[0].startswith(memoryview(text)[start:end], place)
        last, begin = place + end - start, 0
        if last > self.size:
            return False
        for piece in self.pieces:
            first, limit = max(place, begin), min(last, begin + len(piece))
            part = memoryview(piece)[first - begin : max(first, limit) - begin]
            if part and not text.startswith(part, start + first - place):
                return False
            begin += len(piece)
        return True
