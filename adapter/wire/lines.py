"""The framing of the stdio transport: one JSON-RPC message on each line, in any slicing. Pure.

Source of the rules: MCP, transports, "stdio": messages are delimited by newlines and contain none.
"""

from __future__ import annotations

from dataclasses import dataclass

_KEPT = 256
"""Bytes kept of the beginning and of the end of a line that is too long: enough for the id of a message."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of ``size`` bytes that was dropped, because that is above the limit.

    ``head`` and ``tail`` are its first and last bytes, at most 256 each. A message names its id in one of the two.
    """

    size: int
    head: bytes
    tail: bytes


Line = bytes | LongLine


class LineReader:
    """Cuts a stream into lines of at most ``limit`` bytes, in time linear in what was fed.

    A line ends with LF or CRLF, which do not belong to it. Empty lines are skipped. Of a line above the limit at most
    ``limit`` bytes are held, and it comes out as one LongLine when it ends.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._partial = bytearray()
        self._dropping: _Dropping | None = None

    @property
    def held(self) -> int:
        """Bytes of the incomplete line that are in memory."""
        return len(self._partial)

    def feed(self, piece: bytes) -> list[Line]:
        """Return the lines that ``piece`` completes, in their order."""
        if not self._partial and self._dropping is None and piece.find(b"\n") == len(piece) - 1:
            # Most pieces are one line, with its end.
            line: Line = piece[:-1]
            if len(piece) > self.limit or piece.endswith(b"\r\n"):
                line = self._line(piece[:-1])
            return [line] if line else []
        first, *others = piece.split(b"\n")
        if not others:
            self._grow(first)
            return []
        lines = self._completed(first)
        self._partial += others.pop()
        if len(piece) <= self.limit and b"\r" not in piece:
            lines += filter(None, others)
        else:
            lines += [line for each in others if (line := self._line(each))]
        if len(self._partial) > self.limit:
            self._shed()
        return lines

    def end(self) -> list[Line]:
        """Return the line that the stream ended in, if it has no line end: one item or none."""
        return self._completed(b"")

    def _grow(self, piece: bytes) -> None:
        if self._dropping is not None:
            self._dropping.add(piece)
            return
        self._partial += piece
        if len(self._partial) > self.limit:
            self._shed()

    def _shed(self) -> None:
        # One byte more may be the CR of the line's end, which does not count.
        if len(self._partial) == self.limit + 1 and self._partial.endswith(b"\r"):
            return
        self._dropping = _Dropping()
        # Not as bytes: a copy of all of it would be as much memory again.
        self._dropping.add(self._partial)
        self._partial = bytearray()

    def _completed(self, rest: bytes) -> list[Line]:
        """Return the line that was incomplete until ``rest``."""
        if self._dropping is not None:
            self._dropping.add(rest)
            dropped, self._dropping = self._dropping.line(), None
            return [dropped]
        whole = rest
        if self._partial:
            # One copy of a line that may be long.
            self._partial += rest
            whole, self._partial = bytes(self._partial), bytearray()
        line = self._line(whole)
        return [line] if line else []

    def _line(self, whole: bytes) -> Line:
        line = whole[:-1] if whole.endswith(b"\r") else whole
        if len(line) <= self.limit:
            return line
        return LongLine(len(line), line[:_KEPT], line[-_KEPT:])


class _Dropping:
    """A line above the limit, while it arrives."""

    def __init__(self) -> None:
        self._size = 0
        self._head = b""
        # One byte more than is kept, because the last may be the CR of the line's end.
        self._tail = b""

    def add(self, piece: bytes | bytearray) -> None:
        self._size += len(piece)
        if len(self._head) < _KEPT:
            self._head = (self._head + piece[:_KEPT])[:_KEPT]
        self._tail = (self._tail + piece[-_KEPT - 1 :])[-_KEPT - 1 :]

    def line(self) -> LongLine:
        ends_in_cr = self._tail.endswith(b"\r")
        size = self._size - ends_in_cr
        tail = self._tail[:-1] if ends_in_cr else self._tail
        return LongLine(size, self._head[:size], tail[-_KEPT:])
