"""The last exchanges with the timings of their stages, and news for operators of each one that ends.

No contents are kept: no arguments, no results, no header fields.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter.errors import LimitReached
from adapter.rules.calls.request_outcomes import MinuteCounts

GONE = "client_gone"
"""The outcome of an exchange that its client gave up."""

_SERVERS_FAULT = "upstream_"
_GATEWAY = (502, 503, 504)


class WalkedStage(NamedTuple):
    """``start_ms`` is since the exchange began. ``outcome``: ok, failed, cancelled, timeout, busy, rate, unfinished."""

    name: str
    start_ms: float
    ms: float
    outcome: str


class PastExchange(NamedTuple):
    """One exchange that is over. ``at`` is when it ended, in Unix seconds; ``ms`` how long it took.

    ``method`` is JSON-RPC's, or HTTP's where there is no message; ``tool`` is None for anything but a call of one.
    ``principal`` is who asked, None where that was not found out. ``replica`` is the id of another replica that had it.
    ``call`` is the id that a caller over HTTP gave the call, if any.
    """

    at: float
    server: str
    method: str
    tool: str | None
    entrance: str
    outcome: str
    status: int | None
    ms: float
    stages: tuple[WalkedStage, ...]
    principal: str | None
    replica: str | None = None
    call: str | None = None

    @property
    def failed(self) -> bool:
        """Tell whether it failed. One that its client gave up did not."""
        if self.outcome != "ok":
            return self.outcome != GONE
        return self.status is not None and self.status >= 400

    @property
    def failed_at_server(self) -> bool:
        """Tell whether the server failed or refused, and not the adapter or the caller."""
        if not self.failed or self.outcome == "ok":
            return self.failed
        at_gateway = self.entrance == "http" and self.status in _GATEWAY
        return at_gateway or self.outcome.startswith(_SERVERS_FAULT)

    def shown(self, reader: str | None = None) -> dict[str, Any]:
        """For people to see, without whose it was.

        With ``reader`` (a principal) also tell whether it was the reader's own, and the id of such a call.
        """
        fields = self._asdict()
        call = fields.pop("call")
        del fields["principal"]
        fields["stages"] = [stage._asdict() for stage in self.stages]
        if self.replica is None:
            del fields["replica"]
        if reader is not None:
            fields["own"] = self.principal == reader
            if fields["own"] and call is not None:
                fields["call"] = call
        return fields


# --- stages -------------------------------------------------------------------------------------------------------

STAGES = 64
"""Stages of one exchange that are kept."""

LONGEST = 128
"""Characters that are kept of a name."""


_walk: ContextVar[tuple[float, list[StageTiming]] | None] = ContextVar("walk", default=None)
"""The beginning of this task's exchange, and its stages in the order they began."""


def walked() -> tuple[WalkedStage, ...]:
    """The stages of this task's exchange until now."""
    began, stages = _walk.get() or (0.0, ())
    # Most exchanges walk none.
    return tuple(each.told(began) for each in stages) if stages else ()


def begin_stage(name: str) -> StageTiming | None:
    """A stage of this task's exchange begins; None outside of any, and where it has had STAGES of them."""
    walk = _walk.get()
    if walk is None or len(walk[1]) >= STAGES:
        return None
    stage = StageTiming(name[:LONGEST])
    walk[1].append(stage)
    return stage


@dataclass(eq=False, slots=True)
class StageTiming:
    """One stage while it is walked."""

    name: str
    _outcome: str = field(default="ok", init=False)
    _began: float = field(default_factory=time.perf_counter, init=False)
    _ended: float | None = field(default=None, init=False)

    def end(self, error: BaseException | None) -> None:
        """See TimedStage."""
        self._ended = time.perf_counter()
        if error is None:
            return
        # Late: only a stage can fail, and whoever has stages has loaded this.
        from adapter.pipeline.failures import StageFailed

        if isinstance(error, asyncio.CancelledError):
            self._outcome = "cancelled"
        elif isinstance(error, StageFailed) and error.reason is not None:
            self._outcome = error.reason
        else:
            self._outcome = "failed"

    def told(self, exchange_began: float) -> WalkedStage:
        """The times, in milliseconds since the exchange began."""
        # A stage may outlast its exchange by a moment, when that was cut off.
        ended, outcome = self._ended, self._outcome
        if ended is None:
            ended, outcome = time.perf_counter(), "unfinished"
        return WalkedStage(
            self.name,
            _milliseconds(self._began - exchange_began),
            _milliseconds(ended - self._began),
            outcome,
        )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


# --- exchanges ----------------------------------------------------------------------------------------------------

KEPT = 500
"""Exchanges that are kept."""

WAITING = 256
"""News that wait for one who is slow; of more the oldest are lost."""

WATCHERS = 64
"""How many may watch at once."""


class News(NamedTuple):
    """The exchanges that ended since the last news, the oldest first, and how many before them were lost."""

    exchanges: tuple[PastExchange, ...]
    lost: int


class Subscription:
    """One watcher's news. ``whose``: the principal whose exchanges it sees, None: everybody's."""

    def __init__(self, whose: str | None) -> None:
        self._whose = whose
        self._waiting: deque[PastExchange] = deque(maxlen=WAITING)
        self._lost = 0
        self._closed = False
        self._arrived = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Subscription: {len(self._waiting)} waiting, {self._lost} lost>"

    def offer(self, exchange: PastExchange) -> None:
        if self._whose is not None and exchange.principal != self._whose:
            return
        self._lost += len(self._waiting) == WAITING
        self._waiting.append(exchange)
        self._arrived.set()

    def close(self) -> None:
        """End the news; those that wait can still be read."""
        self._closed = True
        self._arrived.set()

    async def next_news(self, patience: float) -> News | None:
        """Return news as soon as there is any; empty news after ``patience`` seconds, None at the end."""
        if not self._arrived.is_set():
            try:
                async with asyncio.timeout(patience):
                    await self._arrived.wait()
            except TimeoutError:
                return News((), 0)
        if not self._waiting and self._closed:
            return None
        if not self._closed:
            self._arrived.clear()
        news = News(tuple(self._waiting), self._lost)
        self._waiting.clear()
        self._lost = 0
        return news


class Recent:
    """The last exchanges, in memory of a few hundred KB at most."""

    def __init__(self) -> None:
        self._kept: deque[PastExchange] = deque(maxlen=KEPT)
        self._watchers: set[Subscription] = set()
        self._tellers: set[Subscription] = set()
        self._closed = False
        self.on_watch: list[Callable[[], None]] = []
        """Called when a viewer begins to watch."""
        self.on_close: list[Callable[[], None]] = []
        """Called when the adapter stops, to end other streams of the console."""
        self.counts = MinuteCounts(time.time())
        self.failures: dict[str, PastExchange] = {}
        """The last ones that failed for a reason of their server's, by the ids of servers."""

    def __repr__(self) -> str:
        return f"<Recent: {len(self._kept)} exchanges, {len(self._watchers)} watchers>"

    # --- for entrances ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """This task begins an exchange, to which the stages that are walked from now on belong."""
        _walk.set((time.perf_counter(), []))

    def end(self, line: Mapping[str, Any], principal: str | None) -> None:
        """The exchange of this task is over.

        ``line`` is what the log of calls would have: ``at`` (Unix seconds), ``server``, ``http``, ``method``,
        ``name``, ``status``, ``outcome``, ``ms``; and ``entrance``, where that is not MCP.
        """
        method, name = line["method"] or line["http"], line["name"]
        exchange = PastExchange(
            line["at"],
            line["server"],
            method[:LONGEST],
            # Other names are URIs and the like, which may say whose they are.
            name[:LONGEST] if name is not None and method == "tools/call" else None,
            line.get("entrance", "mcp"),
            line["outcome"],
            line["status"],
            line["ms"],
            walked(),
            principal,
            None,
            line.get("call"),
        )
        self._kept.append(exchange)
        failed = exchange.failed
        self.counts.count(exchange.at, is_call=method == "tools/call", failed=failed)
        if failed and exchange.failed_at_server:
            self.failures[exchange.server] = exchange
        for watcher in self._watchers:
            watcher.offer(exchange)
        for teller in self._tellers:
            teller.offer(exchange)

    def offer(self, exchange: PastExchange) -> None:
        """Show the viewers an exchange of another replica. It is not kept here."""
        for watcher in self._watchers:
            watcher.offer(exchange)

    # --- for watchers -----------------------------------------------------------------------------------------

    def last(self, whose: str | None = None) -> list[PastExchange]:
        """The exchanges that are kept, the newest first: of one principal, or everybody's."""
        return [each for each in reversed(self._kept) if whose is None or each.principal == whose]

    def subscribe(self, whose: str | None = None, *, is_viewer: bool = True) -> Subscription:
        """Watch the exchanges that end from now on, until ``unsubscribe``. Raises LimitReached.

        Who is no viewer sees those of this replica only.
        """
        if len(self._watchers) >= WATCHERS:
            raise LimitReached(
                f"{WATCHERS} viewers watch the exchanges, and no more are allowed; try again later.",
                retry_after=5,
            )
        watcher = Subscription(whose)
        if self._closed:
            watcher.close()
        else:
            (self._watchers if is_viewer else self._tellers).add(watcher)
        if is_viewer:
            for begin in self.on_watch:
                begin()
        return watcher

    def unsubscribe(self, watcher: Subscription) -> None:
        """End a watch. Idempotent."""
        self._watchers.discard(watcher)
        self._tellers.discard(watcher)

    @property
    def watchers(self) -> int:
        """The number of those who watch now."""
        return len(self._watchers)

    def close(self) -> None:
        """End all watches: the adapter stops."""
        self._closed = True
        for watcher in (*self._watchers, *self._tellers):
            watcher.close()
        for act in self.on_close:
            act()
        self._watchers.clear()
