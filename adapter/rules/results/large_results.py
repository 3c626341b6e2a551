"""Results of tools that are too large to be shown whole: which parts of them are kept as files, and what stands in
their place. Pure.

A response is looked through and edited as bytes: what is not left out keeps its spelling.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from adapter.rules.files.structured_artifacts import MEMBERS, Shown, ShownFile
from adapter.rules.results.short_json import Keeps, beginning, json_in, shortened
from adapter.wire.envelope import dump, parse
from adapter.wire.scan import OPEN_ARRAY, OPEN_OBJECT, byte, text_pieces
from adapter.wire.spans import Edit, Insert, Path, Replace, Span, edit, find, items, members

JSON, TEXT = "application/json", "text/plain"

CONTENT: Path = ("content",)
STRUCTURED: Path = ("structuredContent",)

_LISTED = Shown("artifact://a", "a", ShownFile("a", JSON, 1, "a"), None, exposed=True).entry

_BASE64 = 1 << 20
"""Bytes that are decoded at once, a multiple of four."""

NOTE = 1024
"""Bytes of what is said of a part and the link to it, about."""


class Terms(NamedTuple):
    """A result has at most ``above`` bytes of JSON, the preview of one part ``preview``. ``reader`` is the tool that
    reads on.
    """

    above: int
    preview: int
    reader: str


@dataclass(frozen=True, slots=True)
class LargePart:
    """A part of a result at ``path``: a block, all blocks, or the structured content. ``data`` is the place of what
    is kept of it: a string whose text, or whose bytes in base64, are the file, or JSON as it stands there.
    """

    path: Path
    span: Span
    data: Span
    kind: Literal["text", "base64", "json"]
    name: str | None = None
    media_type: str | None = None

    @property
    def size(self) -> int:
        """Bytes in the result."""
        return self.span[1] - self.span[0]

    def file(self, response: bytes) -> tuple[bytes, str | None]:
        """The bytes that are kept of it, and their media type, where it is known. Raises ValueError."""
        start, end = self.data
        if self.kind == "json":
            return response[start:end], JSON
        pieces = text_pieces(response, start + 1, end - 1)
        data = b"".join(piece.encode("utf-8", "surrogatepass") for piece in pieces)
        if self.kind == "base64":
            decoded = _decoded(data)
            return (data, TEXT) if decoded is None else (decoded, self.media_type)
        return data, self.media_type or (TEXT if json_in(data) is None else JSON)


def _decoded(data: bytes) -> bytes | None:
    """What bytes in base64 stand for, None where they are none. In pieces, so that other threads come to their turn."""
    if data.find(b"=", 0, -2) >= 0:
        return None
    try:
        starts = range(0, len(data), _BASE64)
        return b"".join(base64.b64decode(data[at : at + _BASE64], validate=True) for at in starts)
    except binascii.Error:
        return None


class KeptPart(NamedTuple):
    """A part that was kept: the bytes of its file, and how that is shown. ``short`` is the value in its place, of
    structured content.
    """

    part: LargePart
    data: bytes
    shown: Shown
    short: bytes | None = None

    def note(self, preview: str, terms: Terms) -> dict[str, Any]:
        """The block that says how much there is, and how to get the rest."""
        file, until = self.shown.file, self.shown.expires_at
        url = self.shown.download_url
        pointer = ", or json_pointer" if file.media_type == JSON else ""
        lines = "" if self.part.kind == "base64" else f", or first_line and lines{pointer}"
        said = [
            f"{preview} All of it ({file.size} bytes, {file.media_type}) is kept as {self.shown.uri}"
            f"{'' if until is None else f' until {until}, and longer while it is used'}.",
            f"To read it call {terms.reader} with this uri and offset and length in bytes{lines}.",
            *(() if url is None else (f"Or download it: {url}",)),
        ]
        return {"type": "text", "text": " ".join(said)}

    def blocks(self, response: bytes, terms: Terms) -> Iterator[bytes]:
        """The blocks that stand in its place."""
        part = self.part
        if part.path == CONTENT:
            shown = list(_leading(response, part.span, terms.preview))
            count = sum(1 for _ in items(response, part.span[0]))
            yield from shown
            said = (
                f"This result is too large to be shown whole: {len(shown)} of its {count} blocks are above."
            )
        elif part.path == STRUCTURED:
            said = "structuredContent is shortened: it is too large to be shown whole."
        elif part.kind == "text":
            text = _preview(self.data, terms.preview)
            yield _block_with(response[slice(*part.span)], text)
            size = len(text.encode("utf-8", "surrogatepass"))
            said = f"This text is too large to be shown whole: above are {size} bytes of it, shortened."
        else:
            said = "This block is too large to be shown."
        yield dump(self.note(said, terms))
        yield dump(next(self.shown.blocks()))


# --- choosing -------------------------------------------------------------------------------------------------


class ResultPlace(NamedTuple):
    """The place of a result in its response, and those of its members."""

    span: Span
    members: Mapping[str, Span]

    @property
    def size(self) -> int:
        return self.span[1] - self.span[0]


def result_of(response: bytes, path: Path = ()) -> ResultPlace | None:
    """The complete result of a tool in ``result`` of a response, or at a path in that; None for anything else."""
    place = find(response, ("result", *path))
    if place is None or byte(response, place[0]) != OPEN_OBJECT:
        return None
    found = {each.key: (each.value_start, each.value_end) for each in members(response, place[0])}
    kind = response[slice(*found["resultType"])] if "resultType" in found else b'"complete"'
    content = found.get("content")
    if kind != b'"complete"' or (content is not None and byte(response, content[0]) != OPEN_ARRAY):
        return None
    return ResultPlace(place, found) if content is not None or "structuredContent" in found else None


def structured_part(result: ResultPlace, terms: Terms) -> LargePart | None:
    """The structured content where it is worth shortening."""
    span = result.members.get("structuredContent")
    if span is None or span[1] - span[0] <= terms.preview:
        return None
    return LargePart(STRUCTURED, span, span, "json")


def chosen(
    response: bytes, result: ResultPlace, structured: LargePart | None, terms: Terms
) -> list[LargePart]:
    """The parts to be kept: the largest first, until the rest of the result fits. Where blocks are large together,
    but not each, all of them are one part. ``structured`` is the structured content if it can be shortened.
    """
    content = result.members.get("content")
    blocks = [] if content is None else list(_block_parts(response, content, terms.preview + NOTE))
    found: list[LargePart] = []
    left, shown = result.size, terms.preview + NOTE
    for part in sorted((*blocks, *filter(None, (structured,))), key=lambda part: -part.size):
        if left <= terms.above:
            break
        found.append(part)
        left -= part.size - shown
    if left > terms.above and content is not None:
        rest = LargePart(CONTENT, content, content, "json")
        # What they would still take by themselves counts too: there may be thousands.
        if rest.size > sum(part.size - shown for part in found if part.path != STRUCTURED) + 2 * shown:
            found = [rest, *(part for part in found if part.path == STRUCTURED)]
    return found


def _block_parts(response: bytes, content: Span, least: int) -> Iterator[LargePart]:
    for index, span in enumerate(items(response, content[0])):
        if span[1] - span[0] > least and byte(response, span[0]) == OPEN_OBJECT:
            part = _block_part(response, ("content", index), span)
            if part is not None:
                yield part


def _block_part(response: bytes, path: Path, span: Span) -> LargePart | None:
    """A block that holds a text or bytes; None for any other, which stays."""
    found = _places(response, span[0])
    kind = _word(response, found.get("type"))
    if kind == "resource" and "resource" in found and byte(response, found["resource"][0]) == OPEN_OBJECT:
        found = _places(response, found["resource"][0])
        key = "text" if "text" in found else "blob"
    else:
        key = {"text": "text", "image": "data", "audio": "data"}.get(kind or "", "")
    data = found.get(key)
    if data is None or byte(response, data[0]) != ord('"'):
        return None
    return LargePart(
        path,
        span,
        data,
        "text" if key == "text" else "base64",
        _word(response, found.get("uri")),
        _word(response, found.get("mimeType")),
    )


def _places(response: bytes, start: int) -> dict[str, Span]:
    return {each.key: (each.value_start, each.value_end) for each in members(response, start)}


def _word(response: bytes, span: Span | None) -> str | None:
    """A short text, such as a type; None for anything else."""
    if span is None or not 2 <= span[1] - span[0] <= NOTE or byte(response, span[0]) != ord('"'):
        return None
    text: str = parse(response[slice(*span)])
    return text


# --- showing --------------------------------------------------------------------------------------------------


def without_rest(
    response: bytes, result: ResultPlace, kept: Sequence[KeptPart], terms: Terms, path: Path = ()
) -> bytes:
    """The response with previews in the place of the parts that were kept."""
    by_path = {each.part.path: each for each in kept}
    content, structured = result.members.get("content"), by_path.get(STRUCTURED)
    blocks: list[bytes] = []
    if CONTENT in by_path:
        blocks += by_path[CONTENT].blocks(response, terms)
    elif content is not None:
        for index, span in enumerate(items(response, content[0])):
            part = by_path.get(("content", index))
            blocks += [response[slice(*span)]] if part is None else part.blocks(response, terms)
    place = ("result", *path)
    edits: list[Edit] = []
    if structured is not None and structured.short is not None:
        blocks += structured.blocks(response, terms)
        edits.append(Replace((*place, "structuredContent"), structured.short))
    edits.append(Insert((*place, "content"), b"[" + b",".join(blocks) + b"]"))
    return edit(response, edits)


def short_structured(
    response: bytes, part: LargePart, terms: Terms, fits: Callable[[Any], bool]
) -> tuple[bytes, str | None] | None:
    """A shorter value in the place of structured content, and the member that may list files in it, if any.

    ``fits`` tells whether the schema that the client knows allows a value. None where no shorter one is allowed.
    """
    attempts: tuple[tuple[int, Keeps], ...] = (
        (terms.preview, "members"),
        (terms.above // 2, "members"),
        (terms.preview, "room"),
    )
    for room, keeps in attempts:
        short = shortened(response, part.span, room, keeps)
        if short is None:
            continue
        value = parse(short)
        if isinstance(value, dict):
            own = {each.key for each in members(response, part.span[0])}
            key = next((name for name in MEMBERS if name not in own), None)
            if key is not None and fits({**value, key: [_LISTED]}):
                return short, key
        if fits(value):
            return short, None
    return None


def listing(short: bytes, key: str | None, shown: Shown) -> bytes:
    """A shortened value in which the member ``key``, if any, lists its file."""
    return short if key is None else edit(short, [Insert((key,), dump([shown.entry]))])


def _preview(data: bytes, room: int) -> str:
    """The beginning of a text; of JSON the same in fewer words."""
    span = json_in(data)
    if span is not None:
        size = room
        while size >= 2:
            try:
                short = shortened(data, span, size, "room")
                text = "" if short is None else short.decode()
            except ValueError:  # or half a character, which JSON may hold
                break
            if not text:
                break
            if len(dump(text)) <= room:
                return text
            size //= 2
    # One byte stands for at most six of JSON, so no more are needed; the last character may be cut in two.
    text = beginning(data[:room].decode("utf-8", "ignore"), room)
    line = text.rfind("\n", len(text) // 2)
    return text if line < 0 else text[: line + 1]


def _block_with(block: bytes, text: str) -> bytes:
    """A block of text with another text. What else it says stays; an embedded resource becomes a block of text."""
    if _word(block, find(block, ("type",))) != "text":
        return dump({"type": "text", "text": text})
    return edit(block, [Replace(("text",), dump(text))])


def _leading(response: bytes, content: Span, room: int) -> Iterator[bytes]:
    for start, end in items(response, content[0]):
        room -= end - start + 1
        if room < 0:
            return
        yield response[start:end]
