"""Requests that two readers might take for two different ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.attacks.arena import attacked
from tests.edge.conftest import done
from tests.edge.raw import INITIALIZE, RawUpstream, read_body, read_head

pytestmark = pytest.mark.e2e

TOKEN = "the-adapters-own-token"
OWN = f"X-Mcp-Adapter-Auth-Token: {TOKEN}"
ROUNDS = 50

# A target, the fields beside Host and framing, and the status.
ATTACKS: list[tuple[str, list[str], int]] = [
    ("/mcp", [OWN, "Content-Type: application/json", "Content-Type: application/json"], 400),
    ("/mcp", [OWN, "Content-Encoding: identity", "Content-Encoding: gzip"], 400),
    ("/mcp", [OWN, OWN], 400),
    ("/mcp", [OWN, "X-MCP-ADAPTER-AUTH-TOKEN: wrong"], 400),
    ("/mcp", ["Authorization: Bearer wrong", f"Authorization: Bearer {TOKEN}"], 400),
    ("/mcp", [OWN, "Mcp-Session-Id: a", "Mcp-Session-Id: b"], 400),
    ("/mcp", [OWN, "MCP-Protocol-Version: 2025-11-25", "mcp-protocol-version: 2026-07-28"], 400),
    ("/mcp", [OWN, "Mcp-Method: tools/list", "Mcp-Method: tools/call"], 400),
    ("/mcp", [OWN, "Mcp-Param-Path: a", "mcp-param-path: b"], 400),
    ("/quiet", [OWN, OWN], 400),
    ("/healthz", [OWN, OWN], 400),
    ("http://evil.example/mcp", [OWN], 421),
    ("http://localhost/mcp", [OWN], 421),
    ("http://127.0.0.1:1@evil.example/mcp", [OWN], 421),
    ("https://127.0.0.1/mcp", [OWN], 421),
    ("http:///mcp", [OWN], 421),
    ("/mcp", [OWN, "Content-Type: text/plain"], 415),
    ("/mcp", [OWN, "Sec-Fetch-Mode: navigate", "Content-Type: application/json"], 403),
]


async def test_nothing_ambiguous_reaches_an_upstream(tmp_path: Path) -> None:
    """Over and over, from many connections; each is told what is wrong, and nobody else is harmed."""
    async with RawUpstream(done) as upstream, attacked(tmp_path, upstream.url) as arena:
        opened = upstream.opened

        async def attack(target: str, fields: list[str], status: int) -> None:
            for _ in range(ROUNDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", arena.adapter.port)
                lines = [f"POST {target} HTTP/1.1", f"Host: 127.0.0.1:{arena.adapter.port}", *fields]
                lines.append(f"Content-Length: {len(INITIALIZE)}")
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + INITIALIZE)
                head = await read_head(reader)
                body = await read_body(reader, head)
                assert head.status == status, (target, fields, body)
                assert TOKEN.encode() not in body
                writer.transport.abort()

        await asyncio.gather(*(attack(*each) for each in ATTACKS))
        assert upstream.opened == opened
