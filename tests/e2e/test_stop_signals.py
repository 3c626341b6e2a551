"""SIGTERM to the adapter as a process: what its clients and its owner see."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.processes import Adapter, adapter
from tests.edge.raw import Exchange, RawClient, RawUpstream, error_of, read_body

pytestmark = pytest.mark.e2e


async def hang(exchange: Exchange) -> None:
    """Never answers."""
    await exchange.gone()


async def told_to_stop(front: Adapter, *, times: int) -> int:
    """The exit status after so many signals, each of which the adapter has seen before the next one comes."""
    assert front.running is not None
    process = front.running.process
    for _ in range(times):
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", front.port)
            except ConnectionError:
                break
            writer.transport.abort()
            await asyncio.sleep(0.02)
    async with asyncio.timeout(20):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_a_second_signal_cuts_what_is_under_way(tmp_path: Path) -> None:
    """The grace of a minute is over; the call is still told so under its id, and the stop is a good one."""
    core = {"shutdown_grace_seconds": 60, "upstream_ping": {"enabled": False}}
    async with (
        RawUpstream(hang) as up,
        adapter(tmp_path, up.url, core=core) as front,
        RawClient(front.port) as client,
    ):
        await client.initialize()
        await client.send("POST", CALL)
        await up.arrived("tools/call")
        assert await told_to_stop(front, times=2) == 0
        error = error_of(await read_body(client.reader, await client.head()))
        assert (error["code"], error["id"]) == (-32016, 7)
        assert await client.reader.read() == b""


CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool","arguments":{}}}'
