"""What still works, and what a client is told, while the adapter's own store fails."""

from __future__ import annotations

import asyncio

import orjson

from adapter.errors import StoreUnavailable
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from tests.edge.conftest import StartRoad
from tests.edge.raw import INITIALIZE, call_body, error_of, result

NOTE = b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'


class FailingStore(MemoryStore):
    """A store in memory that fails while ``down``."""

    down = False

    def check(self) -> None:
        if self.down:
            raise StoreUnavailable

    async def get(self, table: str, key: str) -> Row | None:
        self.check()
        return await super().get(table, key)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        self.check()
        return await super().put(table, key, value, expected=expected, due=due)

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        self.check()
        await super().touch(table, dues)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        self.check()
        return await super().overdue(table, now, limit=limit)

    async def count(self, table: str, *, group: str | None = None) -> int:
        self.check()
        return await super().count(table, group=group)


async def test_store_that_fails_stops_only_stateful_work(in_session: StartRoad) -> None:
    """Calls in sessions at hand and modern calls go on; what needs the store is -32014, and health says why."""
    store = FailingStore()
    async with in_session(store=store) as (_, _, client):
        store.down = True
        assert (await client.call())[1] == result(1)
        assert (await client.modern_call())[1] == result(1)
        session = client.session
        for method, body in (("POST", INITIALIZE), ("POST", call_body(number=0))):
            client.session = None if body == INITIALIZE else "not-at-hand"
            head, text = await client.request(method, body)
            assert head.status == 200 and error_of(text)["code"] == -32014 and error_of(text)["id"] == 0
        for method, body in (("GET", b""), ("POST", NOTE)):
            head, _ = await client.request(method, body)
            assert head.status == 503
        head, text = await client.request("GET", path="/healthz")
        assert head.status == 503
        assert orjson.loads(text)["degraded_reason"] == "persistence_unavailable"
        store.down = False
        client.session = session
        assert (await client.call())[1] == result(1)
        async with asyncio.timeout(20):
            while (await client.request("GET", path="/healthz"))[0].status != 200:
                await asyncio.sleep(0.01)
