"""A list of tools written anew entry by entry, in one pass over its bytes; those that nobody touches stay. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from adapter.wire.scan import Span, find, items

_PLAIN_BEGINNING = re.compile(
    rb'\s*+\{\s*+(?:"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+'
    rb'"id"\s*+:\s*+(?:-?[0-9]{1,15}|"[^"\\]{0,100}")'
    rb'\s*+,\s*+)?"result"\s*+:\s*+\{\s*+"tools"\s*+:\s*+\['
)
"""How lists begin as a rule. Where one is spelled otherwise its place is found in a slower way."""


class Entries:
    """Writes ``result.tools`` of a response, which has one. ``before`` are entries that shall stand first.

    Each of ``spans`` is to be kept or dropped, in their order.
    """

    def __init__(self, response: bytes, before: Sequence[bytes]) -> None:
        self._response = response
        begun = _PLAIN_BEGINNING.match(response)
        start = begun.end() - 1 if begun is not None else -1
        self.spans = list(items(response, start)) if begun is not None else []
        end = self.spans[-1][1] if self.spans else start + 1
        if begun is None or b'"tools"' in response[end:] or b"\\" in response[end:]:
            # Of members that stand there twice the last counts.
            found = find(response, ("result", "tools"))
            assert found is not None, "it was just read"
            start = found[0]
            self.spans = list(items(response, start))
            end = self.spans[-1][1] if self.spans else start + 1
        self._start, self._end = start, end
        self._kept_to = start + 1
        self._joins = True
        self._pieces = [response[: start + 1], b",".join(before)]
        self._is_empty = not before
        self.edited = bool(before)

    @property
    def frame(self) -> bytes:
        """The response as it came, with no entries in the list."""
        return self._response[: self._start + 1] + self._response[self._end :]

    def drop(self) -> None:
        """Leave the next entry out."""
        self.edited = True
        self._joins = False

    def keep(self, span: Span, text: bytes) -> None:
        """Write ``text`` in the place of the next entry, whose span this is."""
        start, end = span
        gap = self._response[self._kept_to : start] if self._joins else b""
        if b"," not in gap and not self._is_empty:
            gap = b"," + gap
        original = self._response[start:end]
        self.edited = self.edited or text != original
        self._pieces += (gap, text)
        self._kept_to, self._joins, self._is_empty = end, True, False

    def written(self) -> bytes:
        return b"".join((*self._pieces, self._response[self._end :]))
