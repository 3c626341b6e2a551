"""One of three replicas stands still behind the load balancers of deploy/: its process is stopped, not ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.balancer import balancer_argv, haproxy_argv
from tests.e2e.replicas import Serving, replicated
from tests.edge.raw import Exchange, RawClient, RawUpstream, result

pytestmark = pytest.mark.e2e

CALLERS = 12
ENOUGH = 20
"""Calls of one caller that show that it goes on."""

SOON = 15.0
"""Seconds for them, on a machine with much else to do."""


class Caller:
    """Calls without a pause, each with a token of its own; after a failure on a new connection, with a new token."""

    def __init__(self, number: int, port: int) -> None:
        self._number = number
        self._client = RawClient(port)
        self.answered = 0
        self.failed = 0

    async def open(self) -> None:
        """Open its session."""
        await self._client.__aenter__()
        await self._client.initialize()

    async def call(self, times: int) -> None:
        """Get so many answers."""
        wanted = self.answered + times
        while self.answered < wanted:
            token = f"{self._number}-{self.answered}-{self.failed}"
            params = {"name": "tool", "arguments": {"token": token}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            try:
                head, body = await self._client.request("POST", orjson.dumps(message))
            except (asyncio.IncompleteReadError, ConnectionError):
                head, body = None, b""
            if head is not None and head.status == 200 and body == result(1):
                self.answered += 1
                continue
            self.failed += 1
            self.close()
            await self._client.__aenter__()

    def close(self) -> None:
        """Close its connection."""
        self._client.close()


async def opened(stack: AsyncExitStack, front: Serving, numbers: range) -> list[Caller]:
    """Callers with a session each."""
    port = int(front.base.rpartition(":")[2])
    callers = [Caller(number, port) for number in numbers]
    for caller in callers:
        await caller.open()
        stack.callback(caller.close)
    return callers


def stuck(tasks: list[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    """Those that have not ended."""
    return [each for each in tasks if not each.done()]


@pytest.mark.parametrize("balancer", [balancer_argv, haproxy_argv], ids=["nginx", "haproxy"])
async def test_others_go_on_while_a_replica_stands_still(
    tmp_path: Path, balancer: Callable[[Path, int, Sequence[int]], list[str]]
) -> None:
    """Most callers, and all who come later, are answered soon; the others when it is killed; no call runs twice."""
    ran: Counter[str] = Counter()

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message.get("method") == "tools/call":
            ran[message["params"]["arguments"]["token"]] += 1
            await exchange.json(result(1))
        elif exchange.head.method == "GET":
            await exchange.answer(405, b"")
        else:
            empty = {"jsonrpc": "2.0", "id": message.get("id"), "result": {"tools": []}}
            await exchange.json(orjson.dumps(empty))

    upstream = RawUpstream(script)
    await upstream.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(upstream.stop)
        front = await stack.enter_async_context(replicated(tmp_path, upstream.url, 3, balancer=balancer))
        callers = await opened(stack, front, range(CALLERS))
        await asyncio.gather(*(caller.call(ENOUGH) for caller in callers))
        running = front.replicas[1].running
        assert running is not None
        os.kill(running.process.pid, signal.SIGSTOP)

        going_on = [asyncio.create_task(caller.call(ENOUGH)) for caller in callers]
        async with asyncio.timeout(SOON):
            while sum(each.done() for each in going_on) < CALLERS // 2:
                await asyncio.wait(stuck(going_on), return_when=asyncio.FIRST_COMPLETED)
            # All others would have been stuck by now, too, if the replica got its share of requests.
            late = await opened(stack, front, range(CALLERS, CALLERS + 3))
            for caller in late:
                await caller.call(ENOUGH)
        assert all(caller.failed == 0 for caller in late)

        os.kill(running.process.pid, signal.SIGKILL)
        async with asyncio.timeout(SOON):
            await asyncio.gather(*going_on)
    assert all(caller.failed <= 1 for caller in callers)
    assert ran and max(ran.values()) == 1
