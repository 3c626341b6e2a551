"""Server-sent events, read from bytes in any slicing and written again with every other byte kept.

Source of the rules: WHATWG HTML, "Server-sent events", parsing and interpreting an event stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.errors import MessageTooLong

_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"
_LONGEST_RETRY = 15
_LONGEST_KEPT_LINE = 4096

# A line end and the blank line behind it. What begins with CR may be CRLF, so the byte after it decides; only
# behind a bare CR is another one complete at once, or the last event of such a stream would never arrive.
_BLANK = re.compile(rb"\n\n|\r\r|\n\r(?:\n|(?=[^\n]))")
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(slots=True)
class SseEvent:
    """One block of the stream, as far as its blank line.

    ``raw`` is the exact bytes of the block; its first ``lead`` bytes belong to no line (a byte order mark, or
    the LF of a CRLF that the block before ended in). ``data`` is None if the block has no data field, as a
    comment has none. ``skipped`` marks a block above the limit, of which only ``id`` and ``retry`` are known.
    """

    raw: bytes
    data: bytes | None
    event: bytes = b"message"
    id: bytes | None = None
    retry: int | None = None
    skipped: bool = False
    lead: int = 0


class SseReader:
    """Cuts a stream into events; the concatenation of their ``raw`` and of ``rest`` is what was fed.

    ``limit`` is in bytes of one block. A larger one raises MessageTooLong, or with ``skip`` comes out as a
    skipped event without its bytes. ``last_id`` and ``retry`` (milliseconds) are those of
    the last complete event.
    """

    def __init__(self, limit: int, *, skip: bool = False) -> None:
        self.last_id = b""
        self.retry: int | None = None
        self.limit = limit
        self._skip = skip
        self._pending = bytearray()
        self._scanned = 0
        self._first = True
        self._after_cr = False
        self._overflow: SseEvent | None = None

    @property
    def rest(self) -> bytes:
        """The bytes of the incomplete block at the end of what was fed (of an oversized block, a remnant)."""
        return bytes(self._pending)

    @property
    def inside(self) -> bool:
        """Tell whether a block has begun and not ended."""
        if self._overflow is not None:
            return True
        lead = self._lead(self._pending, 0)
        return lead < 0 or len(self._pending) > lead

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that ``chunk`` completes. Raises MessageTooLong; the reader is of no use after that."""
        buffer: bytes | bytearray = chunk
        if self._pending:
            self._pending += chunk
            buffer = self._pending
        events = []
        start, scanned, size = 0, self._scanned, len(buffer)
        only_lf = buffer.find(b"\r", scanned) < 0
        while start < size:
            lead = self._lead(buffer, start) if self._first or self._after_cr else 0
            end = -1 if lead < 0 else _block_end(buffer, start + lead, scanned, only_lf)
            if end < 0:
                break
            events.append(self._complete(bytes(buffer[start:end]), lead))
            start = scanned = end
        if buffer is chunk:
            if start < size:
                self._pending += chunk[start:]
        else:
            del self._pending[:start]
        # Two bytes may already belong to the end of the block that the next chunk completes.
        self._scanned = max(0, len(self._pending) - 2)
        if self._overflow is not None or len(self._pending) > self.limit:
            self._shed(self._lead(self._pending, 0))
        return events

    def _lead(self, buffer: bytes | bytearray, start: int) -> int:
        """Return the number of bytes at ``start`` before the first line; -1 while that cannot be told."""
        if self._first:
            head = bytes(buffer[start : start + len(_BOM)])
            if head == _BOM:
                return len(_BOM)
            return -1 if head and _BOM.startswith(head) else 0
        return 1 if self._after_cr and buffer[start : start + 1] == b"\n" else 0

    def _complete(self, raw: bytes, lead: int) -> SseEvent:
        self._first = False
        self._after_cr = raw[-1] == _CR
        if self._overflow is None and len(raw) <= self.limit:
            event = _parse(raw, lead)
        else:
            event = self._skipped_so_far()
            _read_hints(event, raw[lead:])
            self._overflow = None
        if event.id is not None:
            self.last_id = event.id
        if event.retry is not None:
            self.retry = event.retry
        return event

    def _skipped_so_far(self) -> SseEvent:
        if not self._skip:
            raise MessageTooLong(f"An event of the stream is larger than the limit of {self.limit} bytes.")
        return self._overflow or SseEvent(raw=b"", data=None, skipped=True)

    def _shed(self, lead: int) -> None:
        """Let go of an oversized block's complete lines, and of the one under way unless it may be an id.

        What stays in its place ends the block, or does not, by the same bytes as before.
        """
        if lead < 0:
            return
        self._overflow = self._skipped_so_far()
        pending = bytes(self._pending[lead:])
        # A CR at the end may yet become CRLF, or be the first half of a blank line: it stays with its line.
        kept_end = len(pending) - 1 if pending.endswith(b"\r") else len(pending)
        cut = max(pending.rfind(b"\n", 0, kept_end), pending.rfind(b"\r", 0, kept_end)) + 1
        _read_hints(self._overflow, pending[:cut])
        line = pending[cut:]
        if len(line.rstrip(b"\r")) > _LONGEST_KEPT_LINE or line.startswith((b"data:", b":")):
            line = b":\r" if line.endswith(b"\r") else b":"
        self._first = False
        self._after_cr = False
        self._pending[:] = line
        self._scanned = max(0, len(line) - 2)


def _block_end(buffer: bytes | bytearray, start: int, scanned: int, only_lf: bool) -> int:
    """Find where the block whose first line is at ``start`` ends, or -1; nothing ends before ``scanned``."""
    if start >= len(buffer):
        return -1
    first = buffer[start]
    if first == _LF:
        return start + 1
    if first == _CR:
        if start + 1 == len(buffer):
            return -1
        return start + 2 if buffer[start + 1] == _LF else start + 1
    begin = max(start, scanned)
    if only_lf:
        found = buffer.find(b"\n\n", begin)
        return found + 2 if found >= 0 else -1
    match = _BLANK.search(buffer, begin)
    return match.end() if match else -1


def _lines(block: bytes) -> list[bytes]:
    # In this way, and not by a pattern: a line of megabytes would take it a hundred times as long.
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")


def _line_spans(block: bytes, start: int) -> Iterator[tuple[int, int, int]]:
    """Find where each line begins, where its line end does, and where that ends; the last line may have none."""
    size = len(block)
    lf = cr = start - 1
    while start < size:
        if lf < start:
            lf = block.find(b"\n", start) % (size + 1)
        if cr < start:
            cr = block.find(b"\r", start) % (size + 1)
        end = min(lf, cr)
        behind = min(size, end + 2 if lf == cr + 1 else end + 1)
        yield start, end, behind
        start = behind


def _parse(raw: bytes, lead: int) -> SseEvent:
    event = SseEvent(raw, None, lead=lead)
    data = []
    for line in _lines(raw[lead:]):
        # A copy of megabytes is made once and not twice.
        if line.startswith(b"data:"):
            data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(b"")
        elif name == b"event":
            event.event = value.removeprefix(b" ") or b"message"
        elif name == b"id" or name == b"retry":
            _read_hint(event, name, value.removeprefix(b" "))
    if data:
        event.data = data[0] if len(data) == 1 else b"\n".join(data)
    return event


def data_of_one(block: bytes) -> bytes | None:
    """The data of a block that is exactly one event, with lines that all end in LF or CRLF; None for any other.

    For a block that begins with a line and ends with a blank one. It costs half of what a reader does.
    """
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    if b"\r" in text or text.startswith((b"\n", _BOM)) or text.find(b"\n\n") != len(text) - 2:
        return None
    data = []
    for line in text.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
        elif line == b"data":
            data.append(b"")
    return b"\n".join(data) if data else None


def _read_hint(event: SseEvent, name: bytes, value: bytes) -> None:
    if name == b"id" and b"\0" not in value:
        event.id = value
    # int() of thousands of digits raises; a wait that long is none.
    elif name == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
        event.retry = int(value)


def _read_hints(event: SseEvent, block: bytes) -> None:
    for line in _lines(block):
        if len(line) <= _LONGEST_KEPT_LINE:
            name, _, value = line.partition(b":")
            _read_hint(event, name, value.removeprefix(b" "))


def encode(data: bytes, *, event: bytes | None = None, id: bytes | None = None) -> bytes:
    """One event as bytes. Raises ValueError for an event name or id that does not fit on a line."""
    head = b""
    for name, value in ((b"event", event), (b"id", id)):
        if value is not None:
            if _LINE_END.search(value) or b"\0" in value:
                raise ValueError(f"the {name.decode()} of an event holds no line end and no NUL")
            head += name + b": " + value + b"\n"
    return head + _data_lines(data, b"\n") + b"\n"


def replace_data(event: SseEvent, data: bytes) -> bytes:
    """``event.raw`` with its data replaced and every other line as it was. ValueError if it has no data."""
    if event.data is None:
        raise ValueError("an event without data has none to replace")
    raw = event.raw
    pieces, written = [raw[: event.lead]], False
    for start, end, behind in _line_spans(raw, event.lead):
        if raw[start : min(end, start + 5)] not in (b"data", b"data:"):
            # Behind a line that is left out, a CR and an LF that ended two lines would become one line end.
            if raw[start:behind] == b"\n" and pieces[-1].endswith(b"\r"):
                pieces.append(b"\n")
            pieces.append(raw[start:behind])
        elif not written:
            written = True
            pieces.append(_data_lines(data, raw[end:behind]))
    return b"".join(pieces)


def replace_id(event: SseEvent, id: bytes) -> bytes:
    """``event.raw`` with another id in each of its id lines. ``id`` holds no line end."""
    raw = event.raw
    pieces = [raw[: event.lead]]
    for start, end, behind in _line_spans(raw, event.lead):
        is_id = raw[start : min(end, start + 3)] in (b"id", b"id:")
        pieces.append(b"id: " + id + raw[end:behind] if is_id else raw[start:behind])
    return b"".join(pieces)


def _data_lines(data: bytes, end: bytes) -> bytes:
    if b"\n" not in data and b"\r" not in data:
        return b"data: " + data + end
    return b"".join(b"data: " + line + end for line in _lines(data))
