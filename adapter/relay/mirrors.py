"""``Mcp-Param-*`` headers: a stage that rewrites an argument rewrites the header that mirrors it.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adapter.errors import HeaderMismatch
from adapter.relay.stages import Call
from adapter.wire.eras import decode_mirror, encode_mirror

PREFIX = "mcp-param-"
ANNOTATION = "x-mcp-header"

Argument = Sequence[str | int]
"""The path of an argument below ``arguments``."""


class Mirrors:
    """Which header mirrors which argument of which tool, as the upstream's own list of tools said it."""

    def __init__(self) -> None:
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}

    def learn(self, tool: str, schema: object) -> None:
        """Take note of a tool's input schema."""
        self._headers[tool] = dict(_annotated(schema))

    def rewrite(self, call: Call, argument: Argument, old: object, new: str) -> None:
        """Make the headers of a modern call say ``new`` where they said ``old``.

        While the tool's schema is not known, the header is found by what it says: a handle is its own kind.
        """
        if not call.modern:
            return
        name = self._headers.get(call.envelope.name or "", {}).get(tuple(map(str, argument)))
        value = encode_mirror(new)
        if name is not None:
            mirror = f"{PREFIX}{name}".lower()
            call.headers = [field for field in call.headers if field[0].lower() != mirror]
            call.headers.append((f"Mcp-Param-{name}", value))
        elif isinstance(old, str):
            call.headers = [
                (field, value) if field.lower().startswith(PREFIX) and _says(said, old) else (field, said)
                for field, said in call.headers
            ]


def _annotated(schema: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Only properties reached through ``properties`` alone may be mirrored."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, here = todo.pop()
        properties = here.get("properties") if isinstance(here, dict) else None
        if not isinstance(properties, dict):
            continue
        for key, inner in properties.items():
            todo.append(((*path, key), inner))
            name = inner.get(ANNOTATION) if isinstance(inner, dict) else None
            if isinstance(name, str) and name:
                yield (*path, key), name


def _says(header: str, text: str) -> bool:
    try:
        return decode_mirror(header) == text
    except HeaderMismatch:
        return False
