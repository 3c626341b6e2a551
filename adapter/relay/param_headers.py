"""``Mcp-Param-*`` headers: a stage that rewrites an argument rewrites the header that mirrors it.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from adapter.errors import BadJson, HeaderMismatch
from adapter.relay.background import in_turns
from adapter.relay.stages import Call
from adapter.rules.access.access_rules import SHAPES, OfferKind, read_page
from adapter.rules.calls.arguments import NO_HEADERS, Headers, annotated, check_parameters, headers_of
from adapter.rules.tools.lists import ListRefused
from adapter.wire.envelope import parse, value_at
from adapter.wire.eras import decode_mirror, encode_mirror
from adapter.wire.piecewise import one_piece

PREFIX = "mcp-param-"

KNOWN = 100_000
"""Tools of one server whose headers are remembered, those that were listed last."""
MOST_PAGES = 20
"""Pages of the upstream's list of tools that are read for the schema of one call."""

Argument = Sequence[str | int]
"""The path of an argument below ``arguments``."""


class ParamHeaders:
    """The header that mirrors each argument of each tool, as the upstream's own list of tools said it."""

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

    def of(self, tool: str) -> Headers:
        """The headers of a tool; none of one that is not known."""
        return self._headers.get(tool, NO_HEADERS)

    async def check(self, call: Call) -> None:
        """Raise HeaderMismatch unless the headers of a modern call say what the arguments say that they mirror.

        Where the tool's schema is not known and there is such a header, the upstream is asked for it, and its
        failures are raised.
        """
        if not call.modern:
            return
        tool = call.envelope.name or ""
        if tool not in self._headers and any(name.lower().startswith(PREFIX) for name, _ in call.headers):
            await self._read_schema(call, tool)
        if known := self._headers.get(tool):
            arguments = value_at(parse(call.request), "params", "arguments")
            check_parameters(known, arguments, _by_name(call.headers))

    async def _read_schema(self, call: Call, tool: str) -> None:
        """Learn from the upstream's list of tools, page by page, until the tool is known."""
        cursor: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            response = await call.fetch("tools/list", cursor) if call.fetch is not None else None
            found, following = await headers_on(response, tool)
            if found is not None:
                self.learn([tool], {tool: found})
            if following is None:
                return
            cursor = {"cursor": following}

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
            value = value_at(after, *path)
            was = value_at(before, *path)
            if value == was and type(value) is type(was):
                continue
            call.headers = [field for field in call.headers if field[0].lower() != header.lower()]
            if isinstance(value, str | int):
                call.headers.append((header, encode_mirror(value)))


def mirrored(schema: object, arguments: object) -> list[tuple[str, str]]:
    """The headers that mirror a call's arguments, as the tool's input schema asks for them."""
    return mirrors(dict(annotated(schema)), arguments)


def mirrors(headers: Headers, arguments: object) -> list[tuple[str, str]]:
    """Those of these ``headers`` whose arguments a call has, with what they say."""
    return [
        (name, encode_mirror(value))
        for path, name in headers.items()
        if isinstance(value := value_at(arguments, *path), str | int)
    ]


def _says(header: str, text: str) -> bool:
    try:
        return decode_mirror(header) == text
    except HeaderMismatch:
        return False


def _by_name(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The fields by their names in lower case; those of one name joined as RFC 9110 §5.3 has it."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


async def headers_on(response: bytes | None, tool: str) -> tuple[Headers | None, str | None]:
    """The headers of a tool that is on this page of the list, and the cursor of the next page where it is not."""
    try:
        page = None if response is None else await in_turns(read_page(response, SHAPES[OfferKind.TOOL]))
    except (BadJson, ListRefused):
        return None, None
    if page is None:
        return None, None
    for name, definition in page.entries:
        if name == tool:
            value = await in_turns(one_piece(partial(parse, definition), len(definition)))
            return headers_of(definition, value), None
    return None, page.cursor
