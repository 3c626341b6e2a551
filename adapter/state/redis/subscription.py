"""The word of other replicas from one server: a connection that listens to the channels of its partitions.

Channels are sharded ones. In a cluster the server that makes a change is the one that tells it, over the connection
that this replica has with just that server; an ordinary message would also cross the bus between the servers, and
what is lost there, nobody notices. A subscription that is lost is noticed by a ping, and taken up again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.dialer import Dial, LinkConnection, packed
from adapter.state.redis.failures import LOST, LinkLost, unavailable

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts to subscribe, as of ``link.py``."""

BEATS = 2.5
"""Pings in the time in which silence must be noticed: it takes two to notice it."""


class WordListener(NamedTuple):
    """``hear`` gets each message. ``unknown`` is called when messages may have been missed.

    ``lost`` is called when the server has become silent, ``refused`` with a sentence when it may not be heard.
    """

    hear: Callable[[bytes], None]
    unknown: Callable[[], None]
    lost: Callable[[], None]
    refused: Callable[[str], None]


class RedisSubscription:
    """Hears ``channels`` of the server that ``dial`` connects to.

    ``cache_seconds`` is the time in which a silent server is noticed, and the time between two calls of ``unknown``
    while nothing can be heard.
    """

    def __init__(
        self, dial: Dial, channels: Sequence[bytes], cache_seconds: float, listener: WordListener
    ) -> None:
        self._dial = dial
        self._channels = channels
        self._cache_seconds = cache_seconds
        self._listener = listener
        self._connection: LinkConnection | None = None
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self._deaf: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RedisSubscription: {len(self._channels)} channels, {'deaf' if self._deaf else 'hearing'}>"

    def open(self) -> None:
        """Subscribe in the background, and stay subscribed from then on."""
        if self._task is None:
            self._miss()
            self._task = asyncio.get_running_loop().create_task(self._run())

    def redial(self) -> None:
        """Close the connection and open another, because the server is not the right one any more."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        task, self._task = self._task, None
        if self._deaf is not None:
            self._deaf.cancel()
            self._deaf = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        pause = SHORTEST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._listen(await self._dial())
            except ResponseError as error:
                self._listener.refused(str(unavailable(error)))
            except (StoreUnavailable, RedisError, OSError):
                pass  # taken up again below
            except Exception as error:
                # A fault of ours must not make the replica deaf for good.
                context = {"message": "a subscription to Redis failed", "exception": error}
                loop.call_exception_handler(context)
            if self._deaf is None:
                self._miss()
            self._listener.lost()
            if loop.time() - began > LONGEST_PAUSE:
                pause = SHORTEST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - spreads replicas
            pause = min(2 * pause, LONGEST_PAUSE)

    def _miss(self) -> None:
        """Tell that messages may be missed, now and as long as it is so."""
        loop = asyncio.get_running_loop()
        self._deaf = loop.call_later(self._cache_seconds, self._miss)
        self._listener.unknown()

    async def _listen(self, connection: LinkConnection) -> None:
        """Hear until the connection is lost. Raises RedisError, OSError, or LinkLost for a silent server."""
        reading = asyncio.get_running_loop().create_task(self._read(connection))
        self._connection, self._asked = connection, False
        try:
            # One command for each: in a cluster, the channels of a command must be of one slot.
            connection.write(b"".join(packed((b"SSUBSCRIBE", name)) for name in self._channels))
            while not reading.done():
                await asyncio.wait([reading], timeout=self._cache_seconds / BEATS)
                if self._asked:
                    raise LinkLost(LOST)
                self._asked = True
                connection.write(packed((b"PING",)))
            reading.result()
        finally:
            self._connection = None
            reading.cancel()
            connection.abort()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()
            await connection.disconnect(nowait=True)

    async def _read(self, connection: LinkConnection) -> None:
        missing = len(self._channels)
        while True:
            answer = await connection.read_response(disable_decoding=True)
            self._asked = False
            match answer:
                case [b"smessage", _, bytes(message)]:
                    self._listener.hear(message)
                case [b"ssubscribe", _, _]:
                    missing -= 1
                    if missing == 0:
                        self._heard_again()
                case [b"sunsubscribe", _, _]:
                    # The partition has moved to another server.
                    raise LinkLost(LOST)

    def _heard_again(self) -> None:
        if self._deaf is not None:
            self._deaf.cancel()
            self._deaf = None
        # What was told before the server took the subscription has been missed.
        self._listener.unknown()
