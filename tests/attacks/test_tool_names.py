"""Tool names that a hostile server or client chose to keep the adapter busy, or to break its log."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.attacks.arena import attacked
from tests.edge.raw import Exchange, RawUpstream, call_body
from tests.waiting import until

NAME = "a-" * 24_000
"""48 KB of the worst that an expression for secrets can be given."""


@pytest.mark.e2e
async def test_a_list_with_an_endless_name_delays_nobody(tmp_path: Path) -> None:
    """A server lists tools whose names take a careless expression a minute; other clients' calls go on."""
    lists = 0

    async def listing(exchange: Exchange) -> None:
        nonlocal lists
        lists += 1
        tool = {
            "name": f"{NAME}{lists}",
            "description": "Hidden\u200b text.",
            "inputSchema": {"type": "object"},
        }
        answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"tools": [tool]}}
        await exchange.json(orjson.dumps(answer))

    async with (
        RawUpstream(listing) as upstream,
        attacked(tmp_path, upstream.url) as arena,
        arena.client() as client,
    ):
        await client.initialize()
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        for _ in range(100):
            head, _ = await client.request("POST", body)
            assert head.status == 200
        assert "policy changed a tool" in arena.log
        assert max(map(len, arena.log.splitlines())) < 4096


@pytest.mark.e2e
async def test_a_call_of_any_name_is_one_short_line_of_the_access_log(tmp_path: Path) -> None:
    """Long, half a character, or signs that steer a terminal: it is answered and written, and the connection stays."""

    async def done(exchange: Exchange) -> None:
        # The adapter asks too: its own requests have ids that are texts.
        answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"tools": [], "content": []}}
        await exchange.json(orjson.dumps(answer))

    async with (
        RawUpstream(done) as upstream,
        attacked(tmp_path, upstream.url, core={"access_log": True}) as arena,
        arena.client() as client,
    ):

        def lines() -> list[str]:
            return [
                line for line in arena.log.splitlines() if '"tools/call"' in line and '"upstream"' in line
            ]

        await client.initialize()
        names = 100 * (NAME.encode(), rb"\ud800", rb"\u001b[2J\u0000" * 1000)
        for number, name in enumerate(names):
            head, _ = await client.request("POST", call_body("NAME", number).replace(b"NAME", name))
            assert head.status == 200
        await until(lambda: len(lines()) >= len(names))
        assert len(lines()) == len(names)
        assert max(map(len, lines())) < 8192
