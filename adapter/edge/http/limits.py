"""The limits of connections: how many there are, and how long their clients may take.

Turns of the loop, for what many clients may ask of it at the same moment.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.parser import RequestStream
from adapter.edge.http.request import COMMON_AT_MOST, CommonHeads, Request
from adapter.relay.background import nothing, settle

AT_ONCE = 16
"""Steps that begin in one turn, and as many that have waited; each takes about 0.2 milliseconds."""


class Turns:
    """Lets so many steps be done in one turn of the loop, and the others in the turns that follow: each time half of
    them for those who have waited longest, and half for those who came last.

    The oldest alone would be fair among the many who came together, but who comes behind them would wait for all.
    ``taken`` has an item for each step of this turn.
    """

    def __init__(self) -> None:
        self.taken: list[None] = []
        self._waiting: deque[Callable[[], object]] = deque()

    def __repr__(self) -> str:
        return f"<Turns: {len(self._waiting)} steps waiting>"

    def do(self, step: Callable[[], object]) -> None:
        """Do ``step`` now, or in a later turn if this one has had its share."""
        if not self.taken:
            asyncio.get_running_loop().call_soon(self.taken.clear)
        if len(self.taken) < AT_ONCE:
            self.taken.append(None)
            step()
        else:
            self.later(step)

    def later(self, step: Callable[[], object]) -> None:
        """Do ``step`` in a later turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._waiting.append(step)

    async def wait(self) -> None:
        """Wait for a later turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.later(partial(settle, turn))
        await turn

    def _go_on(self) -> None:
        waiting = self._waiting
        for number in range(min(AT_ONCE, len(waiting))):
            (waiting.pop if number % 2 else waiting.popleft)()()
        if waiting:
            asyncio.get_running_loop().call_soon(self._go_on)


Handler = Callable[[Request], Awaitable[None]]

RESERVE = 64
"""Connections above the limit on which only health is told, so that a flood of clients does not look like a failure."""


WARN_EVERY = 60.0
"""Seconds between two warnings of the same thing."""


class LimitedConnection(Protocol):
    """A client's connection, as far as its place and its deadlines are concerned."""

    scarce: bool
    """True where the system has few descriptors left."""
    paused: bool
    """True while nothing is read from it."""
    task: asyncio.Task[None] | None
    """The answer under way."""

    @property
    def silent(self) -> bool:
        """True while no request of it is being answered."""

    @property
    def leaving(self) -> bool:
        """True while the last answer may still be on its way."""

    def retire(self) -> None: ...

    def abort(self) -> None: ...

    def close_if_idle(self, since: float) -> None: ...

    def refuse_slow_head(self) -> None: ...


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
        self._regular: set[LimitedConnection] = set()
        self._reserved: dict[LimitedConnection, None] = {}
        self.heads = CommonHeads(COMMON_AT_MOST)
        self.begins = Turns()
        """The turns in which requests begin."""
        self._ends = Turns()
        self._retired = False
        self.on_refusal: Callable[[str], None] = nothing
        """Called with the reason where a connection is refused, or bytes on one that are no request: ``http_`` and the
        status, or the code of an error."""

    def __repr__(self) -> str:
        limit = self._limit or "any number"
        return f"<ConnectionLimit: {len(self._regular)} of {limit}, {len(self._reserved)} reserved>"

    def __len__(self) -> int:
        return len(self._regular) + len(self._reserved)

    def __iter__(self) -> Iterator[LimitedConnection]:
        return iter([*self._regular, *self._reserved])

    def take(self, connection: LimitedConnection) -> tuple[Handler, bool] | None:
        """Give a new connection its place: the handler that serves it, and True if only once; None if there is none."""
        if (self._limit is None or len(self._regular) < self._limit) and not connection.scarce:
            self._regular.add(connection)
            return self._handler, self._retired
        if self._on_full is not None:
            self._on_full()
        if len(self._reserved) >= self._reserve and not self._make_room():
            return None
        self._reserved[connection] = None
        return self._reserved_handler, True

    def retire(self) -> None:
        """Allow one more request on each connection, also on those that are on their way."""
        self._retired = True
        for connection in self:
            connection.retire()

    def leave(self, connection: LimitedConnection) -> None:
        self._regular.discard(connection)
        self._reserved.pop(connection, None)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel the exchange of a client that has left. Where thousands leave at the same time, as when their process
        is killed, others have their turns in between."""
        self._ends.do(task.cancel)

    def _make_room(self) -> bool:
        """Break off the reserved connection that has been silent longest; False where all are being answered."""
        oldest = next((each for each in self._reserved if each.silent), None)
        if oldest is None:
            return False
        del self._reserved[oldest]
        oldest.abort()
        return True


class RareWarning:
    """A warning that is written at most once in WARN_EVERY seconds, however often it is called."""

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


# --- time ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a client may take.

    ``idle``: how long a connection may lie idle. ``head``: how long a head may take, from its first byte. ``linger``:
    how long what still arrives after the last answer is taken and thrown away. ``half_closed``: how long an exchange
    goes on after the client closed its side; most that do have gone altogether, which looks the same from here
    (RFC 9112, 9.6). ``stall``: how long it may take nothing of what waits for it.
    """

    idle: float = 75.0
    head: float = 15.0
    linger: float = 2.0
    half_closed: float = 0.5
    stall: float = 60.0

    @property
    def for_head(self) -> float:
        """The time of a head: no longer than a connection on which nothing comes is kept."""
        return min(self.head, self.idle)


PATIENCE = Patience()

LOOK_EVERY = 1.0
"""Seconds between two looks for a client from which nothing is read."""

_LEFT = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""Signs of a peer that has closed or reset its side. Where there is no POLLRDHUP, one that only closed is not seen."""


class ConnectionTimers:
    """The deadlines of one connection. ``quiet_since`` is when its last answer was given, in loop time."""

    __slots__ = (
        "_connection", "_deadline", "_drain_timer", "_head_due", "_head_number", "_head_timer", "_loop", "_patience",
        "_presence_timer", "_requests", "_transport", "quiet_since",
    )  # fmt: skip

    def __init__(
        self,
        connection: LimitedConnection,
        requests: RequestStream,
        transport: asyncio.Transport,
        patience: Patience,
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._transport = transport
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_number = 0
        self._head_due = 0.0
        self._presence_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self.quiet_since = self._loop.time()
        self.expect(patience.idle, self._check_idle)

    def cancel(self) -> None:
        """Stop all of them; the connection is over."""
        for timer in (self._deadline, self._head_timer, self._presence_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Call ``otherwise`` unless the connection ends before; takes the place of the idle deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, otherwise)

    def _check_idle(self) -> None:
        """Close a connection that was idle for too long. A head that has begun has its own deadline."""
        wait = self._patience.idle
        if self._connection.silent and not self._requests.in_head:
            wait -= self._loop.time() - self.quiet_since
            if wait <= 0 and self._transport.is_closing():
                # The last answer was not taken either.
                self._transport.abort()
                return
            if wait <= 0:
                self._transport.close()
                wait = self._patience.linger
        self.expect(wait, self._check_idle)

    # --- heads ------------------------------------------------------------------------------------------------

    def watch_head(self) -> None:
        """Watch the head that has begun and is not whole yet; to be called whenever some of it has come."""
        if self._head_number != self._requests.heads:
            self._head_number = self._requests.heads
            self._head_due = self._loop.time() + self._patience.for_head
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._patience.for_head, self._check_head)

    def _check_head(self) -> None:
        self._head_timer = None
        if not self._requests.in_head:
            return
        # While nothing is read it is not the client who is slow.
        paused = self._connection.paused
        left = self._patience.for_head if paused else self._head_due - self._loop.time()
        if left > 0:
            self._head_timer = self._loop.call_later(left, self._check_head)
        else:
            self._connection.refuse_slow_head()

    # --- answers ----------------------------------------------------------------------------------------------

    def watch_drain(self) -> None:
        """Break the connection off when nothing of what waits leaves for a while, until ``drained`` is called."""
        left = self._transport.get_write_buffer_size()
        self._drain_timer = self._loop.call_later(self._patience.stall, self._check_drain, left)

    def drained(self) -> None:
        """Stop watching what waits; the client has taken it."""
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None

    def _check_drain(self, left: int) -> None:
        if self._transport.get_write_buffer_size() < left:
            self.watch_drain()
        else:
            self._transport.abort()

    # --- presence ---------------------------------------------------------------------------------------------

    def watch_presence(self) -> None:
        """Check from time to time that the client is there: an unread connection does not report its end."""
        if self._presence_timer is None:
            self._presence_timer = self._loop.call_later(LOOK_EVERY, self._check_presence)

    def _check_presence(self) -> None:
        self._presence_timer = None
        if not self._connection.paused or self._transport.is_closing():
            return
        if _has_left(self._transport):
            self._transport.abort()
        else:
            self.watch_presence()


def _has_left(transport: asyncio.Transport) -> bool:
    """Return True if the peer of a transport has gone."""
    return _signals(transport, _LEFT)


def has_arrived(transport: asyncio.Transport) -> bool:
    """Return True if the peer of a transport has sent something that nobody has read yet."""
    return not transport.is_closing() and _signals(transport, select.POLLIN) and not _has_left(transport)


def _signals(transport: asyncio.Transport, signs: int) -> bool:
    watched = select.poll()
    watched.register(transport.get_extra_info("socket").fileno(), signs)
    return bool(watched.poll(0))
