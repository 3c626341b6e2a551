"""Additions to the lists of an upstream (tools, resources); everything of its own keeps its bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Edit, Insert, edit, find, items

METHOD_NOT_FOUND = -32601


def ended_with(
    response: bytes, key: str, added: Sequence[dict[str, Any]], cursor: str | None, *, modern: bool
) -> bytes:
    """A list response whose ``result[key]`` goes on with ``added``, and says where the rest is to be asked for.

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
    return edit(response, [*edits, *_kept_private(modern=modern)])


def next_cursor(response: bytes) -> str | None:
    """Where the upstream says its list goes on, or None."""
    result = _result(response)
    cursor = result.get("nextCursor") if result is not None else None
    return cursor if isinstance(cursor, str) else None


def has_no_such_method(response: bytes) -> bool:
    """Whether the upstream answered that it does not know the method at all."""
    if b"-32601" not in response:
        return False
    message = parse(response)
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


def _kept_private(*, modern: bool) -> list[Edit]:
    """What was added is for this scope alone, so nobody may share the list (MCP 2026-07-28, caching)."""
    return [Insert(("result", "cacheScope"), b'"private"')] if modern else []
