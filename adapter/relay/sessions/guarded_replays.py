"""Answers of guarded calls on other streams than their own, such as those that an upstream sends again.

Whoever resumes a stream with ``Last-Event-ID`` gets from the upstream what was said on it, also the response that has
left already as the stages wanted it. The stages are over by then, so that nothing but a failure can stand for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.errors import AdapterError, UpstreamBroken
from adapter.wire.ambiguity import may_hold
from adapter.wire.envelope import Envelope, Kind, parse, read_envelope
from adapter.wire.failure import failure

MOST = 4096
"""Ids of one session that are remembered; of a session with more every answer counts as guarded."""

SENTENCE = "The answer came when its call was over, so it cannot be shown. Call the tool again."
LISTED_BEFORE = "The list came when its request was over, so it cannot be shown. Ask for it again."


@dataclass(slots=True)
class Guarded:
    """The guarded calls of one session, by the ids that its client gave them.

    ``everything``: it is not known which they were, as for a session of an earlier process.
    """

    everything: bool = True
    # Most sessions have none, and there may be very many of those.
    _ids: set[str | int | float | None] | None = None

    def add(self, number: str | int | float | None) -> None:
        """A guarded call begins."""
        ids = self._ids = self._ids or set()
        ids.add(number)
        if len(ids) > MOST:
            self.everything, self._ids = True, None

    def withheld(self, data: bytes) -> bytes:
        """The part of a message on a GET stream that may leave: all but answers of guarded calls."""
        if not (self._ids or self.everything):
            return data
        try:
            message = read_envelope(data)
        except AdapterError:
            # Some client may find an answer in it all the same.
            return b""
        if isinstance(message, Envelope):
            return self._left(message)
        if not any(map(self._concerns, message.members)):
            return data
        return b"[" + b",".join(map(self._left, message.members)) + b"]"

    def _left(self, message: Envelope) -> bytes:
        return (
            failure(UpstreamBroken(SENTENCE), message.id_bytes) if self._concerns(message) else message.body
        )

    def _concerns(self, message: Envelope) -> bool:
        # A response without an id may be that of any call.
        return message.kind is Kind.RESPONSE and (
            self.everything or message.id is None or message.id in (self._ids or ())
        )


def without_lists(data: bytes) -> bytes:
    """The part of a message on a GET stream that may leave if tools are hidden.

    A list of tools that nobody waits for may not leave.
    """
    if data.isascii() and b"\\" not in data and b"tools" not in data.lower().translate(None, b"_- \x7f"):
        # No member could be read as ``tools`` in any spelling.
        return data
    try:
        if not may_hold(parse(data), "result", "tools"):
            return data
        message = read_envelope(data)
    except AdapterError:
        # Some client may find a list in it all the same.
        return b""
    if isinstance(message, Envelope) and message.kind is Kind.RESPONSE:
        return failure(UpstreamBroken(LISTED_BEFORE), message.id_bytes)
    return b""
