"""A bar chart as PNG (W3C PNG specification, third edition), without a drawing library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

_PAPER, _BAR, _AXIS = 0, 1, 2
_PALETTE = bytes((255, 255, 255, 47, 111, 171, 60, 60, 60))
_HEIGHT, _BAR_WIDTH, _GAP, _MARGIN = 160, 18, 6, 10


def bar_chart(values: Sequence[int]) -> bytes:
    """A PNG with one bar for each value (none negative), the tallest as high as the picture allows."""
    width = 2 * _MARGIN + len(values) * (_BAR_WIDTH + _GAP)
    tallest = max([*values, 1])
    heights = [round(value / tallest * (_HEIGHT - 2 * _MARGIN)) for value in values]
    rows = [_row(width, _HEIGHT - _MARGIN - y, heights) for y in range(_HEIGHT)]
    # Each row begins with its filter; 0 is none.
    pixels = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", width, _HEIGHT, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(pixels)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _row(width: int, above_axis: int, heights: Sequence[int]) -> bytes:
    row = bytearray([_AXIS if above_axis == 0 else _PAPER]) * width
    for place, height in enumerate(heights):
        if 0 < above_axis <= height:
            left = _MARGIN + place * (_BAR_WIDTH + _GAP)
            row[left : left + _BAR_WIDTH] = bytes([_BAR]) * _BAR_WIDTH
    return bytes(row)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
