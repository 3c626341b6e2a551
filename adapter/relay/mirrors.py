"""``Mcp-Param-*`` headers: a stage that rewrites an argument rewrites the header that mirrors it.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adapter.errors import HeaderMismatch
from adapter.relay.stages import Call
from adapter.wire.eras import decode_mirror, encode_mirror

PREFIX = "mcp-param-"
ANNOTATION = "x-mcp-header"

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""What the name of a header may be (RFC 9110 §5.1); an upstream's schema is data like any other."""

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

        A header that the tool's schema asks for is added where the call had none, for an argument that the adapter
        gives needs its mirror too. While the schema is not known, the header is found by what it says: a handle
        is its own kind.
        """
        if not call.modern:
            return
        value = encode_mirror(new)
        known = self._headers.get(call.envelope.name or "")
        if known is not None:
            name = known.get(tuple(map(str, argument)))
            if name is not None:
                call.headers = [field for field in call.headers if field[0].lower() != name.lower()]
                call.headers.append((name, value))
        elif isinstance(old, str):
            call.headers = [
                (field, value) if field.lower().startswith(PREFIX) and _says(said, old) else (field, said)
                for field, said in call.headers
            ]

    def renew(self, call: Call, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Make the headers of a modern call say the arguments ``after`` they were changed: one that is another now, or
        gone, or new. Those of arguments that stayed are left as they came.

        While the schema is not known, texts are found by what headers say, as for ``rewrite``.
        """
        if not call.modern:
            return
        known = self._headers.get(call.envelope.name or "")
        if known is None:
            for name, value in after.items():
                if isinstance(value, str) and value != before.get(name):
                    self.rewrite(call, (name,), before.get(name), value)
            return
        for path, header in known.items():
            value = _at(after, path)
            was = _at(before, path)
            if value == was and type(value) is type(was):
                continue
            call.headers = [field for field in call.headers if field[0].lower() != header.lower()]
            if isinstance(value, str | int):
                call.headers.append((header, encode_mirror(value)))


def mirrored(schema: object, arguments: object) -> list[tuple[str, str]]:
    """The headers that mirror a call's arguments, as the tool's input schema asks for them."""
    return [
        (name, encode_mirror(value))
        for path, name in _annotated(schema)
        if isinstance(value := _at(arguments, path), str | int)
    ]


def _at(value: object, path: Sequence[str]) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _annotated(schema: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """The header of each property that has one. Only those reached through ``properties`` alone may be mirrored."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, here = todo.pop()
        properties = here.get("properties") if isinstance(here, dict) else None
        if not isinstance(properties, dict):
            continue
        for key, inner in properties.items():
            todo.append(((*path, key), inner))
            name = inner.get(ANNOTATION) if isinstance(inner, dict) else None
            if isinstance(name, str) and _TOKEN.fullmatch(name):
                yield (*path, key), f"Mcp-Param-{name}"


def _says(header: str, text: str) -> bool:
    try:
        return decode_mirror(header) == text
    except HeaderMismatch:
        return False
