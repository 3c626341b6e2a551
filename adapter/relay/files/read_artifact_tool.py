"""The tool ``<server_id>_read_artifact``: how a model reads a file that is too large to be shown to it whole."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from adapter.errors import AdapterError
from adapter.files.port import OpenFile
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.sessions.session_map import ClientFact
from adapter.relay.stages import Call, Stage
from adapter.rules.clients.hosts import host_limit
from adapter.rules.files.media_types import is_text
from adapter.rules.results.short_json import NothingThere, beginning, characters, pointed, shortened
from adapter.rules.results.tool_results import rpc_result, tool_result
from adapter.rules.tools.definitions import own_tool
from adapter.wire.envelope import dump, parse

ABOVE = 64 << 10
"""Bytes of one answer where no ``large_results`` says otherwise."""

MOST_SCANNED = 256 << 20
"""Bytes of a file that are searched for the beginning of a line; in a thread, for less than a second."""

LARGEST_DOCUMENT = 32 << 20
"""Bytes of a JSON document in which a pointer is followed: it is read whole, one document at a time."""

LARGEST_ANSWER = 1 << 20
"""Bytes of an answer, whatever the settings say: it is written in one turn of the loop."""

SMALLEST_ANSWER = 4 << 10
"""Bytes in which there is room for what is said beside the data."""

_BLOCK = 1 << 20
_HEAD = 2048
"""Bytes of an answer beside its data."""
_CHARACTER = 4

_MODES = ("offset", "length"), ("first_line", "lines"), ("json_pointer",)
_LEAST = {"offset": 0, "length": 1, "first_line": 1, "lines": 1}
_GONE = "There is no artifact with this URI for you here: it has expired, or it never was."


class ReadRefused(Exception):
    """An artifact cannot be read as it was asked for; the text is for the model."""


class ReadRule(NamedTuple):
    """The reading of one server's artifacts, whose URIs begin with ``scheme``: at most ``most`` bytes at a time."""

    server: str
    scheme: str = "artifact://"
    most: int = ABOVE

    @property
    def tool_name(self) -> str:
        return f"{self.server}_read_artifact"


class _Part(NamedTuple):
    """What is answered: its place in the file and more about it, the data, and the arguments that read on."""

    place: dict[str, Any]
    data: str
    next: dict[str, Any] | None
    encoding: str = "utf-8"


@dataclass(eq=False, repr=False)
class ReadArtifactTool(Stage):
    """The stage that answers calls of the tool. Callers reach artifacts of their own scope only.

    Of the ``clients`` one that is known to show less gets less at a time.
    """

    rule: ReadRule
    registry: FileRegistry
    clients: ClientFact[Mapping[str, str]]
    _document: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def ask(self, call: Call) -> bytes | None:
        try:
            blocks = await self._answered(call)
        except (ReadRefused, AdapterError) as error:
            return tool_result(call.envelope.id_bytes, str(error), None, modern=call.modern, is_error=True)
        result: dict[str, Any] = {"resultType": "complete"} if call.modern else {}
        result["content"] = [{"type": "text", "text": text} for text in blocks]
        return rpc_result(call.envelope.id_bytes, result)

    async def _answered(self, call: Call) -> tuple[str, str]:
        """The texts of an answer: what was read, as JSON, and the data itself."""
        arguments = _checked(parse(call.request)["params"].get("arguments") or {})
        record = await self.registry.find_artifact(call.scope.id, arguments["uri"], self.rule.scheme)
        if record is None or record.server != self.rule.server:
            raise ReadRefused(_GONE)
        most = min(self.rule.most, host_limit(await self.clients.of(call)) or self.rule.most)
        file = await self.registry.read(record)
        reader = _Reader(file, most - _HEAD)
        try:
            if "json_pointer" in arguments:
                async with self._document:
                    part = await reader.by_pointer(arguments["json_pointer"])
            elif "first_line" in arguments or "lines" in arguments:
                part = await reader.by_line(arguments.get("first_line", 1), arguments.get("lines"))
            else:
                text = is_text(record.content.media_type)
                part = await reader.by_offset(arguments.get("offset", 0), arguments.get("length"), text=text)
        finally:
            file.close()
        head = {"total": file.size, **part.place, "encoding": part.encoding, "next": part.next}
        return dump(head).decode(), part.data


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads a file in one of three ways, at most so many bytes of JSON at a time as there is ``room`` for."""

    file: OpenFile
    room: int

    async def by_offset(self, offset: int, length: int | None, *, text: bool) -> _Part:
        if offset > self.file.size:
            raise ReadRefused(f"The artifact has {self.file.size} bytes, so none begins at offset {offset}.")
        size = min(length or self.room, self.room)
        skip = min(offset, _CHARACTER - 1)
        data = await self.file.read(offset - skip, skip + max(size, _CHARACTER))
        found = None
        if text:
            found = characters(data, skip, at_end=offset - skip + len(data) >= self.file.size)
        if found is None:
            data = data[skip : skip + min(size, self.room * 3 // 4)]
            behind = offset + len(data)
            place = {"offset": offset, "bytes": len(data)}
            encoded = base64.b64encode(data).decode("ascii")
            return _Part(place, encoded, _next(self.file, {"offset": behind}, behind), "base64")
        start, shown = found[0] - skip + offset, beginning(found[1], self.room)
        if len(shown) > 1:
            # A character is never cut, so the first is there even where fewer bytes were asked for.
            room = offset + size - start
            shown = shown.encode()[:room].decode("utf-8", "ignore") or shown[0]
        behind = start + len(shown.encode())
        return _Part(
            {"offset": start, "bytes": behind - start}, shown, _next(self.file, {"offset": behind}, behind)
        )

    async def by_line(self, first: int, count: int | None) -> _Part:
        at = await _line_start(self.file, first)
        data = await self.file.read(at, self.room)
        found = characters(data, 0, at_end=at + len(data) >= self.file.size)
        if found is None:
            raise ReadRefused(
                "This artifact is no text in UTF-8, so it has no lines; read it by offset and length."
            )
        # Not splitlines(): only line feeds were counted.
        lines = [f"{line}\n" for line in beginning(found[1], self.room).split("\n")]
        last = lines.pop()[:-1]
        whole = lines if count is None else lines[:count]
        text = "".join(whole)
        ends = at + len(text.encode()) + len(last.encode()) >= self.file.size
        if (
            last
            and len(whole) == len(lines)
            and (not lines or ends)
            and (count is None or len(lines) < count)
        ):
            # The last line has no end, or is too long to be shown whole.
            whole, text = [*whole, last], text + last
        behind = at + len(text.encode())
        on: dict[str, Any] = {"first_line": first + len(whole), **({} if count is None else {"lines": count})}
        if text and not text.endswith("\n"):
            on = {"offset": behind}
        place = {"first_line": first, "lines": len(whole), "offset": at, "bytes": behind - at}
        return _Part(place, text, _next(self.file, on, behind))

    async def by_pointer(self, pointer: str) -> _Part:
        if self.file.size > LARGEST_DOCUMENT:
            raise ReadRefused(
                f"The artifact has {self.file.size} bytes, and json_pointer is for documents of at most "
                f"{LARGEST_DOCUMENT}; read it by offset and length, or by first_line and lines."
            )
        try:
            return await asyncio.to_thread(partial(self._pointed, await self.file.whole(), pointer))
        except NothingThere as error:
            raise ReadRefused(str(error)) from None
        except ValueError:
            raise ReadRefused("This artifact is no JSON; read it by offset and length.") from None

    def _pointed(self, doc: bytes, pointer: str) -> _Part:
        start, end = pointed(doc, pointer)
        place: dict[str, Any] = {"offset": start, "bytes": end - start}
        whole = doc[start : min(end, start + self.room)].decode("utf-8", "ignore")
        if end - start <= self.room and len(dump(whole)) <= self.room:
            return _Part(place, whole, None)
        # Half of it: as a text in an answer each quote of JSON has a backslash.
        short = shortened(doc, (start, end), self.room // 2, "room")
        shown = beginning(whole if short is None else short.decode(), self.room)
        return _Part({**place, "shortened": True}, shown, {"offset": start})


def definition(rule: ReadRule) -> dict[str, Any]:
    """The tool as a client sees it in the list."""
    whole = {"type": "integer"}
    return own_tool(
        rule.tool_name,
        "Read an artifact",
        (
            f"Reads a part of an {rule.scheme} URI that a tool of this server answered with: by offset and length in "
            "bytes, by first_line and lines, or by json_pointer for one value of a JSON document. An answer has at "
            f"most {rule.most} bytes; its first text says what it is and, in next, which arguments read on."
        ),
        {
            "uri": {"type": "string", "description": f"The {rule.scheme} URI."},
            "offset": {**whole, "minimum": 0, "description": "First byte; 0 is the first of all."},
            "length": {**whole, "minimum": 1, "description": "Bytes to read."},
            "first_line": {**whole, "minimum": 1, "description": "First line; 1 is the first of all."},
            "lines": {**whole, "minimum": 1, "description": "Lines to read."},
            "json_pointer": {"type": "string", "description": "RFC 6901, as in /items/0/name."},
        },
    )


def _checked(given: Any) -> Mapping[str, Any]:
    """The arguments of a call. Raises ReadRefused."""
    arguments = (
        {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else {}
    )
    if not isinstance(arguments.get("uri"), str):
        raise ReadRefused("uri is required: the artifact:// URI of the result.")
    unknown = arguments.keys() - {"uri", *(name for mode in _MODES for name in mode)}
    if unknown or sum(not arguments.keys().isdisjoint(mode) for mode in _MODES) > 1:
        raise ReadRefused(
            "Beside uri give offset and length, or first_line and lines, or json_pointer, and nothing else."
        )
    for name, least in _LEAST.items():
        value = arguments.get(name, least)
        if type(value) is not int or value < least:
            raise ReadRefused(f"{name} must be a whole number of at least {least}.")
    if not isinstance(arguments.get("json_pointer", ""), str):
        raise ReadRefused("json_pointer must be a text, as in /items/0/name.")
    return arguments


async def _line_start(file: OpenFile, first: int) -> int:
    """The first byte of a line. Raises ReadRefused where there is no such line, or it is too far away."""
    at, left = 0, first - 1
    while left:
        if at >= MOST_SCANNED:
            raise ReadRefused(
                f"Line {first} is not within the first {MOST_SCANNED} bytes, and no more are searched for lines; read "
                "by offset and length."
            )
        block = await file.read(at, _BLOCK)
        if not block:
            raise ReadRefused(f"The artifact has fewer than {first} lines.")
        count = block.count(b"\n")
        if count >= left:
            return at + _behind_lines(block, left)
        at, left = at + len(block), left - count
    return at


def _behind_lines(block: bytes, left: int) -> int:
    """The place behind so many lines: halves are counted, as a block may be a million of them."""
    start, end = 0, len(block)
    while end - start > 1:
        middle = (start + end) // 2
        count = block.count(b"\n", start, middle)
        if count >= left:
            end = middle
        else:
            start, left = middle, left - count
    return end


def _next(file: OpenFile, arguments: dict[str, Any], behind: int) -> dict[str, Any] | None:
    """The arguments that read on, None at the end of the file."""
    return arguments if behind < file.size else None
