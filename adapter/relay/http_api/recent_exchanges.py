"""The last exchanges, and news of each one that ends for those who watch.

Nothing of what was said is kept: no arguments, no results, no header fields.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import LimitReached
from adapter.relay.http_api.stage_timings import LONGEST, WalkedStage, begin_walk, walked

KEPT = 500
"""Exchanges that are kept."""

WAITING = 256
"""News that wait for one who is slow; of more the oldest are lost."""

WATCHERS = 64
"""How many may watch at once."""


class PastExchange(NamedTuple):
    """One exchange that is over. ``at`` is when it ended, in Unix seconds; ``ms`` how long it took.

    ``method`` is JSON-RPC's, or HTTP's where there is no message; ``tool`` is None for anything but a call of one.
    ``principal`` is who asked, None where that was not found out.
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

    def told(self) -> dict[str, Any]:
        """For people to see, without whose it was."""
        told = self._asdict()
        del told["principal"]
        told["stages"] = [stage._asdict() for stage in self.stages]
        return told


class News(NamedTuple):
    """The exchanges that ended since the last news, the oldest first, and how many before them were lost."""

    exchanges: tuple[PastExchange, ...]
    lost: int


class Subscription:
    """One watcher's news. ``whose``: the principal whose exchanges it is told of, None: everybody's."""

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
        """There will be no more news; those that wait can still be had."""
        self._closed = True
        self._arrived.set()

    async def news(self, patience: float) -> News | None:
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
        self._closed = False

    def __repr__(self) -> str:
        return f"<Recent: {len(self._kept)} exchanges, {len(self._watchers)} watchers>"

    # --- for entrances ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """This task begins an exchange, to which the stages that are walked from now on belong."""
        begin_walk()

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
        )
        self._kept.append(exchange)
        for watcher in self._watchers:
            watcher.offer(exchange)

    # --- for watchers -----------------------------------------------------------------------------------------

    def last(self, whose: str | None = None) -> list[PastExchange]:
        """The exchanges that are kept, the newest first: of one principal, or everybody's."""
        return [each for each in reversed(self._kept) if whose is None or each.principal == whose]

    def subscribe(self, whose: str | None = None) -> Subscription:
        """Be told of what ends from now on, until ``unsubscribe``. Raises LimitReached."""
        if len(self._watchers) >= WATCHERS:
            raise LimitReached(
                f"{WATCHERS} viewers watch the exchanges, and no more are allowed; try again later.",
                retry_after=5,
            )
        watcher = Subscription(whose)
        if self._closed:
            watcher.close()
        else:
            self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Subscription) -> None:
        """Harmless when said twice."""
        self._watchers.discard(watcher)

    @property
    def watchers(self) -> int:
        """The number of those who watch now."""
        return len(self._watchers)

    def close(self) -> None:
        """The adapter stops: whoever watches has seen it all."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()
        self._watchers.clear()
