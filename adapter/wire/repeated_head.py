"""Heads of HTTP messages that come again and again on one connection (RFC 9112). Pure.

From call to call a client or a server changes little in what it sends: the number in Content-Length, and the body. A
head that was parsed once is recognized by its bytes, which is much cheaper than to parse it again. From session to
session a client changes the value of Mcp-Session-Id too, and that is looked up in the place where it stood before.
"""

from __future__ import annotations

from functools import lru_cache

_NAME = b"\r\ncontent-length:"
_SESSION = b"\r\nmcp-session-id:"
_END = b"\r\n\r\n"
_SPACE = (b" ", b"\t")
_VISIBLE = bytes(range(0x21, 0x7F))

LONGEST_SESSION = 128
"""Characters of a session id that is looked for."""

_MOST_DIGITS = 20

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
    """The bytes of a head around the number in its one Content-Length.

    ``after`` is None for a head without that field, which is all of its message.
    """

    __slots__ = ("_head", "_size", "after", "before")

    def __init__(self, before: bytes, after: bytes | None) -> None:
        self.before = before
        self.after = after
        self._size = 0
        self._head: bytes | None = None
        """The head of a message of ``_size`` bytes, head and body together; None: no message has that size."""

    def __repr__(self) -> str:
        return f"<RepeatedHead of {len(self.before) + len(self.after or b'')} bytes>"

    def body_of(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is exactly one message with this head; None for all else."""
        # Messages of one size have one head, and most have the size of the one before.
        if len(data) != self._size:
            self._size, self._head = len(data), self._head_of(len(data))
        head = self._head
        return data[len(head) :] if head is not None and data.startswith(head) else None

    def _head_of(self, size: int) -> bytes | None:
        if self.after is None:
            return self.before if size == len(self.before) else None
        rest = max(0, size - len(self.before) - len(self.after))
        most = len(b"%d" % rest)
        # The number takes its place from the body: where one of its lengths leaves it as long as that, it is this one.
        for digits in (most, most - 1):
            number = b"%d" % (rest - digits)
            if len(number) == digits and rest >= digits:
                return self.before + number + self.after
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
    start = _value(data, lower.index(_NAME) + len(_NAME))
    found = RepeatedHead(data[:start], data[data.find(b"\r", start) : end + len(_END)])
    return None if found.body_of(data) is None else found


def repeated_request(data: bytes) -> RepeatedHead | None:
    """Return the same of a request, which has no body where its head does not say how long that is."""
    end = data.find(_END, 0, LONGEST)
    if end >= 0 and end + len(_END) == len(data) and _NAME not in data.lower():
        return RepeatedHead(data, None)
    return repeated_head(data)


def _value(data: bytes, start: int) -> int:
    """The place where the value of a field begins, from the end of its colon on."""
    while data[start : start + 1] in _SPACE:
        start += 1
    return start


class SessionHead:
    """The bytes of a request's head around the number in its Content-Length, if it has one, and around the value of its
    one Mcp-Session-Id: ``id_first`` tells which of the two comes first.

    ``pieces`` are the bytes before, between and after the two. Without Content-Length there are only two of them.
    """

    __slots__ = ("_id_first", "_pieces", "before")

    def __init__(self, pieces: tuple[bytes, ...], *, id_first: bool) -> None:
        self.before = pieces[0]
        self._pieces = pieces
        self._id_first = id_first

    def __repr__(self) -> str:
        return f"<SessionHead of {sum(map(len, self._pieces))} bytes>"

    def of(self, data: bytes) -> tuple[str, RepeatedHead, bytes] | None:
        """Return the session id of ``data``, its head and its body, if that is exactly one request with this head.

        None for all else, and for an id that is not visible ASCII, or longer than ``LONGEST_SESSION``.
        """
        pieces = self._pieces
        start = len(pieces[0])
        if not self._id_first:
            # Only to find the id: the whole head is compared below.
            start = data.find(b"\r", start, start + _MOST_DIGITS) + len(pieces[1])
        session = data[start : data.find(b"\r", start, start + LONGEST_SESSION + 1)]
        if not session or session.translate(None, _VISIBLE):
            return None
        if self._id_first:
            after = pieces[2] if len(pieces) > 2 else None
            head = RepeatedHead(pieces[0] + session + pieces[1], after)
        else:
            head = RepeatedHead(pieces[0], pieces[1] + session + pieces[2])
        body = head.body_of(data)
        return None if body is None else (session.decode("ascii"), head, body)


def session_head(head: RepeatedHead, session: str) -> SessionHead | None:
    """Return the head of other sessions' requests, out of that of a request of ``session``, as a parser has read it.

    None where the bytes say otherwise, name it more than once, or where the id is one that would not be looked for.
    """
    before, after = head.before, head.after or b""
    where = [each for each in (before, after) if _SESSION in each.lower()]
    if len(where) != 1 or (lower := where[0].lower()).count(_SESSION) != 1:
        return None
    text = where[0]
    start = _value(text, lower.index(_SESSION) + len(_SESSION))
    value = session.encode("latin-1")
    rest = text[start + len(value) :]
    if not 0 < len(value) <= LONGEST_SESSION or value.translate(None, _VISIBLE):
        return None
    if not text.startswith(value, start):
        return None
    # A line that begins with white space would belong to the value.
    if not rest.startswith(b"\r\n") or rest[2:3] in _SPACE:
        return None
    if text is after:
        return SessionHead((before, text[:start], rest), id_first=False)
    pieces = (text[:start], rest) if head.after is None else (text[:start], rest, after)
    return SessionHead(pieces, id_first=True)
