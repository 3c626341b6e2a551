"""The servers of a Redis: which of them has a partition, and the connections to each.

One server, or the primary that Sentinel names, has all partitions. In a cluster each has some, and that may change: a
server that is asked for the wrong one names the right one, and has done nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import AskError, MovedError, ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.address import RedisServer
from adapter.state.redis.dialer import NOT_OPEN, ClusterMap, Dialer, LinkLost, code_of, read_map, unavailable
from adapter.state.redis.layout import Layout
from adapter.state.redis.link import RedisLink, RedisSubscription, WordListener
from adapter.state.redis.scripts import ServerScript

REDIRECTIONS = 5
"""Attempts for a command that a cluster sends from server to server."""

PATIENCE = 0.05
"""Seconds before the next attempt, where a partition is just being moved, times the number of attempts."""


class RedisTimes(NamedTuple):
    """Seconds: to wait for an answer, for which a row may be believed without the word of others, and between two
    checks of a connection that is not used."""

    timeout: float = 2.0
    cache: float = 1.0
    ping: float = 5.0


class _Node(NamedTuple):
    link: RedisLink
    subscription: RedisSubscription
    partitions: frozenset[int]


class RedisNodes:
    """The servers behind ``dialer``. ``hear`` gets the messages of others, ``unknown`` tells of missed
    ones, and ``refused`` gets a sentence on a server that does not let itself be heard."""

    def __init__(
        self,
        dialer: Dialer,
        layout: Layout,
        times: RedisTimes,
        hear: Callable[[bytes], None],
        unknown: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._dialer = dialer
        self._layout = layout
        self._times = times
        self._hear = hear
        self._unknown = unknown
        self._refused = refused
        self._under_way = 0
        self._done = asyncio.Event()
        self._map: ClusterMap = [None] * layout.partitions
        self._nodes: dict[RedisServer | None, _Node] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._finding: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect to every server. Raises StoreUnavailable."""
        if self._dialer.address.cluster:
            self._map = await self._found()
        self._arrange()
        for node in self._nodes.values():
            await node.link.ready()
        self._checking = self._start(self._check())

    async def close(self) -> None:
        """Let commands under way finish, and close all connections. New commands must not come any more."""
        while self._under_way:
            # A script that a server does not know yet is sent once more, so no link alone knows when it is done.
            self._done.clear()
            await self._done.wait()
        self._closed = True
        nodes, self._nodes = [*self._nodes.values()], {}
        await asyncio.gather(*(node.link.close() for node in nodes))
        await asyncio.gather(*(node.subscription.close() for node in nodes))
        for task in (self._checking, self._finding):
            if task is not None:
                task.cancel()
        if self._tasks:
            # Connections to servers that went away before.
            await asyncio.wait([*self._tasks])

    # --- commands ---------------------------------------------------------------------------------------------

    async def run(
        self,
        partition: int,
        script: ServerScript,
        keys: Sequence[bytes],
        arguments: Sequence[bytes],
        *,
        reads: bool = False,
    ) -> Any:
        """What a script returns on the server of a partition. Raises as ``ask``."""
        words = (b"%d" % len(keys), *keys, *arguments)
        self._under_way += 1
        try:
            return await self._asked(partition, (b"EVALSHA", script.digest, *words), reads=reads)
        except ResponseError as error:
            if code_of(error) != "NOSCRIPT":
                raise unavailable(error) from None
            return await self.ask(partition, b"EVAL", script.source, *words, reads=reads)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._done.set()

    async def ask(self, partition: int, *words: bytes, reads: bool = False) -> Any:
        """The answer to a command on the server of a partition. ``reads``: it may be sent twice.

        Raises StoreUnavailable.
        """
        try:
            return await self._asked(partition, words, reads=reads)
        except ResponseError as error:
            raise unavailable(error) from None

    def tell(self, partition: int, *words: bytes) -> None:
        """Send a command to the server of a partition without waiting; nothing is known of what becomes of it."""
        node = self._nodes.get(self._map[partition])
        if node is not None:
            node.link.tell(*words)

    async def _asked(self, partition: int, words: tuple[bytes, ...], *, reads: bool) -> Any:
        try:
            return await self._link(partition).ask(*words)
        except LinkLost:
            if not reads:
                raise
            return await self._link(partition).ask(*words)
        except ResponseError as error:
            if not self._dialer.address.cluster:
                if code_of(error) == "READONLY" and self._dialer.address.service is not None:
                    # It was the primary; Sentinel knows the new one.
                    for node in self._nodes.values():
                        node.link.redial()
                        node.subscription.redial()
                raise
            return await self._redirected(partition, words, error)

    async def _redirected(self, partition: int, words: tuple[bytes, ...], error: ResponseError) -> Any:
        """The answer of the server that is right now. A server that sends a command on has not done it."""
        for attempt in range(1, REDIRECTIONS):
            prefix: tuple[tuple[bytes, ...], ...] = ()
            server = self._map[partition]
            if isinstance(error, AskError):
                host, port = error.node_addr
                # A server that does not know the name of the cluster's servers leaves it to who asks.
                server = RedisServer(host or (server.host if server else ""), port)
                self._have(server)
                if isinstance(error, MovedError):
                    self._map[partition] = server
                    self._find()
                else:
                    prefix = ((b"ASKING",),)
            elif code_of(error) == "TRYAGAIN":
                await asyncio.sleep(PATIENCE * attempt)
                server = self._map[partition]
            else:
                raise error
            try:
                link = self._link_to(server)
                await link.ready()
                # Both in one turn: nothing comes between them.
                *_, answer = await asyncio.gather(*(link.ask(*each) for each in (*prefix, words)))
            except ResponseError as again:
                error = again
            else:
                return answer
        raise error

    def _link(self, partition: int) -> RedisLink:
        return self._link_to(self._map[partition])

    def _link_to(self, server: RedisServer | None) -> RedisLink:
        try:
            return self._nodes[server].link
        except KeyError:
            raise StoreUnavailable(NOT_OPEN) from None

    # --- servers ----------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Have connections to just the servers that the map names, each subscribed to its partitions."""
        partitions: dict[RedisServer | None, set[int]] = {}
        for number, server in enumerate(self._map):
            partitions.setdefault(server, set()).add(number)
        for server in [each for each in self._nodes if each not in partitions]:
            node = self._nodes.pop(server)
            self._start(node.link.close())
            self._start(node.subscription.close())
        for server, numbers in partitions.items():
            self._have(server, frozenset(numbers))

    def _have(self, server: RedisServer | None, partitions: frozenset[int] = frozenset()) -> None:
        if self._closed:
            raise StoreUnavailable(NOT_OPEN)
        node = self._nodes.get(server)
        if node is not None and (not partitions or node.partitions == partitions):
            return
        dial = partial(self._dialer.dial, server)
        if node is None:
            link = RedisLink(dial, self._times.timeout, failed=self._find)
            link.open()
        else:
            link = node.link
            self._start(node.subscription.close())
        channels = [self._layout.channels[number] for number in sorted(partitions)]
        listener = WordListener(self._hear, self._unknown, partial(self._silent, link), self._refused)
        subscription = RedisSubscription(dial, channels, self._times.cache, listener)
        if channels:
            subscription.open()
        self._nodes[server] = _Node(link, subscription, partitions)

    def _silent(self, link: RedisLink) -> None:
        link.check()
        self._find()

    def _find(self) -> None:
        """Read the map of the cluster anew, in the background."""
        if self._dialer.address.cluster and self._nodes and (self._finding is None or self._finding.done()):
            self._finding = self._start(self._find_again())

    async def _find_again(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            found = await self._found()
            if self._nodes:
                self._map = found
                self._arrange()

    async def _found(self) -> ClusterMap:
        """The map that the first server tells that can be reached. Raises StoreUnavailable."""
        known = [server for server in self._nodes if server is not None]
        failure = StoreUnavailable()
        for server in dict.fromkeys((*known, *self._dialer.address.endpoints)):
            try:
                return await read_map(
                    await self._dialer.dial(server), server, self._layout.partitions, self._times.timeout
                )
            except StoreUnavailable as error:
                failure = error
        raise failure

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._times.ping)
            for node in self._nodes.values():
                node.link.check()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
