"""Messages that wait to be written to a child, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from adapter.errors import LimitReached

MOST_BYTES = 16 << 20
"""Bytes that wait for a child that does not read. A single message may be larger."""

MOST_MESSAGES = 4096


class Outgoing:
    """A bounded queue in front of a child's standard input. ``name`` is the server's, for the failure."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._filled = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Outgoing of {self._name!r}: {len(self._waiting)} messages, {self._size} bytes>"

    def put(self, line: bytes) -> None:
        """Queue a message of one line. Raises LimitReached while the child leaves too much unread."""
        if self._waiting and (self._size + len(line) > MOST_BYTES or len(self._waiting) >= MOST_MESSAGES):
            raise LimitReached(
                f'The process of the server "{self._name}" does not read what it is sent: {len(self._waiting)} '
                "messages are waiting already. Try again later."
            )
        self._waiting.append(line)
        self._size += len(line)
        self._filled.set()

    def clear(self) -> None:
        """Drop what waits, of a child that has ended."""
        self._waiting.clear()
        self._size = 0

    async def write(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand on one message after another, until cancelled. Raises what ``send`` raises."""
        while True:
            while self._waiting:
                # It counts until it was taken: a message that is being written is in memory as well.
                line = self._waiting[0]
                await send(line)
                if self._waiting and self._waiting[0] is line:
                    self._waiting.popleft()
                    self._size -= len(line)
            self._filled.clear()
            await self._filled.wait()
