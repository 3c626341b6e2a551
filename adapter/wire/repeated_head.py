"""Heads of HTTP messages that come again and again on one connection (RFC 9112). Pure.

From call to call a client or a server changes little in what it sends: the number in Content-Length, and the body. A
head that was parsed once is recognized by its bytes, which is much cheaper than to parse it again.
"""

from __future__ import annotations

_NAME = b"\r\ncontent-length:"
_END = b"\r\n\r\n"
_DIGITS = 9
"""Digits of a Content-Length that are looked through; a longer body never comes in one piece."""


class RepeatedHead:
    """The bytes of a head around the number in its one Content-Length."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    def __repr__(self) -> str:
        return f"<RepeatedHead of {len(self._before) + len(self._after)} bytes>"

    def body_of(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is exactly one message with this head; None for all else."""
        if not data.startswith(self._before):
            return None
        start = len(self._before)
        end = data.find(b"\r", start, start + _DIGITS + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._after, end):
            return None
        body = data[end + len(self._after) :]
        return body if len(body) == int(digits) else None


def repeated_head(data: bytes) -> RepeatedHead | None:
    """Return the head of a message that a parser has just found to be valid and to be all of ``data``.

    None where no head could be recognized by it: its lines end otherwise, it has no Content-Length or several, or its
    body has another length.
    """
    end = data.find(_END)
    lower = data[: end + 2].lower()
    if end < 0 or lower.count(_NAME) != 1:
        return None
    start = lower.index(_NAME) + len(_NAME)
    while data[start : start + 1] in (b" ", b"\t"):
        start += 1
    found = RepeatedHead(data[:start], data[data.find(b"\r", start) : end + len(_END)])
    return None if found.body_of(data) is None else found
