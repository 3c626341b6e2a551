"""Tell whether a message is the response that is waited for; it may be a list of any length."""

from __future__ import annotations

from adapter.relay.turns import in_turns
from adapter.wire.envelope import answers
from adapter.wire.outline import responds

LIST = "tools/list"

LARGE = 1 << 18
"""Bytes of a message that are parsed at once, in some milliseconds."""


async def is_response(data: bytes, request_id: str | int | float | None) -> bool:
    """As ``envelope.answers``; a large message is looked through in turns, and its result not read."""
    if len(data) <= LARGE:
        return answers(data, request_id)
    return await in_turns(responds(data, request_id))
