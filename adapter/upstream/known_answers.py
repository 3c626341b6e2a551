"""Heads of answers that came before from an upstream: fields that later answers share, and bytes to know them by."""

from __future__ import annotations

from adapter.rules.access.headers import Field, SharedFields
from adapter.wire.repeated_head import BODILESS, LONGEST, RepeatedHead, repeated_head

KINDS = 8
"""Kinds of heads that are remembered: a session has one at its beginning, for its notification, its calls, its end."""


class KnownAnswer:
    """The last head of one kind: that of a status with so many fields.

    ``shared`` are the fields that many of them have. ``repeated`` is None while the next one cannot be recognized.
    ``keep_alive`` is its Keep-Alive field, if it has one.
    """

    __slots__ = ("fields", "keep_alive", "repeated", "shared", "status")

    def __init__(self, status: int) -> None:
        self.status = status
        self.fields: list[Field] = []
        self.shared = SharedFields(())
        self.repeated: RepeatedHead | None = None
        self.keep_alive: bytes | None = None

    def __repr__(self) -> str:
        return f"<KnownAnswer {self.status} of {len(self.shared)} fields>"

    def take(self, fields: list[Field]) -> list[Field]:
        """The fields of a head that has come: shared ones, where another of this kind had the same."""
        if fields == self.shared:
            return self.shared
        if fields == self.fields and sum(len(name) + len(value) for name, value in fields) <= LONGEST:
            self.repeated, self.shared = None, SharedFields(fields)
            return self.shared
        return fields

    def learn(self, fields: list[Field], data: bytes | None) -> None:
        """Note a head whose answer has ended; ``data`` is all of it, None where that did not come in one piece."""
        earlier, self.fields = self.fields, fields
        repeats = data is not None and self._repeats(earlier, data)
        self.repeated = repeated_head(data) if data is not None and repeats else None
        if self.repeated is not None and self.shared != fields:
            self.shared = SharedFields(fields)
        if self.repeated is not None:
            named = [value for name, value in fields if name.lower() == "keep-alive"]
            self.keep_alive = named[-1].encode("latin-1") if named else None

    def _repeats(self, earlier: list[Field], data: bytes) -> bool:
        """Tell whether ``data`` is an answer, with no interim one before it, whose head is as the earlier one's."""
        if len(earlier) != len(self.fields) or data[9:12] != b"%d" % self.status or self.status in BODILESS:
            return False
        for one, other in zip(earlier, self.fields, strict=True):
            if one != other and one[0].lower() != "content-length":
                return False
        return True


class KnownAnswers:
    """The last heads of all connections to an upstream, by their kinds; ``last`` is the one that came last."""

    __slots__ = ("_kinds", "last")

    def __init__(self) -> None:
        self.last = KnownAnswer(0)
        self._kinds: dict[tuple[int, int], KnownAnswer] = {}

    def __repr__(self) -> str:
        return f"<KnownAnswers: {len(self._kinds)}>"

    def take(self, status: int, fields: list[Field]) -> list[Field]:
        """See KnownAnswer; the kind of this head is the ``last`` one now."""
        kind = status, len(fields)
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
            known = self._kinds[kind] = KnownAnswer(status)
        self.last = known
        return known.take(fields)

    def body_in(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one whole answer whose head came before, which is the ``last`` one now."""
        for known in self._kinds.values():
            repeated = known.repeated
            # Most differ in their first bytes, and to see that takes no call of Python.
            if repeated is None or not data.startswith(repeated.before):
                continue
            content = repeated.body_of(data)
            if content is not None:
                self.last = known
                return content
        return None
