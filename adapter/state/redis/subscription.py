"""The word of other replicas from one server: a connection that listens to the channels of its partitions.

Channels are sharded ones. In a cluster the server that makes a change is the one that tells it, over the connection
that this replica has with just that server; an ordinary message would also cross the bus between the servers, and
what is lost there, nobody notices. A subscription that is lost is noticed by a ping, and taken up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.dialer import LOST, Dial, LinkConnection, LinkLost, packed, unavailable
from adapter.state.redis.link import KeptConnection

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


class RedisSubscription(KeptConnection):
    """Hears ``channels`` of the server that ``dial`` connects to.

    ``cache_seconds`` is the time in which a silent server is noticed, and the time between two calls of ``unknown``
    while nothing can be heard.
    """

    def __init__(
        self, dial: Dial, channels: Sequence[bytes], cache_seconds: float, listener: WordListener
    ) -> None:
        super().__init__(dial)
        self._channels = channels
        self._cache_seconds = cache_seconds
        self._listener = listener
        self._deaf: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RedisSubscription: {len(self._channels)} channels, {'deaf' if self._deaf else 'hearing'}>"

    def open(self) -> None:
        """Subscribe in the background, and stay subscribed from then on."""
        if self._task is None:
            self._miss()
        super().open()

    async def close(self) -> None:
        if self._deaf is not None:
            self._deaf.cancel()
            self._deaf = None
        await super().close()

    def _unreached(self, failure: StoreUnavailable) -> None:  # noqa: ARG002 (the link tells it)
        self._lost()

    async def _use(self, connection: LinkConnection) -> bool:
        try:
            await self._listen(connection)
        except ResponseError as error:
            self._listener.refused(str(unavailable(error)))
        except (StoreUnavailable, RedisError, OSError):
            pass  # taken up again
        finally:
            self._connection = None
        return self._lost()

    def _lost(self) -> bool:
        """Tell that nothing is heard now; and whether anything was until now."""
        heard = self._deaf is None
        if heard:
            self._miss()
        self._listener.lost()
        return heard

    def _miss(self) -> None:
        """Tell that messages may be missed, now and as long as it is so."""
        loop = asyncio.get_running_loop()
        self._deaf = loop.call_later(self._cache_seconds, self._miss)
        self._listener.unknown()

    async def _listen(self, connection: LinkConnection) -> None:
        """Hear until the connection is lost. Raises RedisError, OSError, or LinkLost for a silent server."""
        # One command for each: in a cluster, the channels of a command must be of one slot.
        connection.write(b"".join(packed((b"SSUBSCRIBE", name)) for name in self._channels))
        missing, asked = len(self._channels), False
        while True:
            answer = await connection.read_response(
                disable_decoding=True, timeout=self._cache_seconds / BEATS, disconnect_on_error=False
            )
            if answer is None:
                if asked:
                    raise LinkLost(LOST)
                connection.write(packed((b"PING",)))
            asked = answer is None
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
