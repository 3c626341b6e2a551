"""Transfers of files whose connection fails."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from adapter.upstream.transfers import TransferFailed, download, upload


async def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    """As that for hundreds of files does."""
    (tmp_path / "a").write_text("a")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readuntil(b"--\r\n")
        for piece in (b"HTTP/1.1 201 X\r\nContent-Length: 16\r\n\r\n", b'{"uploads', b'":[{}]}'):
            await asyncio.sleep(0.05)
            writer.write(piece)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = "http://{}:{}/".format(*server.sockets[0].getsockname())
        assert await upload(url, [tmp_path / "a"], {}, lambda _: None) == [{}]


@pytest.mark.parametrize("moves", ["up", "down"])
async def test_a_refusal_is_told_at_once(tmp_path: Path, moves: str) -> None:
    """Its first piece says why; the end may never come."""
    (tmp_path / "a").write_text("a")
    body = b'{"detail":"The quota is used up."}'
    left = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 413 X\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%b\r\n" % (len(body), body))
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server, asyncio.timeout(10):
        url = "http://{}:{}/".format(*server.sockets[0].getsockname())
        with pytest.raises(TransferFailed, match=r"^The server refuses: The quota is used up\.$"):
            if moves == "up":
                await upload(url, [tmp_path / "a"], {}, lambda _: None)
            else:
                await download(url, {}, lambda *_: (tmp_path / "b").open("wb"), lambda _: None)
        await left.wait()


async def test_an_answer_that_is_too_large_is_none(tmp_path: Path) -> None:
    """Not a byte more is read of it than there may be."""
    (tmp_path / "a").write_text("a")
    answer = b'{"uploads":[{}],"more":"%b"}' % (b"x" * (4 << 20))
    left = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readuntil(b"--\r\n")
        writer.write(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(flood, "127.0.0.1", 0) as server:
        url = "http://{}:{}/".format(*server.sockets[0].getsockname())
        with pytest.raises(TransferFailed, match=r"^The server answers 201\.$"):
            await upload(url, [tmp_path / "a"], {}, lambda _: None)
        await left.wait()


async def test_a_lost_connection_is_said_without_the_number_of_the_error(tmp_path: Path) -> None:
    """The reason stands in words."""
    (tmp_path / "a").write_text("a")

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        url = "http://{}:{}/".format(*server.sockets[0].getsockname())
        with pytest.raises(TransferFailed, match=r"The connection failed: Connection reset by peer\.$"):
            await upload(url, [tmp_path / "a"], {}, lambda _: None)
