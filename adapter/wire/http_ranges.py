"""Parts of a file and what a client already has of it (RFC 9110 §13.1 and §14). Entity tags come with their quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"([0-9]*)-([0-9]*)")
_ENTITY_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_BLANK = " \t"
_BEYOND_ANY_FILE = 2**63


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """The range begins behind the end: 416, with ``Content-Range: bytes */{size}``."""

    size: int


def read_range(header: str | None, size: int) -> tuple[int, int] | Unsatisfiable | None:
    """``(first, length)`` in bytes of the one range asked for, ``length`` at least 1 and within ``size``.

    None asks for the whole file: no header, another unit, several ranges or what is no range. A server may
    ignore any Range (RFC 9110 §14.2), and several would only cost memory.
    """
    unit, equals, ranges = (header or "").partition("=")
    if not equals or unit.strip(_BLANK).lower() != "bytes":
        return None
    # An empty element of a list is no element (RFC 9110 §5.6.1).
    elements = [element for part in ranges.split(",") if (element := part.strip(_BLANK))]
    found = _ONE_RANGE.fullmatch(elements[0]) if len(elements) == 1 else None
    if found is None:
        return None
    first, last = found.groups()
    if not first:
        return _suffix(last, size)
    return _from(_position(first), _position(last) if last else _BEYOND_ANY_FILE, size)


def if_range_allows(header: str | None, etag: str) -> bool:
    """Tell whether a Range still holds: there is no If-Range, or it is this very tag.

    A weak tag says nothing of single bytes, and no date is sent that a client could ask for (RFC 9110 §13.1.5).
    """
    return header is None or (header.strip(_BLANK) == etag and not etag.startswith("W/"))


def not_modified(if_none_match: str | None, etag: str) -> bool:
    """Tell whether the client has this file already, by the weak comparison that RFC 9110 §13.1.2 asks for."""
    if if_none_match is None:
        return False
    if if_none_match.strip(_BLANK) == "*":
        return True
    return etag.removeprefix("W/") in _ENTITY_TAG.findall(if_none_match)


def _suffix(digits: str, size: int) -> tuple[int, int] | Unsatisfiable | None:
    """The last bytes of the file."""
    if not digits:
        return None
    length = min(_position(digits), size)
    if length:
        return size - length, length
    # An empty file has its last 5 bytes, all none of them; no Content-Range can say so, thus the whole.
    return Unsatisfiable(size) if _position(digits) == 0 else None


def _from(first: int, last: int, size: int) -> tuple[int, int] | Unsatisfiable | None:
    if last < first:
        return None
    if first >= size:
        return Unsatisfiable(size)
    return first, min(last + 1, size) - first


def _position(digits: str) -> int:
    """The number; one too long to be a position in any file is not converted, for that has a limit of its own."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) < 19 else _BEYOND_ANY_FILE
