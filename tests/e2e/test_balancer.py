"""The shipped configurations of nginx and HAProxy, as tests use them, and what they do about silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.balancer import SHIPPED, balancer_argv, haproxy_argv, rendered
from tests.e2e.processes import listens, start
from tests.edge.raw import RawClient, read_chunk
from tests.ports import free_port

SILENCE = 2
"""Seconds in place of those of the shipped files."""


def test_only_names_and_ports_differ_from_what_is_shipped() -> None:
    """Three replicas of the shipped file become two others; every other line stays, except for the address."""
    shipped = SHIPPED.read_text()
    ours = rendered(shipped, 4000, [4001, 4002])
    assert ours.count("server 127.0.0.1:") == 2
    assert "adapter-" not in ours.partition("upstream replicas")[2]
    kept = [line for line in shipped.splitlines() if "adapter-" not in line and "listen" not in line]
    assert [line for line in kept if line not in ours.splitlines()] == []
    assert "listen 127.0.0.1:4000;" in ours


class SilentReplica:
    """Never answers a POST, and begins streams on which nothing is said for longer than a POST may take."""

    def __init__(self) -> None:
        self.posts = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        # HAProxy asks for its health.
        if head.startswith((b"GET /readyz", b"GET /livez")):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif head.startswith(b"GET") or b"subscriptions/listen" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await asyncio.sleep(SILENCE + 2)
            writer.write(b"1\r\n!\r\n0\r\n\r\n")
        else:
            self.posts += 1
            await reader.read()
        writer.close()


@pytest.mark.e2e
@pytest.mark.parametrize("balancer", [balancer_argv, haproxy_argv], ids=["nginx", "haproxy"])
async def test_a_silent_call_ends_and_is_not_repeated(
    tmp_path: Path, balancer: Callable[[Path, int, Sequence[int]], list[str]]
) -> None:
    """It gets 504 after the time of the file, and reaches one replica; streams of both eras may be silent longer."""
    silent = SilentReplica()
    async with AsyncExitStack() as stack:
        servers = [await asyncio.start_server(silent, "127.0.0.1", 0) for _ in range(3)]
        for server in servers:
            stack.callback(server.close)
        port = free_port()
        argv = balancer(tmp_path, port, [server.sockets[0].getsockname()[1] for server in servers])
        for file in (tmp_path / "default.conf", tmp_path / "haproxy.cfg"):
            if file.exists():
                text = file.read_text()
                assert " 11m" in text
                file.write_text(text.replace(" 11m", f" {SILENCE}s"))
        running = await start(argv, tmp_path / "output.log")
        stack.push_async_callback(running.stop)
        await listens(port, running)
        calling = await stack.enter_async_context(RawClient(port))
        listening = await stack.enter_async_context(RawClient(port))
        subscribed = await stack.enter_async_context(RawClient(port))
        await listening.send("GET")
        await subscribed.send("POST", b"{}", mcp_method="subscriptions/listen")
        async with asyncio.timeout(SILENCE + 20):
            await calling.send("POST", b"{}")
            assert (await calling.head()).status == 504
            for stream in (listening, subscribed):
                assert (await stream.head()).status == 200
                assert await read_chunk(stream.reader) == b"!"
        assert silent.posts == 1
