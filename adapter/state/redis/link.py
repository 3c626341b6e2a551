"""The connection to one Redis server, over which all commands go, one after another without waiting for answers.

Commands that one turn of the event loop asks for are written together. A connection that is lost is opened again at
once; what was under way fails, and what is asked meanwhile waits for that one attempt. If it fails, or if the server
does not answer, everything fails at once until the server is back: nobody waits for a server that is known to be
away.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

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
