"""A wire forwards, falls silent without a word, and is as good as new for connections that come later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.faults.wire import Wire

QUIET = 0.2
"""Seconds in which bytes that are forwarded would have come several hundred times."""


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """A wire to a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    between = Wire(server.sockets[0].getsockname()[1])
    await between.start()
    yield between
    await between.stop()
    server.close()
    await server.wait_closed()


class Talker:
    """One connection through the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, wire: Wire) -> Talker:
        return cls(*await asyncio.open_connection("127.0.0.1", wire.port))

    async def says(self, text: bytes) -> bytes:
        """The echo of the text."""
        self.writer.write(text)
        return await asyncio.wait_for(self.reader.readexactly(len(text)), 20)

    async def is_silent(self) -> bool:
        """Tell whether neither bytes nor an end come."""
        try:
            await asyncio.wait_for(self.reader.read(1), QUIET)
        except TimeoutError:
            return True
        return False


async def test_bytes_are_forwarded_both_ways(wire: Wire) -> None:
    """More than any buffer holds comes back unchanged, and so does the end; then the connection is closed."""
    talker = await Talker.at(wire)
    text = bytes(range(256)) * 8192
    assert await talker.says(text) == text
    talker.writer.write_eof()
    assert await asyncio.wait_for(talker.reader.read(), 5) == b""
    talker.writer.close()
    async with asyncio.timeout(20):
        while wire.ends:
            await asyncio.sleep(0.01)


async def test_frozen_connection_stays_silent(wire: Wire) -> None:
    """A frozen connection carries nothing any more, also after others work again."""
    old = await Talker.at(wire)
    assert await old.says(b"1") == b"1"
    wire.freeze()
    old.writer.write(b"2")
    new = await Talker.at(wire)
    new.writer.write(b"3")
    assert await new.is_silent()
    wire.thaw()
    assert await asyncio.wait_for(new.reader.readexactly(1), 5) == b"3"
    assert await old.is_silent()
    old.writer.close()
    new.writer.close()


async def test_cut_connections_are_reset(wire: Wire) -> None:
    """A cut resets all connections, frozen ones too; new ones work."""
    frozen = await Talker.at(wire)
    await frozen.says(b"1")
    wire.freeze()
    wire.thaw()
    talker = await Talker.at(wire)
    await talker.says(b"1")
    wire.cut()
    for each in (frozen, talker):
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(each.reader.readexactly(1), 20)
        each.writer.close()
    after = await Talker.at(wire)
    assert await after.says(b"2") == b"2"
    after.writer.close()


async def test_port_refuses_while_its_process_is_away(wire: Wire) -> None:
    """Connections are refused until the wire is started again, on the same port."""
    await wire.refuse()
    with pytest.raises(ConnectionRefusedError):
        await Talker.at(wire)
    await wire.start()
    talker = await Talker.at(wire)
    assert await talker.says(b"1") == b"1"
    talker.writer.close()
