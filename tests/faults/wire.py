"""A TCP connection that can fall silent: a forwarder which stops forwarding and keeps its connections open.

A peer behind it is half open, as after a pulled cable: nothing arrives, and nothing says so.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

LIMIT = 256 * 1024
"""Bytes that wait for a slow reader before the writer is told to wait."""


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection as a killed process does, which an ``abort`` of asyncio alone does not."""
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    transport.abort()


class _End(asyncio.Protocol):
    """One end of a forwarded connection."""

    def __init__(self, wire: Wire, other: _End | None = None) -> None:
        self.wire, self.other = wire, other
        self.transport: asyncio.Transport | None = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(LIMIT)
        self.wire.ends.add(self)
        if self.other is None:
            self.transport.pause_reading()
            self.wire.connect(self)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None and self.other.transport is not None
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Hand the end on. True, which keeps this side open for writing, until the other side has ended as well."""
        self.ended = True
        if self.other is None or self.other.transport is None:
            return True
        if self.other.ended:
            self.other.transport.close()
            return False
        if self.other.transport.can_write_eof():
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and self not in self.wire.frozen:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.wire.ends.discard(self)
        # A half-open peer does not hear that the other side has gone.
        if self in self.wire.frozen:
            self.wire.frozen.discard(self)
        elif self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                _reset(self.other.transport)


class Wire:
    """Forwards connections from ``port`` to ``target``, a port of 127.0.0.1, until it is told to be silent."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.target, self.port = target, port
        self.ends: set[_End] = set()
        self.frozen: set[_End] = set()
        self._silent = False
        self._server: asyncio.Server | None = None
        self._waiting: list[_End] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Wire {self.port} -> {self.target}: {len(self.ends)} ends, {len(self.frozen)} frozen>"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse connections until the next start, as the port of a process that has ended does."""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            self.cut()
            await server.wait_closed()

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        await self.refuse()

    def freeze(self) -> None:
        """Forward nothing more on the connections there are; new ones are accepted and wait for ``thaw``."""
        self._silent = True
        for end in self.ends:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.pause_reading()
                self.frozen.add(end)

    def thaw(self) -> None:
        """Forward new connections. Those that were frozen stay silent for ever."""
        self._silent = False
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            self.frozen.discard(end)
            self.connect(end)

    def cut(self) -> None:
        """Reset all connections, frozen ones too."""
        for end in list(self.ends):
            if end.transport is not None:
                _reset(end.transport)

    def connect(self, near: _End) -> None:
        """Connect the other side of a connection that was accepted."""
        if self._silent:
            self.frozen.add(near)
            self._waiting.append(near)
            return
        task = asyncio.get_running_loop().create_task(self._connect(near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, near: _End) -> None:
        assert near.transport is not None
        try:
            far = await asyncio.get_running_loop().create_connection(
                lambda: _End(self, near), "127.0.0.1", self.target
            )
        except OSError:
            _reset(near.transport)
            return
        near.other = far[1]
        if near.transport.is_closing():
            far[0].close()
        elif near in self.frozen or self._silent:
            far[0].pause_reading()
            self.frozen |= {near, near.other}
        else:
            near.transport.resume_reading()
