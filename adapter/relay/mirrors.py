"""``Mcp-Param-*`` headers: a stage that rewrites an argument rewrites the header that mirrors it.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.errors import HeaderMismatch
from adapter.relay.stages import Call
from adapter.rules.parameter_headers import NO_HEADERS, Headers, annotated
from adapter.wire.eras import decode_mirror, encode_mirror

PREFIX = "mcp-param-"

KNOWN = 100_000
"""Tools of one server whose headers are remembered, those that were listed last."""

Argument = Sequence[str | int]
"""The path of an argument below ``arguments``."""


class Mirrors:
    """Which header mirrors which argument of which tool, as the upstream's own list of tools said it."""

    def __init__(self) -> None:
        self._headers: OrderedDict[str, Headers] = OrderedDict()

    def learn(self, tools: Iterable[str], headers: Mapping[str, Headers]) -> None:
        """Take note of tools, and of the headers of those that have any."""
        known = self._headers
        for tool in tools:
            known[tool] = headers.get(tool, NO_HEADERS)
            known.move_to_end(tool)
            if len(known) > KNOWN:
                known.popitem(last=False)

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
        for path, name in annotated(schema)
        if isinstance(value := _at(arguments, path), str | int)
    ]


def _at(value: object, path: Sequence[str]) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _says(header: str, text: str) -> bool:
    try:
        return decode_mirror(header) == text
    except HeaderMismatch:
        return False
