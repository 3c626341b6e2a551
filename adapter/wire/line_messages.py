"""Messages of a server that has one pipe for all of them: its lines are read for their addressee, and renumbered.

Source of the rules: MCP, "stdio", of the revisions through 2026-07-28. What is not edited keeps its bytes.

The framing of the stdio transport: one JSON-RPC message on each line, in any slicing. Pure.

Source of the rules: MCP, transports, "stdio": messages are delimited by newlines and contain none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.wire.envelope import Envelope, Kind, parse, read_response
from adapter.wire.names import SUBSCRIPTION_KEY
from adapter.wire.scan import has_more_values
from adapter.wire.shared_ids import CANCELLED, PROGRESS, TOKEN, token_of, with_id
from adapter.wire.spans import Edit, Replace, Span, edit, find, items

RpcId = str | int | float

LARGE = 64 << 10
"""Bytes from which on a response is recognised by its first or last members, without parsing what is between them."""

LARGEST = 4 << 20
"""Bytes of a message that is read whole. Responses may be larger where their first or last members tell the id."""

MOST_VALUES = 100_000
"""Values of such a message: to read them takes some ten milliseconds."""

MOST_IN_BATCH = 256
"""Messages of a batch. The adapter sends none, so no server owes it one; a larger batch could hold all others up."""

UNNAMED_VERSION = "2025-03-26"
"""The version of a result that names none (MCP 2025-11-25, "Protocol Version Header")."""

_SUBSCRIPTION = ("params", "_meta", SUBSCRIPTION_KEY)
_RESULT_SUBSCRIPTION = ("result", "_meta", SUBSCRIPTION_KEY)
_LINE_ENDS = b"\r\n"

# Two shapes that the serializers of servers write. In valid JSON neither can be the inside of a string: the first
# begins the text, and before the last brace only an escaped quotation mark could belong to one.
_S = rb"[ \t]{0,4}"
_ID = rb'(-?[0-9]{1,15}|"[^"\\\x00-\x1f]{0,200}")'
_PARTS = {b"s": _S, b"id": _ID, b"rpc": rb"\"jsonrpc\"%(s)s:%(s)s\"2\.0\"" % {b"s": _S}}
_RESPONSE_HEAD = re.compile(
    rb"\{%(s)s(?:%(rpc)s%(s)s,%(s)s)?\"id\"%(s)s:%(s)s%(id)s%(s)s,%(s)s(?:%(rpc)s%(s)s,%(s)s)?\"result\"%(s)s:"
    % _PARTS
)
_RESULT_FIRST = re.compile(rb"\{%(s)s(?:%(rpc)s%(s)s,%(s)s)?\"result\"%(s)s:" % _PARTS)
_RESPONSE_TAIL = re.compile(
    rb"[}\]]%(s)s,%(s)s(?:%(rpc)s%(s)s,%(s)s)?\"id\"%(s)s:%(s)s%(id)s%(s)s(?:,%(s)s%(rpc)s%(s)s)?\}%(s)s\Z"
    % _PARTS
)
_TAIL_LENGTH = 300
_BATCH = re.compile(rb"[ \t\r\n]*\[")
_PLAIN_TOKEN = re.compile(rb'"progressToken"%(s)s:%(s)s%(id)s' % {b"s": _S, b"id": _ID})


class LineMessage(NamedTuple):
    """One message of a server: its bytes, and the members that tell for whom it is.

    ``number`` is the id of a request or response. ``token`` is the progress token that a notification is about, or
    that a request brings. ``about`` is the id of the request that a cancellation or a subscription's notification
    names. ``uri`` is the resource that was updated. ``code`` is that of an error. ``id_span`` is the place of the id,
    where that was found on the way.
    """

    kind: Kind
    data: bytes
    method: str = ""
    number: RpcId | None = None
    token: RpcId | None = None
    about: RpcId | None = None
    uri: str | None = None
    code: int | None = None
    id_span: Span | None = None


def as_line(body: bytes) -> bytes:
    """A JSON text without line ends. In valid JSON they stand between tokens only, where they mean nothing."""
    if b"\n" not in body and b"\r" not in body:
        return body
    return body.translate(None, _LINE_ENDS)


def messages_of(line: bytes) -> list[LineMessage]:
    """The messages of a line, several where it is a batch (MCP 2025-03-26). Raises BadJson for what is no message.

    A batch has less than LARGE bytes and at most MOST_IN_BATCH messages; a larger one is not read. Nor is another
    message above LARGEST or MOST_VALUES, unless it is a response in one of the usual shapes.
    """
    if len(line) >= LARGE:
        if (answer := _large_response(line)) is not None:
            return [answer]
        # In this order: each look takes longer for a longer line.
        if len(line) > LARGEST or _BATCH.match(line) or has_more_values(line, MOST_VALUES):
            raise BadJson("This message or batch is too large.")
    message = parse(line)
    if isinstance(message, dict):
        return [_read(message, line)]
    if isinstance(message, list) and len(message) > MOST_IN_BATCH:
        raise BadJson("This batch has too many messages.")
    if isinstance(message, list) and message and all(isinstance(each, dict) for each in message):
        return [_read(each, line[start:end]) for each, (start, end) in zip(message, items(line), strict=True)]
    raise BadJson("This is JSON, but no JSON-RPC message.")


def number_of_long_line(head: bytes, tail: bytes) -> RpcId | None:
    """The id of a response of which only the first and last bytes are known; None where they do not tell."""
    found = _of_response(head, tail)
    return None if found is None else _rpc_id(parse(found[1]))


def _large_response(line: bytes) -> LineMessage | None:
    """A response in one of the usual shapes; None for anything else."""
    found = _of_response(line, line)
    if found is None:
        return None
    return LineMessage(Kind.RESPONSE, line, number=_rpc_id(parse(found[1])), id_span=found.span(1))


def _of_response(head: bytes, tail: bytes) -> re.Match[bytes] | None:
    """The match whose first group is the id."""
    found = _RESPONSE_HEAD.match(head)
    if found is None and _RESULT_FIRST.match(head):
        return _RESPONSE_TAIL.search(tail, max(0, len(tail) - _TAIL_LENGTH))
    return found


def _read(message: dict[str, Any], data: bytes) -> LineMessage:
    method, number = message.get("method"), message.get("id")
    if method is None and type(number) is int and "result" in message:
        # Almost all messages.
        return LineMessage(Kind.RESPONSE, data, "", number)
    number = _rpc_id(number)
    if method is None and ("result" in message or "error" in message):
        if isinstance(number, float):
            # An integer of more than 64 bits, which is compared exactly.
            read = read_response(data)
            number = None if read is None else read.id
        error = message.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return LineMessage(Kind.RESPONSE, data, number=number, code=code if type(code) is int else None)
    if not isinstance(method, str):
        raise BadJson("This is JSON, but no JSON-RPC message.")
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    if number is not None:
        return LineMessage(Kind.REQUEST, data, method, number, _rpc_id(meta.get("progressToken")))
    about = params.get("requestId") if method == CANCELLED else meta.get(SUBSCRIPTION_KEY)
    token = _rpc_id(params.get("progressToken")) if method == PROGRESS else None
    uri = params.get("uri")
    uri = uri if isinstance(uri, str) else None
    return LineMessage(Kind.NOTIFICATION, data, method, None, token, _rpc_id(about), uri)


def _rpc_id(value: object) -> RpcId | None:
    """``value`` if it is an id or a token; JSON's true is none, although Python counts it among the numbers."""
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


# --- renumbering ----------------------------------------------------------------------------------------------


class Renumbered(NamedTuple):
    """A client's request under another id. ``token`` is the client's progress token as it was spelled, or None."""

    data: bytes
    token: bytes | None


def renumbered(request: Envelope, text: bytes) -> Renumbered:
    """A request under the id ``text`` (JSON), which is its progress token as well where it has one."""
    body = request.body
    edits: list[Edit] = [Replace(("id",), text)]
    token = token_of(body)
    if token is not None:
        edits.append(Replace(TOKEN, text))
    return Renumbered(edit(body, edits), token)


def token_in(request: bytes) -> RpcId | None:
    """The progress token of a request, None where there is none."""
    # A backslash may hide an escaped spelling of the key.
    plain_text = b"\\" not in request
    if plain_text and b"progressToken" not in request:
        return None
    if plain_text and len(plain := _PLAIN_TOKEN.findall(request)) == 1:
        # Without a backslash no string holds these bytes. In another place of the message they are a token for nobody.
        return _rpc_id(parse(plain[0]))
    if len(request) >= LARGE:
        text = token_of(request)
        return None if text is None else _rpc_id(parse(text))
    # To parse a short message takes less time than to look for one value in it.
    params = parse(request).get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return _rpc_id(meta.get("progressToken")) if isinstance(meta, dict) else None


def answered(response: LineMessage, text: bytes) -> bytes:
    """A response under the id of the client's request."""
    if response.id_span is None:
        return with_id(response.data, text)
    start, end = response.id_span
    return response.data[:start] + text + response.data[end:]


def with_subscription(message: LineMessage, text: bytes) -> bytes:
    """A message of a subscription under the id of the request that the client opened it with."""
    path = _RESULT_SUBSCRIPTION if message.kind is Kind.RESPONSE else _SUBSCRIPTION
    return edit(message.data, [Replace(path, text)]) if find(message.data, path) else message.data


def without_capabilities(initialize: Envelope) -> bytes:
    """An ``initialize`` of a client that can do nothing but ask."""
    if find(initialize.body, ("params", "capabilities")) is None:
        return initialize.body
    return edit(initialize.body, [Replace(("params", "capabilities"), b"{}")])


def agreed_version(response: LineMessage) -> str | None:
    """The protocol version of a successful response to ``initialize``, None for an error."""
    span = find(response.data, ("result",))
    if span is None:
        return None
    value = parse(response.data[slice(*span)])
    version = value.get("protocolVersion") if isinstance(value, dict) else None
    return version if isinstance(version, str) else UNNAMED_VERSION


_KEPT = 256
"""Bytes kept of the beginning and of the end of a line that is too long: enough for the id of a message."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of ``size`` bytes that was dropped, because that is above the limit.

    ``head`` and ``tail`` are its first and last bytes, at most 256 each. A message names its id in one of the two.
    """

    size: int
    head: bytes
    tail: bytes


Line = bytes | LongLine


class LineReader:
    """Cuts a stream into lines of at most ``limit`` bytes, in time linear in what was fed.

    A line ends with LF or CRLF, which do not belong to it. Empty lines are skipped. Of a line above the limit at most
    ``limit`` bytes are held, and it comes out as one LongLine when it ends.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._partial = bytearray()
        self._dropping: _Dropping | None = None

    @property
    def held(self) -> int:
        """Bytes of the incomplete line that are in memory."""
        return len(self._partial)

    def feed(self, piece: bytes) -> list[Line]:
        """Return the lines that ``piece`` completes, in their order."""
        if not self._partial and self._dropping is None and piece.find(b"\n") == len(piece) - 1:
            # Most pieces are one line, with its end.
            line: Line = piece[:-1]
            if len(piece) > self.limit or piece.endswith(b"\r\n"):
                line = self._line(piece[:-1])
            return [line] if line else []
        first, *others = piece.split(b"\n")
        if not others:
            self._grow(first)
            return []
        lines = self._completed(first)
        self._partial += others.pop()
        if len(piece) <= self.limit and b"\r" not in piece:
            lines += filter(None, others)
        else:
            lines += [line for each in others if (line := self._line(each))]
        if len(self._partial) > self.limit:
            self._shed()
        return lines

    def end(self) -> list[Line]:
        """Return the line that the stream ended in, if it has no line end: one item or none."""
        return self._completed(b"")

    def _grow(self, piece: bytes) -> None:
        if self._dropping is not None:
            self._dropping.add(piece)
            return
        self._partial += piece
        if len(self._partial) > self.limit:
            self._shed()

    def _shed(self) -> None:
        # One byte more may be the CR of the line's end, which does not count.
        if len(self._partial) == self.limit + 1 and self._partial.endswith(b"\r"):
            return
        self._dropping = _Dropping()
        # Not as bytes: a copy of all of it would be as much memory again.
        self._dropping.add(self._partial)
        self._partial = bytearray()

    def _completed(self, rest: bytes) -> list[Line]:
        """Return the line that was incomplete until ``rest``."""
        if self._dropping is not None:
            self._dropping.add(rest)
            dropped, self._dropping = self._dropping.line(), None
            return [dropped]
        whole = rest
        if self._partial:
            # One copy of a line that may be long.
            self._partial += rest
            whole, self._partial = bytes(self._partial), bytearray()
        line = self._line(whole)
        return [line] if line else []

    def _line(self, whole: bytes) -> Line:
        line = whole[:-1] if whole.endswith(b"\r") else whole
        if len(line) <= self.limit:
            return line
        return LongLine(len(line), line[:_KEPT], line[-_KEPT:])


class _Dropping:
    """A line above the limit, while it arrives."""

    def __init__(self) -> None:
        self._size = 0
        self._head = b""
        # One byte more than is kept, because the last may be the CR of the line's end.
        self._tail = b""

    def add(self, piece: bytes | bytearray) -> None:
        self._size += len(piece)
        if len(self._head) < _KEPT:
            self._head = (self._head + piece[:_KEPT])[:_KEPT]
        self._tail = (self._tail + piece[-_KEPT - 1 :])[-_KEPT - 1 :]

    def line(self) -> LongLine:
        ends_in_cr = self._tail.endswith(b"\r")
        size = self._size - ends_in_cr
        tail = self._tail[:-1] if ends_in_cr else self._tail
        return LongLine(size, self._head[:size], tail[-_KEPT:])
