"""Several that accept from one listening socket: here two in one loop, each with its own copy of the socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from adapter.edge.http.seats import EMPTY, Seats
from adapter.edge.http.shared_sockets import SharedSockets
from tests.waiting import until


@dataclass
class Acceptor:
    """One of them, with its open connections."""

    door: SharedSockets
    connections: set[asyncio.BaseTransport] = field(default_factory=set)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def accept(self) -> None:
        acceptor = self

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                acceptor.connections.add(transport)
                acceptor.arrived.set()

        self.door.accept(Connection, self.connections)


@dataclass
class Port:
    seats: Seats
    acceptors: list[Acceptor]
    address: tuple[str, int]

    @property
    def counts(self) -> list[int]:
        return [len(each.connections) for each in self.acceptors]

    async def connect(self) -> asyncio.StreamWriter:
        """Connect, and wait until one of them has the connection."""
        before = sum(self.counts)
        _, writer = await asyncio.open_connection(*self.address)
        while sum(self.counts) == before:
            for each in self.acceptors:
                each.arrived.clear()
            waiting = [asyncio.create_task(each.arrived.wait()) for each in self.acceptors]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
            for task in waiting:
                task.cancel()
        return writer


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    listening = socket.create_server(("127.0.0.1", 0))
    seats = Seats()
    doors = [SharedSockets([listening.dup()], seats, seat) for seat in range(2)]
    found = Port(seats, [Acceptor(door) for door in doors], listening.getsockname())
    try:
        async with asyncio.timeout(20):
            yield found
    finally:
        for each in found.acceptors:
            if each.door.sockets:
                with contextlib.suppress(AttributeError):  # one that never accepted
                    each.door.close()
            for transport in each.connections:
                transport.abort()  # type: ignore[attr-defined]  # it is a socket's
        for door in doors:
            for each_socket in door.sockets:
                each_socket.close()
        listening.close()
        await asyncio.sleep(0)


async def test_connections_are_spread(port: Port) -> None:
    """However fast one of them is, none has many more than another."""
    for each in port.acceptors:
        each.accept()
    writers = [await port.connect() for _ in range(40)]
    fewer, more = sorted(port.counts)
    assert fewer + more == 40 and more - fewer <= 6
    assert [port.seats[0], port.seats[1]] == port.counts
    for writer in writers:
        writer.close()


async def test_one_that_does_not_come_is_not_waited_for(port: Port) -> None:
    """A process that is stopped has a seat with few connections for ever; the others accept all the same."""
    port.seats.put(1, 0)
    port.acceptors[0].accept()
    writers = [await port.connect() for _ in range(10)]
    assert port.counts == [10, 0]
    for writer in writers:
        writer.close()


async def test_one_that_closes_leaves_the_port_to_others(port: Port) -> None:
    """Connections that nobody has accepted yet are not lost with it."""
    port.acceptors[0].accept()
    port.acceptors[0].door.close()
    assert port.seats[0] == EMPTY
    writers = [(await asyncio.open_connection(*port.address))[1] for _ in range(3)]
    port.acceptors[1].accept()
    await until(lambda: port.counts == [0, 3])
    for writer in writers:
        writer.close()
