"""Transfers of files whose connection fails."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from adapter.upstream.transfers import TransferFailed, upload


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
