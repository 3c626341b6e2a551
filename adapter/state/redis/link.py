"""The connection to one Redis server, over which all commands go, one after another without waiting for answers.

Commands that one turn of the event loop asks for are written together. A connection that is lost is opened again at
once; what was under way fails, and what is asked meanwhile waits for that one attempt. If it fails, or if the server
does not answer, everything fails at once until the server is back: nobody waits for a server that is known to be
away.

The word of other replicas from one server: a connection that listens to the channels of its partitions.

Channels are sharded ones. In a cluster the server that makes a change is the one that tells it, over the connection
that this replica has with just that server; an ordinary message would also cross the bus between the servers, and
what is lost there, nobody notices. A subscription that is lost is noticed by a ping, and taken up again.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.dialer import (
    LOST,
    NOT_OPEN,
    SILENT,
    Dial,
    LinkConnection,
    LinkLost,
    packed,
    unavailable,
)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts to connect: doubled after each that failed, and then up to a quarter shorter at random."""


DOUBT = 0.05
"""Seconds between an answer that is late and the end of its connection."""


class KeptConnection(ABC):
    """A connection that is opened again, in the background, whenever it is lost."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._connection: LinkConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Connect in the background, and keep connected from then on."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Close the connection for good."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def redial(self) -> None:
        """Close the connection and open another, because the server is not the right one any more."""
        if self._connection is not None:
            self._connection.abort()

    async def _run(self) -> None:
        pause = SHORTEST_PAUSE
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                answered = await self._once()
            except StoreUnavailable as error:
                self._unreached(error)
            except Exception as error:
                # A fault of ours must not leave anybody waiting for a connection for good.
                loop.call_exception_handler({"message": "a connection to Redis failed", "exception": error})
                self._unreached(unavailable(error))
            else:
                if answered or loop.time() - began > LONGEST_PAUSE:
                    pause = SHORTEST_PAUSE
                    continue
            # Also where the server took the connection and closed it at once.
            await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - spreads replicas
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _once(self) -> bool:
        connection = await self._dial()
        self._connection = connection
        try:
            return await self._use(connection)
        finally:
            connection.abort()
            await connection.disconnect(nowait=True)

    @abstractmethod
    def _unreached(self, failure: StoreUnavailable) -> None:
        """Note that an attempt to connect, or the connection, has failed."""

    @abstractmethod
    async def _use(self, connection: LinkConnection) -> bool:
        """Read from a connection until it is lost, and forget it. Tell whether the server gave an answer."""


class RedisLink(KeptConnection):
    """One connection for all commands to a server. ``timeout`` is the time for an answer, in seconds.

    ``failed`` is called after each attempt to connect that failed. All methods belong to the event loop.
    """

    def __init__(self, dial: Dial, timeout: float, *, failed: Callable[[], None]) -> None:
        super().__init__(dial)
        self._timeout = timeout
        self._failed = failed
        self._failure: StoreUnavailable | None = StoreUnavailable(NOT_OPEN)
        self._attempt: asyncio.Future[None] | None = None
        self._pending: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._doubted: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        state = "connected" if self._connection is not None else self._failure or "connecting"
        return f"<RedisLink: {state}, {len(self._pending)} commands under way>"

    def open(self) -> None:
        if self._task is None:
            self._failure = None
        super().open()

    async def close(self) -> None:
        """Wait for the answers under way, as long as each may take, and close the connection."""
        if self._pending:
            await asyncio.wait([self._pending[-1][1]])
        await super().close()
        self._settle_attempt(StoreUnavailable(NOT_OPEN))

    async def ask(self, *words: bytes) -> Any:
        """The server's answer to a command.

        Raises LinkLost, StoreUnavailable, and ResponseError for a command that the server refuses.
        """
        if self._connection is None:
            await self.ready()
        return await self._send(words)

    def tell(self, *words: bytes) -> None:
        """Send a command without waiting; it is dropped where there is no connection now."""
        if self._connection is not None:
            self._send(words).add_done_callback(_heard)

    def check(self) -> None:
        """Ask the server for a sign of life, if nothing else is asked of it now."""
        if not self._pending:
            self.tell(b"PING")

    # --- commands ---------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait for the attempt to connect that is under way. Raises StoreUnavailable."""
        if self._failure is None and self._connection is None:
            if self._attempt is None:
                self._attempt = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._attempt)
        if self._connection is None:
            raise StoreUnavailable(str(self._failure or LOST))

    def _send(self, words: tuple[bytes, ...]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if not self._unsent:
            # Not at once: whatever else this turn of the loop asks for goes along.
            loop.call_soon(self._flush)
        self._unsent.append(packed(words))
        deadline = loop.time() + self._timeout
        self._pending.append((deadline, answer))
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._look)
        return answer

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._connection is not None and unsent:
            self._connection.write(b"".join(unsent))

    def _look(self) -> None:
        """Break a connection that owes an answer too long. The first command asked is the first answered."""
        self._timer = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        deadline, first = self._pending[0]
        if loop.time() < deadline:
            self._timer = loop.call_at(deadline, self._look)
        elif self._doubted is not first:
            # The loop itself may have stood still, with the answer waiting to be read.
            self._doubted = first
            self._timer = loop.call_later(DOUBT, self._look)
        else:
            self._break(LinkLost(SILENT), hung=True)

    # --- the connection ---------------------------------------------------------------------------------------

    def _unreached(self, failure: StoreUnavailable) -> None:
        self._settle_attempt(failure)
        self._failed()

    def _settle_attempt(self, failure: StoreUnavailable | None) -> None:
        self._failure = failure
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.done():
            attempt.set_result(None)

    async def _use(self, connection: LinkConnection) -> bool:
        answered = False
        self._settle_attempt(None)
        try:
            while True:
                try:
                    # What fails is aborted: over TLS, a close would wait for the server.
                    answer = await connection.read_response(disable_decoding=True, disconnect_on_error=False)
                except ResponseError as error:
                    answer = error
                # Nobody has asked for what a server says after it was given up, or out of turn.
                if self._connection is not connection or not self._pending:
                    return answered
                answered = True
                _, waiting = self._pending.popleft()
                if not waiting.done():
                    if isinstance(answer, Exception):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)
        except (AuthenticationError, BusyLoadingError) as error:
            self._break(LinkLost(str(unavailable(error))), hung=True)
        except (RedisError, OSError):
            pass  # opened again
        finally:
            if self._connection is connection:
                self._break(LinkLost(LOST), hung=False)
        return answered

    def _break(self, failure: LinkLost, *, hung: bool) -> None:
        """Fail all commands under way. ``hung``: and all that are asked until the server is back."""
        self.redial()
        self._connection = None
        self._failure = StoreUnavailable(str(failure)) if hung else None
        pending, self._pending, self._unsent = self._pending, deque(), []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, waiting in pending:
            if not waiting.done():
                waiting.set_exception(LinkLost(str(failure)))


def _heard(settled: asyncio.Future[Any]) -> None:
    # Nobody waits for it; a failure that matters is noticed by the reader.
    if not settled.cancelled():
        settled.exception()


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
