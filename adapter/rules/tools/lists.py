"""The lists of an upstream (tools, resources): the adapter's additions to them, and reading long ones. Pure.

Everything of the upstream's own keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, overload

from adapter.wire.ambiguity import doubt_of_answer
from adapter.wire.envelope import METHOD_NOT_FOUND, dump, parse
from adapter.wire.names import Names
from adapter.wire.outline import Outline, TooManyItems, outline, responds
from adapter.wire.piecewise import Piecewise, one_piece
from adapter.wire.scan import Span
from adapter.wire.spans import Edit, Insert, edit, find, items

MOST_ITEMS = 100_000
"""Items of one page of a list that are looked at."""

LONGEST_REST = 1 << 20
"""Bytes of a page beside its list."""

PRIVATE = Insert(("result", "cacheScope"), b'"private"')
"""The mark of a list for one scope alone, which nobody may share (MCP 2026-07-28, caching)."""


class ListRefused(Exception):
    """A page of a list that is not read to its end; ``str(error)`` says why."""


def announced(response: bytes, *, tools: bool, resources: bool, changing: bool) -> bytes:
    """The response with the capabilities that the adapter's own tools and resources need.

    ``changing``: the adapter tells when the list of resources changes. ``response`` itself where it already says
    all that, or is no result.
    """
    result = _result(response)
    capabilities = result.get("capabilities", {}) if result is not None else None
    if not isinstance(capabilities, dict):
        return response
    edits: list[Edit] = []
    if tools and not isinstance(capabilities.get("tools"), dict):
        edits.append(Insert(("result", "capabilities", "tools"), b"{}"))
    if resources:
        edits += _resources(capabilities.get("resources"), changing=changing)
    return edit(response, edits) if edits else response


def _resources(found: object, *, changing: bool) -> list[Edit]:
    path = ("result", "capabilities", "resources")
    if not isinstance(found, dict):
        return [Insert(path, b'{"listChanged":true}' if changing else b"{}")]
    if changing and found.get("listChanged") is not True:
        return [Insert((*path, "listChanged"), b"true")]
    return []


def ended_with(
    response: bytes, key: str, added: Sequence[dict[str, Any]], cursor: str | None, *, modern: bool
) -> bytes:
    """The list response with ``added`` behind ``result[key]``, and the ``cursor`` of the next page.

    ``response`` itself where it is no such list, or there is nothing to add.
    """
    entries = _entries(response, key)
    if entries is None or not added:
        return response
    length = len(entries[1])
    edits: list[Edit] = [
        Insert(("result", key, length + place), dump(item)) for place, item in enumerate(added)
    ]
    if cursor is not None:
        edits.append(Insert(("result", "nextCursor"), dump(cursor)))
    # What was added is for this scope alone.
    return edit(response, [*edits, PRIVATE] if modern else edits)


def next_cursor(response: bytes) -> str | None:
    """The cursor of the next page of the upstream's list, None on the last one."""
    result = _result(response)
    cursor = result.get("nextCursor") if result is not None else None
    return cursor if isinstance(cursor, str) else None


def has_no_such_method(response: bytes) -> bool:
    """Tell whether the upstream answered that it does not know the method at all."""
    if b"-32601" not in response:
        return False
    return says_no_such_method(parse(response))


def says_no_such_method(message: Any) -> bool:
    """Tell whether a message (as parsed) says that the upstream does not know the method at all."""
    error = message.get("error") if isinstance(message, dict) else None
    return isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND


def _entries(response: bytes, key: str) -> tuple[list[tuple[int, int]], list[Any]] | None:
    result = _result(response)
    values = result.get(key) if result is not None else None
    span = find(response, ("result", key)) if isinstance(values, list) else None
    if span is None or not isinstance(values, list):
        return None
    return list(items(response, span[0])), values


def _result(response: bytes) -> dict[str, Any] | None:
    message = parse(response)
    result = message.get("result") if isinstance(message, dict) else None
    return result if isinstance(result, dict) else None


class Entries:
    """Writes ``result[key]`` of a response, which is there by its outline. ``before`` is the JSON of entries that stand
    first. Each item of the outline has to be kept or dropped, in order.
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
        """The response with these entries, and with ``edits`` of the members beside the list.

        The very object that came if no entry was touched.
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


def certain_outline(
    response: bytes, key: str, names: Names, most: int, things: str
) -> Piecewise[tuple[Outline | None, Any]]:
    """The outline of a page with a list of ``things``, at most so many, and the message beside the list.

    Raises BadJson, and ListRefused for what is too large, or what another reader may read otherwise.
    """
    try:
        found = yield from outline(response, key, most)
    except TooManyItems:
        raise ListRefused(f"has more than {most} {things}") from None
    rest = response if found is None else found.rest(response)
    if len(rest) > LONGEST_REST:
        raise ListRefused(f"has more than {LONGEST_REST} bytes besides its {things}")
    message = yield from one_piece(partial(parse, rest), len(rest))
    if isinstance(message, dict):
        doubt = yield from one_piece(partial(doubt_of_answer, rest, names), len(rest))
        if doubt is not None:
            raise ListRefused(f"can be read in two ways: {doubt.removesuffix('.')}")
    return found, message


# --- long lists -----------------------------------------------------------------------------------------------


class LongList(Sequence[dict[str, Any]]):
    """The items of a long list, each parsed when it is needed: all of them at once would be too many objects for the
    garbage collector to look through in a moment.
    """

    def __init__(self, items: Sequence[bytes]) -> None:
        self._items = items

    @classmethod
    def joined(cls, pages: Sequence[Sequence[dict[str, Any]]]) -> Sequence[dict[str, Any]]:
        """The items of all pages; a plain list if all pages are."""
        if not any(isinstance(page, LongList) for page in pages):
            return list(chain.from_iterable(pages))
        texts = (page._items if isinstance(page, LongList) else map(dump, page) for page in pages)
        return cls(list(chain.from_iterable(texts)))

    @property
    def size(self) -> int:
        """Bytes of all items."""
        return sum(map(len, self._items))

    def __repr__(self) -> str:
        return f"<LongList of {len(self._items)}>"

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> LongList: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | LongList:
        if isinstance(place, slice):
            return LongList(self._items[place])
        item: dict[str, Any] = parse(self._items[place])
        return item


def long_response(
    data: bytes, request_id: str | int | float | None, key: str
) -> Piecewise[dict[str, Any] | None]:
    """As ``envelope.response_in``, with a LongList of the objects in ``result[key]``. Raises BadJson."""
    if not (yield from responds(data, request_id)):
        return None
    found = yield from _outline(data, key)
    if found is None:
        return None
    message: dict[str, Any] = parse(found.rest(data))
    if found.list_at is not None:
        items: list[bytes] = []
        for span in found.spans:
            item = data[slice(*span)]
            value = yield from one_piece(partial(parse, item), len(item))
            if isinstance(value, dict):
                items.append(item)
        message["result"][key] = LongList(items)
    return message


def _outline(response: bytes, key: str) -> Piecewise[Outline | None]:
    try:
        return (yield from outline(response, key, MOST_ITEMS))
    except TooManyItems:
        return None
