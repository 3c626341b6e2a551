"""What clients and health are told while the adapter goes on in memory, since its store fails."""

from __future__ import annotations

import asyncio

import orjson

from tests.edge.conftest import StartRoad
from tests.edge.raw import result
from tests.state.shared import ReplicaStore, SharedMemory

FALLBACK = {"unavailable_policy": "fallback_memory"}


async def test_sessions_open_and_end_while_the_store_is_away(in_session: StartRoad) -> None:
    """Known and new sessions go on, health says why it is degraded, and the store gets them when it is back."""
    shared = SharedMemory()
    store: ReplicaStore = shared.replica()
    async with (
        in_session(store=store, state_persistence=FALLBACK) as (_, front, known),
        front.client() as new,
        front.client() as ended,
        front.client() as operator,
    ):
        await ended.initialize()
        store.down = True
        assert (await new.initialize()).status == 200
        for client in (known, new):
            assert (await client.call())[1] == result(1)
        assert (await ended.request("DELETE"))[0].status in (200, 204)
        head, text = await operator.request("GET", path="/healthz")
        told = orjson.loads(text)
        assert head.status == 503
        assert told["degraded_reason"] == "fallback_memory_activated_by_state_store"
        assert told["persistence"] == {
            "type": "disk",
            "status": "degraded",
            "effective_type": "memory",
            "fallback_active": True,
        }
        assert (await operator.request("GET", path="/readyz"))[0].status == 200
        store.down = False
        async with asyncio.timeout(10):
            while (await operator.request("GET", path="/healthz"))[0].status != 200:
                await asyncio.sleep(0.01)
        assert await shared.rows.count("sessions") == 2
        for client in (known, new):
            assert (await client.call())[1] == result(1)
        assert (await ended.call())[0].status == 404
