"""The capabilities that the adapter adds to an upstream's, in the answer to initialize or server/discover. Pure."""

from __future__ import annotations

from adapter.wire.envelope import parse
from adapter.wire.spans import Edit, Insert, edit


def announced(response: bytes, *, tools: bool, resources: bool, changing: bool) -> bytes:
    """The response with the capabilities that the adapter's own tools and resources need.

    ``changing``: the adapter tells when the list of resources changes. ``response`` itself where it already says
    all that, or is no result.
    """
    message = parse(response)
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return response
    found = result.get("capabilities", {})
    if not isinstance(found, dict):
        return response
    edits: list[Edit] = []
    if tools and not isinstance(found.get("tools"), dict):
        edits.append(Insert(("result", "capabilities", "tools"), b"{}"))
    if resources:
        edits += _resources(found.get("resources"), changing=changing)
    return edit(response, edits) if edits else response


def _resources(found: object, *, changing: bool) -> list[Edit]:
    path = ("result", "capabilities", "resources")
    if not isinstance(found, dict):
        return [Insert(path, b'{"listChanged":true}' if changing else b"{}")]
    if changing and found.get("listChanged") is not True:
        return [Insert((*path, "listChanged"), b"true")]
    return []
