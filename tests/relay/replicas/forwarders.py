"""Two replicas without listeners: what one forwards is given to the other's home, or to whatever a test puts there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from structlog import get_logger

from adapter.errors import AdapterError, NotFound
from adapter.relay.background import BackgroundTasks
from adapter.relay.replicas.forwarding import ReplicaForwarder
from adapter.relay.replicas.home import Home, LeftSessions, OwnedUpstream
from adapter.relay.replicas.registry import Replicas, ReplicaTimes
from adapter.upstream.port import UpstreamReply, UpstreamRequest, WholeReply, header, pour
from adapter.wire.forwarding import SEAL
from tests.state.shared import ReplicaStore, SharedMemory

KEY = bytes(range(32))
NEVER = ReplicaTimes(interval=3600.0)

Answer = Callable[[UpstreamRequest], Awaitable[UpstreamReply]]


class Played:
    """An Upstream that notes its requests, and answers them as a test wants."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.seen: list[tuple[UpstreamRequest, float | None]] = []
        self.answer = answer
        self.closed = False

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        self.seen.append((request, read_timeout))
        if self.answer is not None:
            return await self.answer(request)
        return WholeReply(200, [("Content-Type", "application/json")], b"{}")

    async def close(self) -> None:
        """See Upstream."""
        self.closed = True


class Wire:
    """An Upstream in place of the network: it gives what is forwarded to a home, as the route does."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.sealed: list[str] = []
        self.closed = False

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        text = header(request.headers, SEAL)
        assert text is not None
        self.sealed.append(text)
        try:
            headers, reply, _ = await self.home.serve(self.home.admit(text), request.body)
        except NotFound as error:
            return refused(error)
        body = bytearray()
        await pour(reply, Collected(body), None)
        self.home.release(reply)
        return WholeReply(reply.status, headers, bytes(body))

    async def close(self) -> None:
        """See Upstream."""
        self.closed = True


class Collected:
    """A Sink that keeps everything."""

    def __init__(self, body: bytearray) -> None:
        self._body = body

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        self._body += chunk
        return True

    async def drained(self) -> None:
        """See Sink."""


def refused(error: AdapterError) -> WholeReply:
    return WholeReply(error.http, [("Content-Type", "application/json")], b'{"detail":"x"}')


@dataclass
class Pair:
    """``near`` gets requests for sessions of the replica ``a``, which has the upstream ``far``.

    ``peers`` are the connections that were made, by URL; ``connect`` makes the next one.
    """

    a: Replicas
    b: Replicas
    home: Home
    far: Played
    near: OwnedUpstream
    forwarding: ReplicaForwarder
    store: ReplicaStore
    memory: SharedMemory
    peers: list[tuple[str, Wire | Played]] = field(default_factory=list)
    connect: Callable[[], Wire | Played] | None = None

    def peer(self, url: str) -> Wire | Played:
        made = Wire(self.home) if self.connect is None else self.connect()
        self.peers.append((url, made))
        return made


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Two replicas that know each other."""
    memory, log, background = SharedMemory(), get_logger(), BackgroundTasks()
    stores = memory.replica(), memory.replica()
    a, b = (
        Replicas(store, name, "1", lambda: 0.0, log, NEVER) for store, name in zip(stores, "ab", strict=True)
    )
    far = Played()
    home = Home(a, {"raw": far}, background)
    stores[0].listeners.append(home)
    forwarding = ReplicaForwarder(b, lambda url: found.peer(url), background)
    a.key = b.key = KEY
    near = OwnedUpstream("raw", Played(), forwarding, LeftSessions(lambda *_: None))
    found = Pair(a, b, home, far, near, forwarding, stores[1], memory)
    await a.join("http://a:1")
    await b.join("http://b:1")
    try:
        yield found
    finally:
        await forwarding.close()
        await a.close()
        await b.close()
        await background.close()
