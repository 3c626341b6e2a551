"""Sessions as clients see them: opened, mapped, renewed, ended, limited."""

from __future__ import annotations

import asyncio

import orjson

from tests.edge.conftest import StartRoad
from tests.edge.raw import result


async def test_ten_concurrent_calls_renew_a_forgotten_session_once(in_session: StartRoad) -> None:
    """An upstream that restarted is initialized again once, and every call gets its answer."""
    async with in_session() as (up, front, first):
        up.sessions.clear()
        clients = [front.client() for _ in range(10)]
        for client in clients:
            await client.__aenter__()
            client.session = first.session
        answers = await asyncio.gather(*(client.call(number=n) for n, client in enumerate(clients)))
        assert [body for _, body in answers] == [result(n) for n in range(10)]
        assert up.opened == 2
        assert len(up.calls("notifications/initialized")) == 1
        for client in clients:
            client.close()


async def test_deleted_session_is_closed_upstream_and_unknown(in_session: StartRoad) -> None:
    """DELETE travels upstream, and the session is 404 from then on, with the words that help."""
    async with in_session() as (up, _, client):
        head, _ = await client.request("DELETE")
        assert head.status == 200 and up.sessions == set()
        head, body = await client.call(number=7)
        assert head.status == 404
        assert orjson.loads(body)["error"]["code"] == -32600
        assert "initialize again" in orjson.loads(body)["error"]["message"]
        assert orjson.loads(body)["id"] == 7


async def test_delete_is_200_while_the_upstream_is_down_and_closed_later(in_session: StartRoad) -> None:
    """What cannot be closed now is closed by the cleanup when the upstream is back."""
    async with in_session() as (up, front, client):
        await up.stop()
        head, _ = await client.request("DELETE")
        assert head.status == 200
        await up.start()
        up.sessions.add("upstream-1")
        await front.app.cleanup.run_once()
        assert up.sessions == set()
