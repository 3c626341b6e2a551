"""multipart/form-data as it arrives (RFC 7578): files piece by piece, their digests beside them.

python_multipart reads the bytes; its callbacks only collect, and whoever feeds takes out and writes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from adapter.errors import NotMultipart, UploadRefused

FILE_FIELD = "file"
DIGEST_FIELD = "sha256"

PART_HEAD_LIMIT = 16 * 1024
"""Bytes of the fields of one part."""

PART_FIELDS_LIMIT = 16
"""Fields of one part."""

NAME_LIMIT = 4096
"""Bytes of a file's name: in a URL each may take three, and the head of a request has room for 32 KiB."""

DIGEST_LIMIT = 256
"""Bytes of a field that says a digest; 64 are needed."""

_PARAMETER = re.compile(r';\s*([^\s=;]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|"([^"]*)"|([^\s;]*))', re.DOTALL)
_ESCAPED = re.compile(r'\\([\\"])')
_CODINGS = ("", "binary", "8bit", "7bit")

_UNHEARD = logging.Logger("unheard", logging.CRITICAL + 1)
"""What is wrong with a form is said to who sent it; in the log anybody could fill pages with it."""


class FileBegins(NamedTuple):
    """``filename`` as its sender has it; ``media_type`` as said, or None."""

    filename: str
    media_type: str | None


class Mark(Enum):
    FILE_ENDS = "file ends"


Event = FileBegins | bytes | Mark
"""A file begins, bytes of it, and it ends."""


class Form:
    """Reads one form. ``beside`` is how many bytes may be anything but the content of files."""

    def __init__(self, boundary: bytes, *, beside: int) -> None:
        self.digests: list[str] = []
        """What the digest fields said, in their order, without white space around."""
        self._beside = beside
        self._events: list[Event] = []
        self._field = self._value = b""
        self._head: dict[str, str] = {}
        self._head_fields = self._head_size = 0
        self._in_file = False
        self._digest: bytes | None = None
        self._complete = False
        self._delimiter = b"\r\n--" + boundary
        self._first_delimiter = b"\n--" + boundary
        self._preamble: bytes | None = b"\n"
        self._chunk = b""
        self.amid_file = False
        """What comes next is content of a file, or the delimiter behind it."""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_field,
                "on_header_value": self._add_value,
                "on_header_end": self._end_field,
                "on_headers_finished": self._end_head,
                "on_part_data": self._add_data,
                "on_part_end": self._end,
                "on_end": self._finish,
            },
            max_header_count=PART_FIELDS_LIMIT,
            max_header_size=PART_HEAD_LIMIT,
        )
        self._parser.logger = _UNHEARD

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events in these bytes. Raises UploadRefused where they are not a form, or hold too much."""
        if self.amid_file and self._is_content(chunk):
            return [chunk]
        self._beside -= len(chunk)
        if self._preamble is not None:
            chunk = self._behind_preamble(self._preamble + chunk)
        self._events = []
        self._chunk, self.amid_file = chunk, False
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise UploadRefused("The body is not valid multipart/form-data (RFC 7578).") from None
        if self._beside < 0:
            raise UploadRefused("The form has too much data besides the files.")
        # A form and its parser know each other: what they held on to would stay until the collector comes by.
        events, self._events, self._chunk = self._events, [], b""
        return events

    def _behind_preamble(self, data: bytes) -> bytes:
        """The first delimiter and what comes behind it (RFC 2046 §5.1.1); nothing while it has not come.

        ``data`` begins with the end of what came before, or with a line end where that is nothing.
        """
        found = data.find(self._first_delimiter)
        if found < 0:
            self._preamble = data[-len(self._first_delimiter) + 1 :]
            return b""
        self._preamble = None
        return data[found + 1 :]

    def _is_content(self, chunk: bytes) -> bool:
        """Tell whether a chunk that begins inside a file is only content.

        The parser would find the same in several times the time.
        """
        content = content_in(chunk, len(chunk), self._delimiter)
        return content.size == len(chunk)

    def content(self, receive: Callable[[memoryview], int]) -> FormContent:
        """Return the content that follows ``amid_file``, for a thread to ``receive``; feed its ``rest`` next."""
        return FormContent(receive, self._delimiter)

    def end(self) -> None:
        """Nothing comes any more. Raises UploadRefused where the form is not complete."""
        if not self._complete:
            raise UploadRefused("The body ends before its last boundary.")

    # --- what the parser says ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._head = {}
        self._head_fields = self._head_size = 0

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._measure_head(end - start)
        self._field += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._measure_head(end - start)
        self._value += data[start:end]

    def _measure_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > PART_HEAD_LIMIT:
            raise UploadRefused(f"The headers of a part are larger than {PART_HEAD_LIMIT} bytes.")

    def _end_field(self) -> None:
        self._head_fields += 1
        if self._head_fields > PART_FIELDS_LIMIT:
            raise UploadRefused(f"A part has more than {PART_FIELDS_LIMIT} headers.")
        self._head.setdefault(self._field.decode("latin-1").lower(), _text(self._value).strip(" \t"))
        self._field = self._value = b""

    def _end_head(self) -> None:
        kind, parameters = _parameters(self._head.get("content-disposition", ""))
        name = parameters.get("name") if kind == "form-data" else None
        if name == FILE_FIELD:
            self._begin_file(parameters)
        elif name == DIGEST_FIELD:
            self._digest = b""

    def _begin_file(self, parameters: dict[str, str]) -> None:
        filename = _extended(parameters.get("filename*", "")) or _filename(parameters.get("filename", ""))
        if not filename:
            raise UploadRefused(f"A part named {FILE_FIELD} is not a file: it has no filename.")
        if len(filename.encode("utf-8", "surrogatepass")) > NAME_LIMIT:
            raise UploadRefused(f"The name of a file is longer than {NAME_LIMIT} bytes.")
        if self._head.get("content-transfer-encoding", "").lower() not in _CODINGS:
            raise UploadRefused("Send files without a Content-Transfer-Encoding (RFC 7578 §4.7).")
        self._in_file = True
        self._events.append(FileBegins(filename, self._head.get("content-type") or None))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._beside += end - start
            self._events.append(data[start:end])
            # What may be the beginning of a delimiter is held back by the parser until it is known to be none.
            self.amid_file = data is self._chunk and end == len(data)
        elif self._digest is not None:
            self._digest += data[start:end]
            if len(self._digest) > DIGEST_LIMIT:
                raise UploadRefused(
                    f"A field named {DIGEST_FIELD} must contain the 64 hexadecimal digits of a digest."
                )

    def _end(self) -> None:
        if self._in_file:
            self._events.append(Mark.FILE_ENDS)
        elif self._digest is not None:
            self.digests.append(_text(self._digest).strip())
        self._in_file = False
        self._digest = None

    def _finish(self) -> None:
        self._complete = True


class FormContent:
    """A ContentSource: the content of a file up to the delimiter behind it, as ``receive`` brings it.

    ``receive`` fills the beginning of a block and returns how many bytes these are, 0 when there are none now. ``rest``
    is what was received and is not content: the delimiter with what came behind it when ``ended``; else the last few
    bytes, where they may be the beginning of one.
    """

    def __init__(self, receive: Callable[[memoryview], int], delimiter: bytes) -> None:
        self.ended = False
        self.rest = b""
        self._receive = receive
        self._delimiter = delimiter

    def read(self, block: bytearray, most: int) -> int:
        """See ContentSource."""
        kept, most = len(self.rest), min(most, len(block))
        if self.ended or most <= kept:
            return 0
        with memoryview(block) as view:
            size = kept + self._receive(view[kept:most])
        if size == kept:
            return 0
        block[:kept] = self.rest
        content = content_in(block, size, self._delimiter)
        self.ended = content.ended
        self.rest = bytes(block[content.size : size])
        return content.size


class ContentInBlock(NamedTuple):
    """``size`` is how many bytes at the beginning of a block are content; ``ended``: a delimiter follows them."""

    size: int
    ended: bool


def content_in(block: bytes | bytearray, size: int, delimiter: bytes) -> ContentInBlock:
    """Return the content in the first ``size`` bytes of a block.

    It holds no delimiter, and at its end no beginning of one that may go on in the next block.
    """
    # Backwards takes half the time. A delimiter has a CR at its beginning only, so it is linear for any block, too.
    if block.rfind(delimiter, 0, size) >= 0:
        return ContentInBlock(block.find(delimiter, 0, size), ended=True)
    last = block.rfind(b"\r", max(0, size - len(delimiter) + 1), size)
    begins = last >= 0 and delimiter.startswith(bytes(block[last:size]))
    return ContentInBlock(last if begins else size, ended=False)


def boundary_of(content_type: str | None) -> bytes:
    """Return the boundary between the form's parts, from its Content-Type. Raises NotMultipart, UploadRefused."""
    kind, parameters = _parameters(content_type or "")
    if kind != "multipart/form-data":
        raise NotMultipart()
    boundary = parameters.get("boundary", "").encode("latin-1", "replace")
    # RFC 2046 §5.1.1
    if not 0 < len(boundary) <= 70:
        raise UploadRefused("The Content-Type needs a boundary of 1 to 70 characters.")
    return boundary


def _parameters(value: str) -> tuple[str, dict[str, str]]:
    """A field's value in lower case, and its parameters by name; of several of one name the first."""
    found: dict[str, str] = {}
    kind, semicolon, rest = value.partition(";")
    for name, quoted, unescaped, token in _PARAMETER.findall(semicolon + rest):
        found.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) or unescaped or token)
    return kind.strip().lower(), found


def _filename(said: str) -> str:
    """Browsers and curl escape just these three (HTML standard, "multipart/form-data encoding algorithm")."""
    return said.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def _extended(value: str) -> str:
    """An extended value (RFC 8187), empty where it is none; RFC 7578 forbids it, and some clients send it still."""
    charset, _, rest = value.partition("'")
    _, quote, encoded = rest.partition("'")
    if not quote or charset.lower() not in ("utf-8", "iso-8859-1"):
        return ""
    try:
        return unquote_to_bytes(encoded).decode(charset)
    except UnicodeDecodeError:
        return ""


def _text(data: bytes) -> str:
    """UTF-8, as every client of today sends it; of an older one each byte is kept as a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
