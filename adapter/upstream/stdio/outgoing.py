"""Messages that wait to be written to a child, in their order."""

from __future__ import annotations

import asyncio
from collections import deque

from adapter.errors import LimitReached
from adapter.upstream.stdio.child import ChildProcess

MOST_BYTES = 16 << 20
"""Bytes that wait for a child that does not read. A single message may be larger."""

MOST_MESSAGES = 4096


class Outgoing:
    """A bounded queue in front of a child's standard input. ``name`` is the server's, for the failure."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._child: ChildProcess | None = None
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._filled = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Outgoing of {self._name!r}: {len(self._waiting)} messages, {self._size} bytes>"

    def put(self, line: bytes) -> None:
        """Send a message of one line, or queue it. Raises LimitReached while the child leaves too much unread."""
        if not self._waiting and self._child is not None and self._child.send_now(line):
            return
        if self._waiting and (self._size + len(line) > MOST_BYTES or len(self._waiting) >= MOST_MESSAGES):
            raise LimitReached(
                f'The process of the server "{self._name}" does not read what it is sent: {len(self._waiting)} '
                "messages are waiting already. Try again later."
            )
        self._waiting.append(line)
        self._size += len(line)
        self._filled.set()

    async def write(self, child: ChildProcess) -> None:
        """Send what waits and what comes, until cancelled. Raises what the child raises."""
        self._child = child
        while True:
            while self._waiting:
                # It counts until it was taken: a message that is being written is in memory as well.
                line = self._waiting[0]
                await child.send(line)
                self._waiting.popleft()
                self._size -= len(line)
            self._filled.clear()
            await self._filled.wait()
