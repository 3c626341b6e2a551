"""Heads of HTTP messages that come again and again on one connection (RFC 9112). Pure.

From call to call a client or a server changes little in what it sends: the number in Content-Length, and the body. A
head that was parsed once is recognized by its bytes, which is much cheaper than to parse it again.
"""

from __future__ import annotations

from functools import lru_cache

_NAME = b"\r\ncontent-length:"
_END = b"\r\n\r\n"

BODILESS = (204, 304)
"""Statuses of answers that end with their head, whatever length it says (RFC 9112, 6.3)."""

LONGEST = 8 * 1024
"""Bytes of a head that is remembered; a longer one is parsed each time."""


@lru_cache(maxsize=1024)
def content_length(size: int) -> bytes:
    """The last field of a head, which says how long its body is, and the empty line behind it.

    Most messages have one of few sizes.
    """
    return b"Content-Length: %d\r\n\r\n" % size


class RepeatedHead:
    """The bytes of a head around the number in its one Content-Length."""

    __slots__ = ("_after", "_before", "_head", "_size")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._size = 0
        self._head: bytes | None = None
        """The head of a message of ``_size`` bytes, head and body together; None: no message has that size."""

    def __repr__(self) -> str:
        return f"<RepeatedHead of {len(self._before) + len(self._after)} bytes>"

    def body_of(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is exactly one message with this head; None for all else."""
        # Messages of one size have one head, and most have the size of the one before.
        if len(data) != self._size:
            self._size, self._head = len(data), self._head_of(len(data))
        head = self._head
        return data[len(head) :] if head is not None and data.startswith(head) else None

    def _head_of(self, size: int) -> bytes | None:
        rest = max(0, size - len(self._before) - len(self._after))
        most = len(b"%d" % rest)
        # The number takes its place from the body: where one of its lengths leaves it as long as that, it is this one.
        for digits in (most, most - 1):
            number = b"%d" % (rest - digits)
            if len(number) == digits and rest >= digits:
                return self._before + number + self._after
        return None


def repeated_head(data: bytes) -> RepeatedHead | None:
    """Return the head of a message that a parser has just found to be valid and to be all of ``data``.

    None where no head could be recognized by it: its lines end otherwise, it is longer than ``LONGEST``, it has no
    Content-Length or several, or its body has another length.
    """
    end = data.find(_END, 0, LONGEST)
    lower = data[: end + 2].lower()
    if end < 0 or lower.count(_NAME) != 1:
        return None
    start = lower.index(_NAME) + len(_NAME)
    while data[start : start + 1] in (b" ", b"\t"):
        start += 1
    found = RepeatedHead(data[:start], data[data.find(b"\r", start) : end + len(_END)])
    return None if found.body_of(data) is None else found
