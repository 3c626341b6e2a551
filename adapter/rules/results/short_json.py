"""Results, JSON and texts made smaller without being broken, and files read in whole parts. Pure.

Lists end earlier and texts are cut; what is left is valid JSON in the spelling in which it came. Nothing is parsed but
the texts that are cut, so that the cost is that of finding where values end.

The limit of a result counts everything in it: texts, images, resources, structured content. Whole items are left out,
so that neither a character nor a JSON text is ever cut; a last item says that something is missing. A part of a file
ends with a whole character, line or value.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson

from adapter.rules.files.structured_artifacts import Shown, ShownFile
from adapter.wire.envelope import dump, list_at, value_at
from adapter.wire.scan import (
    OPEN_ARRAY,
    OPEN_OBJECT,
    byte,
    end_of_value,
    items,
    members,
    skip_space,
    text_pieces,
)
from adapter.wire.spans import Span

MORE = "…"
"""The end of a text that was cut."""

_LONGEST_MORE = len(r"\u2026")

SHORT_TEXT = 120
"""Bytes of a text, with its quotes, that is never cut."""

DEEPEST = 16
"""Levels at which anything is left out; what is nested deeper stays whole, or goes with the item that holds it."""

Keeps = Literal["members", "room"]
"""Whether all members of objects stay, as a schema may require them, or as many as there is room for."""

_LARGE = 4096
"""Bytes of an object whose least is remembered."""

_QUOTE = ord('"')


def beginning(text: str, room: int) -> str:
    """The longest beginning of a text that has at most so many bytes as JSON, quotes included."""
    text = text[: max(0, room - 2)]
    if len(dump(text)) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(dump(text[:middle])) <= room else (low, middle - 1)
    return text[:low]


def json_in(text: bytes) -> Span | None:
    """The place of the object, list or string of JSON that a text is, None for any other text. Its inside is not
    looked at.
    """
    start = skip_space(text, 0)
    if byte(text, start) not in (OPEN_OBJECT, OPEN_ARRAY, _QUOTE):
        return None
    try:
        end = end_of_value(text, start)
    except ValueError:
        return None
    return (start, end) if skip_space(text, end) == len(text) else None


def shortened(doc: bytes, span: Span, room: int, keeps: Keeps) -> bytes | None:
    """The JSON value at ``span`` in at most ``room`` bytes, None where it cannot be made as short.

    Raises ValueError for what is no JSON.
    """
    short = _Shortening(doc, keeps)
    least = short.least(span, 0, room)
    if least > room:
        return None
    short.left = room - least
    return b"".join(short.value(span, 0))


class _Shortening:
    """Spends what is ``left`` of the room, beyond the least that each value needs, from the first value on."""

    def __init__(self, doc: bytes, keeps: Keeps) -> None:
        self._doc = doc
        self._keeps = keeps
        self.left = 0
        self._least: dict[int, int] = {}

    def least(self, span: Span, depth: int, most: int) -> int:
        """The bytes of a value of which as much as may be is left out; above ``most`` they are not counted further."""
        start, end = span
        if (known := self._least.get(start)) is not None:
            return known
        opening = byte(self._doc, start)
        if opening == _QUOTE:
            return min(end - start, SHORT_TEXT)
        if depth >= DEEPEST or opening not in (OPEN_OBJECT, OPEN_ARRAY):
            return end - start
        if opening == OPEN_ARRAY or self._keeps == "room":
            return 2
        least = 2
        for each in self._members(start):
            if least > most:
                return least
            least += self._member(*each, depth, most - least)
        if end - start > _LARGE:
            # Else each level would be looked through again for each level above it.
            self._least[start] = least
        return least

    def value(self, span: Span, depth: int) -> Iterator[bytes]:
        """The pieces of a value whose least is paid for."""
        start, end = span
        whole = end - start - self.least(span, depth, end - start)
        if whole <= self.left:
            self.left -= whole
            yield self._doc[start:end]
            return
        opening = byte(self._doc, start)
        if opening == _QUOTE:
            yield self._text(span)
            return
        brackets = b"[]" if opening == OPEN_ARRAY else b"{}"
        yield brackets[:1]
        yield from self._array(start, depth) if opening == OPEN_ARRAY else self._object(start, depth)
        yield brackets[1:]

    def _text(self, span: Span) -> bytes:
        room = SHORT_TEXT + self.left
        piece = next(text_pieces(self._doc, span[0] + 1, span[1] - 1, step=room))
        text = dump(beginning(piece, room - _LONGEST_MORE) + MORE)
        self.left = max(0, room - len(text))
        return text

    def _array(self, start: int, depth: int) -> Iterator[bytes]:
        comma = b""
        for item in items(self._doc, start):
            least = len(comma) + self.least(item, depth + 1, self.left)
            # Whole items are worth more than many whose texts are cut; one of those is better than none.
            if max(least, item[1] - item[0] if comma else 0) > self.left:
                return
            self.left -= least
            yield comma
            yield from self.value(item, depth + 1)
            comma = b","

    def _object(self, start: int, depth: int) -> Iterator[bytes]:
        comma = b""
        for key, value in self._members(start):
            if self._keeps == "room":
                least = self._member(key, value, depth, self.left)
                if least > self.left:
                    return
                self.left -= least
            yield comma + key + b":"
            yield from self.value(value, depth + 1)
            comma = b","

    def _member(self, key: bytes, value: Span, depth: int, most: int) -> int:
        """The least bytes of a member, with its colon and a comma."""
        return len(key) + 2 + self.least(value, depth + 1, most)

    def _members(self, start: int) -> Iterator[tuple[bytes, Span]]:
        for each in members(self._doc, start):
            key = self._doc[each.key_start : each.value_start].rstrip(b" \t\r\n:")
            yield key, (each.value_start, each.value_end)


MOST_STEPS = 32
"""Steps of a JSON pointer: each looks through all that is below the one before."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_LONGEST_CHARACTER = 4


class NothingThere(Exception):
    """A JSON pointer leads nowhere; the text says where it ends."""


def characters(data: bytes, skip: int, *, at_end: bool) -> tuple[int, str] | None:
    """The text of some bytes of a file, and where in them it begins; None where they are no UTF-8.

    The first ``skip`` bytes are there to find where the character begins that the next byte belongs to. The last
    character is left out where its end is missing, unless the file is ``at_end``.
    """
    start = skip
    while (
        start and start < len(data) and data[start] & 0xC0 == 0x80 and skip - start < _LONGEST_CHARACTER - 1
    ):
        start -= 1
    try:
        return start, codecs.getincrementaldecoder("utf-8")().decode(data[start:], at_end)
    except UnicodeDecodeError:
        return None


def pointed(doc: bytes, pointer: str) -> Span:
    """The place of the value that a JSON pointer (RFC 6901) leads to. Of members with one name the last counts.

    Raises NothingThere, and ValueError for what is no JSON.
    """
    start = skip_space(doc, 0)
    span = start, end_of_value(doc, start)
    if not pointer:
        return span
    steps = pointer.split("/", MOST_STEPS + 1)
    if steps[0] or len(steps) > MOST_STEPS + 1:
        raise NothingThere(
            f'json_pointer is empty, or begins with "/" and has at most {MOST_STEPS} steps, as in /items/0/name.'
        )
    for place, step in enumerate(steps[1:], 2):
        found = _child(doc, span[0], step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise NothingThere(f"There is nothing at {'/'.join(steps[:place])} in this document.")
        span = found
    return span


def _child(doc: bytes, start: int, step: str) -> Span | None:
    opening = byte(doc, start)
    if opening == OPEN_OBJECT:
        found = None
        for each in members(doc, start):
            if each.key == step:
                found = each.value_start, each.value_end
        return found
    if opening == OPEN_ARRAY and _INDEX.fullmatch(step):
        return next(islice(items(doc, start), int(step), None), None)
    return None


_OWN = "adapter/"


@dataclass(frozen=True, slots=True)
class Attachments:
    """The parts of a result's content: ``data`` is the tool's own, ``links`` lead to its artifacts, ``files`` are
    such artifacts themselves. ``members`` are members of the result that the adapter has added.
    """

    data: Any
    links: tuple[Any, ...]
    files: tuple[Any, ...]
    members: Mapping[str, Any]


def attachments(result: Mapping[str, Any]) -> Attachments:
    """Separate the adapter's part of a result of ``tools/call`` from the tool's part."""
    meta = result.get("_meta")
    shown = list(_artifacts(meta)) if isinstance(meta, Mapping) else []
    members = {"resultType": result["resultType"]} if "resultType" in result else {}
    if isinstance(meta, Mapping) and (own := _own(meta)):
        members["_meta"] = own
    content = result.get("content")
    if not shown or not isinstance(content, list):
        return Attachments(content, (), (), members)
    added = [block for artifact in shown for block in artifact.blocks()]
    uris = {artifact.uri for artifact in shown}
    links = tuple(block for block in content if block in added)
    files = tuple(block for block in content if _embedded(block) in uris)
    data = [block for block in content if block not in added and _embedded(block) not in uris]
    return Attachments(data, links, files, members)


def _own(meta: Mapping[str, Any]) -> dict[str, Any]:
    entries = {key: value for key, value in meta.items() if key.startswith(_OWN)}
    if (artifact := _shown(meta.get("artifact"))) is not None:
        entries["artifact"] = artifact.meta
    if listed := [each.meta for each in map(_shown, list_at(meta, "artifacts")) if each]:
        entries["artifacts"] = listed
    if isinstance(meta.get("artifact_error"), str):
        entries["artifact_error"] = meta["artifact_error"]
    return entries


def _artifacts(meta: Mapping[str, Any]) -> Iterator[Shown]:
    several = meta.get("artifacts")
    for entry in several if isinstance(several, list) else [meta.get("artifact")]:
        if (shown := _shown(entry)) is not None:
            yield shown


def _shown(entry: Any) -> Shown | None:
    """Return the artifact that an entry describes; None for an entry that the adapter would never have written."""
    if not isinstance(entry, Mapping):
        return None
    shown = Shown(
        uri=entry.get("artifact_uri", ""),
        id=entry.get("artifact_id", ""),
        file=ShownFile(
            entry.get("filename", ""),
            entry.get("mime_type", ""),
            entry.get("size_bytes", 0),
            entry.get("sha256", ""),
        ),
        expires_at=entry.get("expires_at"),
        exposed=entry.get("expose_as_resource", False),
        download_url=entry.get("download_url"),
    )
    flat = not any(isinstance(value, Mapping | list) for value in entry.values())
    return shown if flat and shown.meta == entry else None


def _embedded(block: Any) -> str | None:
    """The URI of a resource that is embedded in the content."""
    uri = value_at(block, "resource", "uri")
    return uri if isinstance(uri, str) else None


LEAST = 1024
Weight = Callable[[Any], int]
"""A part of a result, to its bytes of JSON."""

_KIB, _MIB = 1024, 1024 * 1024
_REPLACED = ("content", "structuredContent", "isError")


def limited(result: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """The result of ``tools/call`` in ``limit`` bytes of JSON, which are at least LEAST; the same object if it fits.

    Structured content comes before items, because clients that know its schema demand it. A result of which nothing
    but the sentence is left is an error.
    """
    most = max(limit, LEAST)
    weight = _weight_of(result)
    if weight(result) <= most:
        return result
    rest = {key: value for key, value in result.items() if key not in _REPLACED}
    if weight(_put(rest, [_sentence(most)], None, failed=True)) > most:
        rest = {key: result[key] for key in ("resultType",) if result.get(key) == "complete"}
    return _kept(result, rest, most, weight)


def sentence(limit: int) -> str:
    """The sentence in the last item of a result that was larger than so many bytes."""
    return (
        f"\n\n[SYSTEM INTERVENTION: Payload truncated at {_size(max(limit, LEAST))} to prevent memory crash. "
        "You MUST use pagination (limit/offset) or filters to retrieve smaller result sets.]"
    )


def _kept(result: Mapping[str, Any], rest: dict[str, Any], most: int, weight: Weight) -> dict[str, Any]:
    failed = result.get("isError") is True
    last = _sentence(most)
    structured = result.get("structuredContent")
    if structured is not None and weight(_put(rest, [last], structured, failed=True)) > most:
        structured = None
    room = most - weight(_put(rest, [last], structured, failed=failed))
    content: list[Any] = []
    items = result.get("content")
    for item in items if isinstance(items, list) else ():
        size = weight(item) + len(", ")
        if size <= room:
            room -= size
            content.append(item)
    nothing = not content and structured is None
    return _put(rest, [*content, last], structured, failed=failed or nothing)


def _weight_of(whole: Any) -> Weight:
    """Return the function that measures the parts of a whole.

    The size of a part is the number of its bytes in the JSON that ``envelope.dump`` makes of the whole.
    """
    try:
        orjson.dumps(whole)
    except orjson.JSONEncodeError:
        # One lone surrogate, and all of it is written in ASCII, which is the longer spelling of anything.
        return lambda part: len(json.dumps(part))
    return lambda part: len(orjson.dumps(part))


def _put(rest: Mapping[str, Any], content: list[Any], structured: Any, *, failed: bool) -> dict[str, Any]:
    members = {**rest, "content": content}
    if structured is not None:
        members["structuredContent"] = structured
    if failed:
        members["isError"] = True
    return members


def _sentence(most: int) -> dict[str, Any]:
    return {"type": "text", "text": sentence(most)}


def _size(count: int) -> str:
    return f"{count / _MIB:.1f}MB" if count >= _MIB else f"{count / _KIB:.0f}KB"
