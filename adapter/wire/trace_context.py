"""Trace context of W3C: the field ``traceparent``, and its place in ``params._meta`` of a message (MCP, SEP-414).

All other bytes of a message keep their place and their spelling.
"""

from __future__ import annotations

from typing import Final

from adapter.wire.spans import Insert, edit

TRACEPARENT = "traceparent"

LARGEST_EDITED = 1 << 18
"""Bytes of a message that is edited. A larger one keeps its bytes, and header fields alone carry its trace."""

NO_META: Final = object()
"""In place of a value: the message has no object at ``params._meta``."""

_LONGEST = 512


def short_text(value: object) -> str | None:
    """The value if it is a text that may be a ``traceparent``, else None."""
    return value if isinstance(value, str) and len(value) <= _LONGEST else None


def with_traceparent(body: bytes, traceparent: str) -> bytes:
    """A message of JSON-RPC with this value at ``params._meta.traceparent``, in place of the one that is there.

    A message above ``LARGEST_EDITED`` bytes is returned as it is, and one whose ``params`` or ``_meta`` cannot have
    members.
    """
    if len(body) > LARGEST_EDITED:
        return body
    try:
        return edit(body, [Insert(("params", "_meta", TRACEPARENT), b'"%b"' % traceparent.encode("ascii"))])
    except ValueError:
        return body
