"""Hosts that echo no session id, and hosts that open a session for every exchange, over real sockets."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.raw import Exchange, initialize_result

SHARED = {"upstream": "principal"}
KEPT = {"missing_id": "principal"}


async def stateless(exchange: Exchange) -> None:
    """Opens a session without an id."""
    number = exchange.message.get("id")
    if number is not None:
        await exchange.json(initialize_result(number))


async def named(exchange: Exchange) -> None:
    """Answers a call with the name of its tool, and opens GET streams."""
    message = exchange.message
    if exchange.head.method == "GET":
        await exchange.begin_stream()
        return
    params = message["params"]
    assert isinstance(params, dict)
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": params["name"]}
    await exchange.json(orjson.dumps(answer))


@pytest.mark.parametrize("sessions", [KEPT, KEPT | SHARED])
async def test_hosts_that_drop_ids_are_served(
    sessions: dict[str, str], upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Two hosts that count from 1 are answered at once, in one session, and again after a restart."""
    async with upstream(named) as up:
        for _ in range(2):
            async with (
                adapter(up, sessions=sessions) as front,
                front.client() as one,
                front.client() as other,
            ):
                answers = await asyncio.gather(one.call("one"), other.call("other"))
                assert [orjson.loads(body)["result"] for _, body in answers] == ["one", "other"]
        used = {each.head.get("mcp-session-id") for each in up.calls("tools/call")}
        assert used == {"upstream-1"} == up.sessions


async def test_session_for_every_exchange_is_one_at_the_server(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Open, call, DELETE, three times and over a restart: the server has one session, which lives on."""
    async with upstream(named) as up:
        for _ in range(2):
            async with adapter(up, sessions=SHARED) as front:
                for name in ("a", "b", "c"):
                    async with front.client() as client:
                        await client.initialize()
                        _, body = await client.call(name)
                        assert orjson.loads(body)["result"] == name
                        head, _ = await client.request("DELETE")
                        assert head.status == 200
        assert up.opened == 1 and up.sessions == {"upstream-1"}
        ids = [each.message["id"] for each in up.calls("tools/call")]
        assert len(set(ids)) == 6
