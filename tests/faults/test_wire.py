"""A wire forwards, falls silent without a word, and is as good as new for connections that come later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.faults.wire import Wire

QUIET = 0.2
"""Seconds in which bytes that are forwarded would have come several hundred times."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what comes."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """A wire to a server that sends back what it gets."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    between = Wire(server.sockets[0].getsockname()[1])
    await between.start()
    yield between
    await between.stop()
    server.close()
    await server.wait_closed()


async def answer(reader: asyncio.StreamReader, size: int, within: float = 20) -> bytes:
    """So many bytes. Raises TimeoutError if the wire is silent, and ConnectionResetError if it was cut."""
    return await asyncio.wait_for(reader.readexactly(size), within)


async def test_a_wire_falls_silent_and_is_cut(wire: Wire) -> None:
    """A frozen connection carries nothing any more, also after others work again; a cut resets all that there are, and
    new ones work."""
    frozen, to_frozen = await asyncio.open_connection("127.0.0.1", wire.port)
    text = bytes(range(256)) * 8192
    to_frozen.write(text)
    assert await answer(frozen, len(text)) == text
    wire.freeze()
    to_frozen.write(b"1")
    other, to_other = await asyncio.open_connection("127.0.0.1", wire.port)
    to_other.write(b"2")
    with pytest.raises(TimeoutError):
        await answer(other, 1, QUIET)
    wire.thaw()
    assert await answer(other, 1) == b"2"
    with pytest.raises(TimeoutError):
        await answer(frozen, 1, QUIET)
    wire.cut()
    for reader in (frozen, other):
        with pytest.raises(ConnectionResetError):
            await answer(reader, 1)
    after, to_after = await asyncio.open_connection("127.0.0.1", wire.port)
    to_after.write(b"3")
    assert await answer(after, 1) == b"3"
    for writer in (to_frozen, to_other, to_after):
        writer.close()
