"""A list of a response written anew entry by entry; those that nobody touches keep their bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from adapter.wire.outline import Outline
from adapter.wire.scan import Span, find
from adapter.wire.spans import Edit, edit


class Entries:
    """Writes ``result[key]`` of a response, which has one by its outline. ``before`` are entries that stand first.

    Each item of the outline is to be kept or dropped, in their order.
    """

    def __init__(self, response: bytes, outline: Outline, key: str, before: bytes) -> None:
        assert outline.list_at is not None, "there is a list"
        self._response = response
        self._outline = outline
        self._key = key
        self._kept_to = outline.list_at[0] + 1
        self._joins = True
        self._pieces = [b"[", before]
        self._is_empty = not before
        self.edited = bool(before)

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
        self.edited = self.edited or text != self._response[start:end]
        self._pieces += (gap, text)
        self._kept_to, self._joins, self._is_empty = end, True, False

    def written(self, edits: Sequence[Edit] = ()) -> bytes:
        """The response with these entries, and with ``edits`` of what stands beside the list.

        The very object that came where no entry was touched.
        """
        if not self.edited:
            return self._response
        response, outline = self._response, self._outline
        assert outline.list_at is not None, "there is a list"
        end = outline.items[-1] if outline.items else outline.list_at[0] + 1
        rest = edit(outline.rest(response), edits)
        place = find(rest, ("result", self._key))
        assert place is not None, "the list is there"
        tail = response[end : outline.list_at[1]]
        return b"".join((rest[: place[0]], *self._pieces, tail, rest[place[1] :]))
