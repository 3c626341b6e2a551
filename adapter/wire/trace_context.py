"""Trace context of W3C: the field ``traceparent``, and its place in ``params._meta`` of a message (MCP, SEP-414).

All other bytes of a message keep their place and their spelling. The positions of the usual messages are found by a
look at their bytes; any other message takes the way through ``spans``, which reads all of it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from adapter.wire.spans import Insert, edit

TRACEPARENT = "traceparent"

LARGEST_EDITED = 1 << 18
"""Bytes of a message that is edited. A larger one keeps its bytes, and header fields alone carry its trace."""

NO_META: Final = object()
"""In place of a value: the message has no object at ``params._meta``."""

ABSENT: Final = object()
"""In place of a value: the message has ``params._meta``, and no ``traceparent`` in it."""

_LONGEST = 512
# Version, trace, parent, flags; a later version may have more behind them ("Versioning of traceparent").
_FIELD = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(|-[ -~]*+)")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED, _RANDOM = 1, 2

_PATH = ("params", "_meta", TRACEPARENT)
_KEY, _META = b'"traceparent"', b'"_meta"'
_OBJECT = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+\{[ \t\n\r]*+(\}?+)")
# With the quote of their first member.
_PARAMS = b'"params":{"'


def short_text(value: object) -> str | None:
    """The value if it is a text that may be a ``traceparent``, else None."""
    return value if isinstance(value, str) and len(value) <= _LONGEST else None


class TraceParent(NamedTuple):
    """The trace and the span that a request belongs to, each in hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: int


def read_traceparent(value: object) -> TraceParent | None:
    """The value of a field ``traceparent``; None for what is none (W3C Trace Context, "traceparent Header").

    Of the flags those are kept that W3C defines: sampled, and random trace id.
    """
    text = short_text(value)
    found = None if text is None else _FIELD.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TraceParent(trace_id, span_id, int(flags, 16) & (_SAMPLED | _RANDOM))


def with_traceparent(body: bytes, traceparent: str, former: object) -> bytes:
    """A message of JSON-RPC with this value at ``params._meta.traceparent``.

    ``former`` is the value that is there now; ABSENT where ``_meta`` has none, NO_META where ``params._meta`` is no
    object. A message above ``LARGEST_EDITED`` bytes is returned as it is, and one whose ``params`` or ``_meta`` cannot
    have members.
    """
    if former is NO_META and len(body) <= LARGEST_EDITED:
        # The usual message of a client without traces. Its params begin behind members that hold no others, and
        # without a backslash no text before them can look like one; none hides a key either.
        at = body.find(_PARAMS)
        if (
            at > 0
            and body.count(b"{", 0, at) == 1
            and body.find(b"[", 0, at) < 0
            and body.find(b"\\", 0, at) < 0
            and body.find(_META) < 0
            and body.find(b"\\u") < 0
        ):
            at += len(_PARAMS) - 1
            member = f'"_meta":{{"traceparent":"{traceparent}"}},'
            return b"".join((body[:at], member.encode("ascii"), body[at:]))
    elif type(former) is str and len(body) <= LARGEST_EDITED:
        # A client that writes no more than it has to. The only key of this name is the one that was read.
        pair = b'%b:"%b"' % (_KEY, former.encode("utf-8", "replace"))
        at = body.find(pair)
        if at > 0 and body.count(_KEY) == 1 and body.find(b"\\u") < 0:
            new = b'%b:"%b"' % (_KEY, traceparent.encode("ascii"))
            return b"".join((body[:at], new, body[at + len(pair) :]))
    return _with_value(body, b'"' + traceparent.encode("ascii") + b'"', former)


def _with_value(body: bytes, value: bytes, former: object) -> bytes:
    """As ``with_traceparent``, for messages of all shapes."""
    if len(body) > LARGEST_EDITED:
        return body
    # A key that is spelled with escapes hides from a look at the bytes.
    if former is ABSENT and b"\\u" not in body and _KEY not in body and body.count(_META) == 1:
        found = _OBJECT.match(body, body.index(_META) + len(_META))
        if found is not None:
            at = found.start(1)
            return b"".join((body[:at], b'"traceparent":', value, b"" if found[1] else b",", body[at:]))
    try:
        return edit(body, [Insert(_PATH, value)])
    except ValueError:
        return body
