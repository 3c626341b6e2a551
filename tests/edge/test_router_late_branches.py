"""Branches that are built at the first request for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import structlog

from adapter.edge.http.access import Guard
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Branch, LateBranches, Names, Request
from adapter.edge.mcp.endpoint import Endpoint
from adapter.edge.router import Front
from adapter.settings.core import Core
from tests.edge.raw import RawClient
from tests.waiting import until


class Shop:
    """A branch below ``/shop/``, and the number of times that it was built. It is built when ``opened`` is set."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked = 0

    async def load(self) -> Sequence[Branch]:
        self.asked += 1
        await self.opened.wait()
        return [Branch("/shop", 1, ("GET",), (), self.serve)]

    async def serve(self, request: Request, names: Names) -> None:
        request.reply.send(200, [], "/".join(names).encode())


async def listening(shop: Shop) -> Listener:
    """A front with this shop, and another branch that nobody has to wait for."""

    async def serve(request: Request, _: Names) -> None:
        request.reply.send(200, [], b"here")

    guard = Guard(Core())
    branches: list[Branch | LateBranches] = [
        LateBranches("/shop", shop.load),
        Branch("/near", 1, ("GET",), (), serve),
    ]
    front = Front(cast(Endpoint, None), {}, {}, guard, structlog.get_logger(), branches)
    return await Listener.open(front, "127.0.0.1", 0)


async def test_late_branches_are_loaded_for_those_who_ask_for_one() -> None:
    """Requests for anything else neither load them nor wait for them."""
    shop = Shop()
    listener = await listening(shop)
    port = listener.address[1]
    async with RawClient(port) as first, RawClient(port) as second, RawClient(port) as third:
        assert (await first.request("GET", path="/near/by"))[1] == b"here"
        assert (await first.request("GET", path="/shopping/bag"))[0].status == 404
        assert shop.asked == 0
        waiting = [asyncio.create_task(each.request("GET", path="/shop/bag")) for each in (first, second)]
        await until(lambda: shop.asked >= 2)
        assert (await third.request("GET", path="/near/by"))[1] == b"here"
        shop.opened.set()
        assert [(await each)[1] for each in waiting] == [b"bag", b"bag"]
        asked = shop.asked
        assert (await first.request("GET", path="/shop/bag"))[1] == b"bag"
        assert (await third.request("GET", path="/shop/cap"))[1] == b"cap"
        assert (await third.request("GET", path="/shop/cap/red"))[0].status == 404
        assert shop.asked == asked
    listener.close()
    await listener.drop()


async def test_late_branches_that_cannot_be_loaded_fail_each_request_for_them() -> None:
    """The next request tries again, since the cause may be gone."""

    class Closed(Shop):
        async def load(self) -> Sequence[Branch]:
            if not self.opened.is_set():
                raise OSError("no such file")
            return await super().load()

    shop = Closed()
    listener = await listening(shop)
    async with RawClient(listener.address[1]) as client:
        for _ in range(2):
            assert (await client.request("GET", path="/shop/bag"))[0].status == 500
        shop.opened.set()
        assert (await client.request("GET", path="/shop/bag"))[1] == b"bag"
    listener.close()
    await listener.drop()
