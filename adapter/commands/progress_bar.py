"""A progress bar for transfers, on standard error if that is a terminal, and nothing elsewhere; numbers for people."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_EVERY = 0.1
"""Seconds between two looks of the bar."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class ProgressBar:
    """Shows how much of ``total`` bytes has moved; None where that is not known."""

    def __init__(self, total: int | None = None, stream: TextIO | None = None) -> None:
        self.total = total
        self._stream = sys.stderr if stream is None else stream
        self._shows = self._stream.isatty()
        self._moved = 0
        self._began = self._drawn = time.monotonic()

    def advance(self, moved: int) -> None:
        """Count ``moved`` bytes more."""
        self._moved += moved
        if self._shows and time.monotonic() - self._drawn >= _EVERY:
            self._draw()

    def end(self) -> None:
        """Show the last state and leave the line."""
        if self._shows:
            self._draw()
            self._stream.write("\n")
            self._stream.flush()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        speed = size(int(self._moved / max(self._drawn - self._began, 0.001)))
        if self.total:
            share = min(self._moved / self.total, 1.0)
            bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH)
            text = f"[{bar}] {share:4.0%} of {size(self.total)}, {speed}/s"
        else:
            text = f"{size(self._moved)}, {speed}/s"
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


def count_of(number: int, noun: str) -> str:
    """A number of things for people: 1 tool, 2 tools."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """A number of bytes for people: 512 B, 1.5 MiB."""
    number, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"
