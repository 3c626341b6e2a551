"""How an upstream is: pings in a session of their own, the breaker they feed, and what health tells of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamBroken, UpstreamUnreachable
from adapter.relay.server import Server
from adapter.relay.visit import Visit
from adapter.relay.wiring import missing_tools
from adapter.rules.breaker import BreakerState
from adapter.wire.eras import Era

T = TypeVar("T")

POINTS = 120
"""Pings of one server that are remembered: half an hour at the interval that is usual."""


@dataclass(frozen=True, slots=True)
class PingSettings:
    """Seconds, and how many failures in a row open the breaker."""

    interval: float = 15.0
    timeout: float = 5.0


@dataclass(slots=True)
class Pulse:
    """What the last ping found. ``latency`` in seconds; times are Unix seconds.

    ``missing`` are the configured tools that the upstream did not list when it was last looked at, None while that
    is not known.
    """

    reached: bool = False
    era: Era | None = None
    latency: float | None = None
    error: str | None = None
    last_success: float | None = None
    last_attempt: float | None = None
    missing: frozenset[str] | None = None


class Probe:
    """Pings one upstream in a session that belongs to no client. ``opened`` counts the attempts to open one."""

    def __init__(self, server: Server, timeout: float) -> None:
        self._visit = Visit(server, timeout)
        self._timeout = timeout
        self.opened = 0

    @property
    def era(self) -> Era | None:
        """The era that the upstream was last found to speak."""
        return self._visit.era

    async def ping(self) -> None:
        """Raises an AdapterError unless the upstream answered as an MCP server, in whichever era it speaks.

        A refusal for want of credentials is an answer too: they are the clients' to bring.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._ping()
        except TimeoutError:
            raise UpstreamUnreachable(f"No answer to a ping within {self._timeout:g} s.") from None

    async def _ping(self) -> None:
        if self._visit.era is Era.MODERN:
            await self._visit.discover()
        elif not self._visit.is_open or (await self._visit.ask("ping")).status != 200:
            self.opened += 1
            await self._visit.open()

    async def missing(self, configured: frozenset[str]) -> frozenset[str] | None:
        """The configured tools that the upstream does not list, None where it shows the probe no list.

        Raises an AdapterError where it could not be asked.
        """
        return await missing_tools(self._visit, configured, self._timeout) if self._visit.is_open else None

    async def close(self) -> None:
        """End the probe's own session upstream."""
        await self._visit.close()


class Watch:
    """Pings one server on its interval and feeds its breaker. ``clock`` gives Unix time in seconds.

    ``history`` has when each of the last pings was answered and how long that took, in Unix seconds and milliseconds;
    None for one that was not.
    """

    def __init__(
        self, server: Server, settings: PingSettings, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> None:
        self.server = server
        self.pulse = Pulse()
        self.history: deque[tuple[float, float | None]] = deque(maxlen=POINTS)
        self.first = asyncio.Event()
        self._settings = settings
        self._probe = Probe(server, settings.timeout)
        self._clock = clock
        self._log = log
        self._looked_in = 0
        self._told = BreakerState.CLOSED

    async def run(self) -> None:
        """Ping until cancelled; servers are watched apart, so that a slow one delays no other."""
        loop = asyncio.get_running_loop()
        while True:
            breaker = self.server.breaker
            if breaker is None or breaker.may_probe(loop.time()):
                await self.ping_once()
            await asyncio.sleep(self._pause(loop.time()))

    async def ping_once(self) -> None:
        loop = asyncio.get_running_loop()
        breaker, began = self.server.breaker, loop.time()
        if breaker is not None:
            breaker.probe_started()
        self.pulse.last_attempt = self._clock()
        try:
            await self._guarded(self._probe.ping())
        except AdapterError as error:
            self.pulse.reached, self.pulse.error = False, str(error)
            self.history.append((self._clock(), None))
            self._looked_in = 0
            if breaker is not None:
                breaker.failed(loop.time())
        except asyncio.CancelledError:
            if breaker is not None:
                breaker.probe_abandoned()
            raise
        else:
            self.pulse.reached, self.pulse.error, self.pulse.era = True, None, self._probe.era
            self.pulse.latency = loop.time() - began
            self.pulse.last_success = self._clock()
            self.history.append((self.pulse.last_success, round(self.pulse.latency * 1000, 2)))
            if breaker is not None:
                breaker.succeeded(loop.time())
        self.first.set()
        # Not each try in between: a server that stays away would fill the log.
        if breaker is not None and breaker.state not in (self._told, BreakerState.HALF_OPEN):
            self._told = breaker.state
            self._log.warning(
                "breaker changed", server=self.server.id, state=breaker.state.value, why=self.pulse.error
            )
        if self.pulse.reached:
            await self._look_at_tools()

    async def _look_at_tools(self) -> None:
        """Look for the configured tools, once for each session of the probe, and again while any is missing."""
        configured, opened = self.server.configured_tools, self._probe.opened
        if not configured or (self._looked_in == opened and self.pulse.missing == frozenset()):
            return
        try:
            missing = await self._guarded(self._probe.missing(configured))
        except AdapterError as error:
            # The upstream answered a ping just now, so what is known of its tools stays until it says otherwise.
            self._log.info("tools could not be looked for", server=self.server.id, why=str(error))
            return
        self._looked_in = opened
        if missing != self.pulse.missing and (missing or self.pulse.missing):
            self._log.warning("configured tools missing", server=self.server.id, tools=sorted(missing or ()))
        self.pulse.missing = missing

    async def _guarded(self, asking: Coroutine[Any, Any, T]) -> T:
        try:
            return await asking
        except AdapterError:
            raise
        except Exception as error:
            # A defect here must not end the watch: the breaker would stay as it is for good.
            self._log.exception("a ping failed unexpectedly", server=self.server.id)
            raise UpstreamBroken("A ping failed unexpectedly; the adapter's log has the details.") from error

    def _pause(self, now: float) -> float:
        """Until the next ping: sooner than the interval before the first success, and when the breaker opens."""
        if self.pulse.last_success is None:
            return min(1.0, self._settings.interval)
        breaker = self.server.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            return min(self._settings.interval, breaker.retry_after(now))
        return self._settings.interval

    async def close(self) -> None:
        await self._probe.close()
