"""The arguments of a tool that are mirrored by headers, as its input schema says. Pure.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

ANNOTATION = "x-mcp-header"

DEEPEST = 32
"""Objects within each other of which an argument may be mirrored; a path is written out for each."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""What the name of a header may be (RFC 9110 §5.1); an upstream's schema is data like any other."""

Headers = Mapping[tuple[str, ...], str]
"""The header of each argument that has one, by its path."""

NO_HEADERS: Headers = {}


def annotated(schema: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """The header of each property that has one. Only those reached through ``properties`` alone may be mirrored."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, here = todo.pop()
        properties = here.get("properties") if isinstance(here, dict) else None
        if not isinstance(properties, dict) or len(path) == DEEPEST:
            continue
        for key, inner in properties.items():
            if not isinstance(inner, dict):
                continue
            todo.append(((*path, key), inner))
            name = inner.get(ANNOTATION)
            if isinstance(name, str) and _TOKEN.fullmatch(name):
                yield (*path, key), f"Mcp-Param-{name}"


def headers_of(definition: bytes, value: Mapping[str, Any]) -> Headers:
    """The headers of a tool's arguments. ``value`` is what ``definition`` says."""
    # Few tools have any, and a backslash may hide the word.
    if b"x-mcp-header" not in definition and b"\\" not in definition:
        return NO_HEADERS
    return dict(annotated(value.get("inputSchema")))
