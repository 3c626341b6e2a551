"""What the adapter and its supervisor write to each other. Needs the standard library only.

The adapter sends orders: four bytes with the length, then fields with a NUL between two. With an order to start come
three descriptors: standard input, output and error of the child. The supervisor answers with lines of words.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

START, SIGNAL = b"start", b"signal"
"""First field of an order."""

READY, STARTED, FAILED, EXITED = b"ready", b"started", b"failed", b"exited"
"""First word of a line: of the supervisor itself (once), or with the number of a child."""

STEPS = ("start", "cwd", "command")
"""Where a start fails: ``failed NUMBER STEP ERRNO``, STEP as a position in here."""

HEAD = 4
"""Bytes before the fields."""

DESCRIPTORS = 3


def start_order(number: int, argv: Sequence[str], environment: Mapping[str, str], cwd: str) -> bytes:
    """Spell the order to start a child. Raises ValueError for a NUL, which no argument and no variable can hold."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    texts = [cwd, str(len(argv)), *argv, *variables]
    if any("\0" in text for text in texts):
        raise ValueError("a NUL character")
    return _order(START, b"%d" % number, *map(os.fsencode, texts))


def signal_order(number: int, signal: int) -> bytes:
    """Spell the order to send a signal to the process group of a child."""
    return _order(SIGNAL, b"%d" % number, b"%d" % signal)


def read_start(fields: list[bytes]) -> tuple[int, list[bytes], list[bytes], bytes]:
    """Read an order to start: the number, the arguments, the variables (``NAME=value``) and the working directory."""
    _, number, cwd, count, *texts = fields
    return int(number), texts[: int(count)], texts[int(count) :], cwd


def _order(*fields: bytes) -> bytes:
    body = b"\0".join(fields)
    return len(body).to_bytes(HEAD, "big") + body
