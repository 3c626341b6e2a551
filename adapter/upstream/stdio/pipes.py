"""The pipes of a child: lines are read in turns, and messages wait until it reads them."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable

from adapter.errors import LimitReached
from adapter.wire.line_messages import Line, LineReader

PIECE = 65536
"""Bytes of one read: as much as a pipe holds."""

LINES_AT_ONCE = 64
"""Lines handed on before everything else has its turn: whoever takes them may need 0.1 ms for each."""

TURN_SECONDS = 0.005
"""Processor time after which a turn hands on no further line: one that goes to a thousand sessions needs more.

A pipe that has worked for so much longer than it has rested rests for as long: it takes half of the loop's time.
"""

MOST_BYTES = 16 << 20
"""Bytes that wait for a child that does not read. A single message may be larger."""

MOST_MESSAGES = 4096


class LinePipe:
    """Reads lines from a non-blocking pipe, one piece or LINES_AT_ONCE lines in each turn of the loop, or fewer where
    they take TURN_SECONDS. A writer that never stops has half of the loop's time.

    It begins paused. While it is paused nothing is read, so that the writer waits when the pipe is full; at most the
    lines of one piece are held. ``on_end`` is called after the last line. The descriptor is closed by ``close`` only.
    """

    def __init__(
        self, descriptor: int, limit: int, on_line: Callable[[Line], None], on_end: Callable[[], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._reader = LineReader(limit)
        self._on_line: Callable[[Line], None] | None = on_line
        self._on_end = on_end
        self._waiting: deque[Line] = deque()
        self._paused = True
        self._reads = False
        self._turn: asyncio.Handle | None = None
        self._worked = 0.0
        self._rested_since = 0.0
        self.ended = False
        """True when the last line was handed on."""
        self._read_all = False
        self._closed = False

    @property
    def paused(self) -> bool:
        """True while nothing is read."""
        return self._paused

    def pause(self) -> None:
        """Hand on no further line, from now on."""
        self._paused = True
        self._arrange()

    def resume(self) -> None:
        """Read again; lines come in later turns of the loop."""
        self._paused = False
        self._arrange()

    def discard(self) -> None:
        """Read to the end and forget what comes."""
        self._on_line = None
        self._waiting.clear()
        self.resume()

    def close(self) -> None:
        """Read nothing any more and close the descriptor. Idempotent; ``on_end`` is not called."""
        if self._closed:
            return
        self._paused = True
        self._waiting.clear()
        self._arrange()
        self._closed = True
        os.close(self._descriptor)

    def _readable(self) -> None:
        began = time.thread_time()
        try:
            piece = os.read(self._descriptor, PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if self._on_line is not None:
            self._waiting.extend(self._reader.feed(piece) if piece else self._reader.end())
        self._read_all = not piece
        self._hand_on(began)

    def _go_on(self) -> None:
        self._turn = None
        self._hand_on(time.thread_time())

    def _hand_on(self, began: float) -> None:
        # Not the loop's clock: that of uvloop stands still within a turn.
        end = began + TURN_SECONDS
        try:
            for _ in range(LINES_AT_ONCE):
                # Whoever takes a line may pause, discard or close.
                if self._paused or not self._waiting or self._on_line is None:
                    break
                self._on_line(self._waiting.popleft())
                if time.thread_time() >= end:
                    break
        finally:
            took, now = time.thread_time() - began, time.monotonic()
            # Seconds that it has worked, less those that it has rested since.
            self._worked = max(0.0, self._worked - (now - took - self._rested_since)) + took
            self._rested_since = now
            # Nearly always all was handed on, and the pipe is read as before.
            if self._waiting or self._read_all or not self._reads or self._worked >= TURN_SECONDS:
                self._arrange()

    def _arrange(self) -> None:
        """Read on, hand on in the next turn of the loop, rest, or wait, as it stands."""
        if self._closed:
            return
        rests = self._worked >= TURN_SECONDS
        self._read_if(not (self._paused or self._waiting or self._read_all or rests))
        if self._paused or not (self._waiting or self._read_all or rests):
            if self._turn is not None:
                self._turn.cancel()
                self._turn = None
        elif rests:
            self._turn = self._turn or self._loop.call_later(self._worked, self._go_on)
        elif self._waiting:
            self._turn = self._turn or self._loop.call_soon(self._go_on)
        elif not self.ended:
            self.ended = True
            self._loop.call_soon(self._tell_end)

    def _read_if(self, reads: bool) -> None:
        if reads and not self._reads:
            self._loop.add_reader(self._descriptor, self._readable)
        elif self._reads and not reads:
            self._loop.remove_reader(self._descriptor)
        self._reads = reads

    def _tell_end(self) -> None:
        if not self._closed:
            self._on_end()


class MessagePipe:
    """Messages to a child, each whole and in the order of the calls, with a newline behind it.

    They wait until the pipe is there, and while the child does not read. ``server`` is its name, for the failure. What
    waits when the pipe is closed is lost: whoever waits for an answer is told of the end of the child.
    """

    def __init__(self, server: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._descriptor = -1
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._is_full = False

    def __repr__(self) -> str:
        return f"<MessagePipe to {self._server!r}: {len(self._waiting)} messages, {self._size} bytes>"

    @property
    def waiting(self) -> int:
        """Messages that wait for room."""
        return len(self._waiting)

    def open(self, descriptor: int) -> None:
        """Write to this pipe, which does not block, what waits and what comes."""
        self._descriptor = descriptor
        self._write()

    def put(self, message: bytes) -> None:
        """Send a message, which contains no newline, or keep it until there is room for it.

        Raises LimitReached while the child leaves too much unread.
        """
        if self._waiting and (self._size + len(message) > MOST_BYTES or len(self._waiting) >= MOST_MESSAGES):
            raise LimitReached(
                f'The process of the server "{self._server}" does not read what it is sent: {len(self._waiting)} '
                "messages are waiting already. Try again later."
            )
        self._waiting.append(memoryview(message))
        self._size += len(message)
        if len(self._waiting) == 1:
            self._write()

    def close(self) -> None:
        """Close the descriptor and forget what waits. Idempotent."""
        self._waiting.clear()
        self._size = 0
        self._is_full = False
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._loop.remove_writer(descriptor)
            os.close(descriptor)

    def _write(self) -> None:
        """Write what waits, as far as there is room."""
        while self._waiting and self._descriptor >= 0:
            message = self._waiting[0]
            try:
                count = os.writev(self._descriptor, (message, b"\n"))
            except BlockingIOError:
                count = 0
            except OSError:
                # Nobody reads it any more.
                self.close()
                return
            if count <= len(message):
                self._waiting[0] = message[count:]
                self._size -= count
                if not self._is_full:
                    self._is_full = True
                    self._loop.add_writer(self._descriptor, self._write)
                return
            self._waiting.popleft()
            self._size -= len(message)
        if self._is_full:
            self._is_full = False
            self._loop.remove_writer(self._descriptor)
