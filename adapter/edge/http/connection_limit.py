"""The limit of connections, and the reserve above it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.request import Request

if TYPE_CHECKING:
    from adapter.edge.http.connection import ClientConnection

Handler = Callable[[Request], Awaitable[None]]

RESERVE = 64
"""Connections above the limit on which only health is told, so that a flood of clients does not look like a failure."""


WARN_EVERY = 60.0
"""Seconds between two warnings of the same thing."""

AT_ONCE = 32
"""Exchanges of clients that left which are cancelled in one turn of the loop; each takes about 0.2 milliseconds."""


class ConnectionLimit:
    """The connections of one listener. The first ``limit`` are served by ``handler``, None: any number. Where the
    system allows fewer open files than these take, it is as many as leave some for upstreams and for the reserve.

    ``reserve`` more are served by ``reserved``, once each. When those are taken too, the oldest silent one of them is
    closed for a newcomer. ``on_full`` is called for each connection that finds no place among the first.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limit: int | None = None,
        reserved: Handler | None = None,
        reserve: int = RESERVE,
        on_full: Callable[[], None] | None = None,
    ) -> None:
        self._handler = handler
        self._limit = limit
        self._reserved_handler = reserved or handler
        self._reserve = reserve
        self._on_full = on_full
        self._regular: set[ClientConnection] = set()
        self._reserved: dict[ClientConnection, None] = {}
        self._abandoned: deque[asyncio.Task[Any]] = deque()
        self._cancelled = 0

    def __repr__(self) -> str:
        return (
            f"<Places: {len(self._regular)} of {self._limit or 'any number'}, {len(self._reserved)} reserved>"
        )

    def __len__(self) -> int:
        return len(self._regular) + len(self._reserved)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter([*self._regular, *self._reserved])

    def take(self, connection: ClientConnection) -> tuple[Handler, bool] | None:
        """Give a new connection its place: the handler that serves it, and True if only once; None if there is none."""
        if (self._limit is None or len(self._regular) < self._limit) and not connection.scarce:
            self._regular.add(connection)
            return self._handler, False
        if self._on_full is not None:
            self._on_full()
        if len(self._reserved) >= self._reserve and not self._make_room():
            return None
        self._reserved[connection] = None
        return self._reserved_handler, True

    def leave(self, connection: ClientConnection) -> None:
        self._regular.discard(connection)
        self._reserved.pop(connection, None)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel the exchange of a client that has left. Where thousands leave at the same time, as when their process
        is killed, others have their turns in between."""
        if self._cancelled < AT_ONCE:
            self._cancel_now(task)
        else:
            self._abandoned.append(task)

    def _cancel_now(self, task: asyncio.Task[Any]) -> None:
        if not self._cancelled:
            asyncio.get_running_loop().call_soon(self._cancel_more)
        self._cancelled += 1
        task.cancel()

    def _cancel_more(self) -> None:
        self._cancelled = 0
        for _ in range(min(AT_ONCE, len(self._abandoned))):
            self._cancel_now(self._abandoned.popleft())

    def _make_room(self) -> bool:
        """Break off the reserved connection that has been silent longest; False where all are being answered."""
        oldest = next((each for each in self._reserved if each.silent), None)
        if oldest is None:
            return False
        del self._reserved[oldest]
        oldest.abort()
        return True


class RareWarning:
    """A warning that is called for over and over, and written once in WARN_EVERY seconds."""

    def __init__(self, logger: FilteringBoundLogger, event: str, **fields: object) -> None:
        self._logger = logger
        self._event = event
        self._fields = fields
        self._next = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + WARN_EVERY
            self._logger.warning(self._event, **self._fields)
