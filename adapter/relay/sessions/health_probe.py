"""An upstream's health: pings in a session of their own, the breaker they feed, and their figures."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.relay.background import in_turns, nothing
from adapter.relay.server import REFUSED, Server
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.renewal import LATEST
from adapter.rules.access.access_rules import SHAPES, OfferKind, read_page
from adapter.rules.calls.circuit_breaker import BreakerState
from adapter.rules.tools.lists import ListRefused
from adapter.settings.servers.policies import UpstreamPing
from adapter.wire.eras import LEGACY, Era

PAGES = 1000
"""Pages of one list that are looked through."""

FIRST_PAUSE = 1.0
"""Seconds between the first two looks at a server that is not there, or lacks a tool. They double each time."""

LONGEST_PAUSE = 60.0
"""Seconds between two looks later on."""


async def look_at_tools(server: Server, session: OwnSession, log: FilteringBoundLogger) -> None:
    """Look for the configured tools on all pages of the list, and log it where other ones are missing than before.

    ``session`` is open, unless the server refuses the adapter. Raises UpstreamSilent, what the upstream raises, and
    BadJson; then ``missing`` stays as it was.
    """
    wiring, within = server.wiring, server.timeouts.request
    wiring.stale.clear()
    before = wiring.missing
    try:
        async with asyncio.timeout(within):
            wiring.missing = await _missing(session, wiring.configured) if session.is_open else None
    except BaseException as error:
        wiring.stale.set()
        wiring.on_look("failed")
        if isinstance(error, TimeoutError):
            sentence = f"The upstream server did not list its tools within {within:g} s."
            raise UpstreamSilent(sentence) from None
        raise
    wiring.refused = wiring.missing is None
    wiring.on_look("refused" if wiring.refused else "missing" if wiring.missing else "ready")
    if wiring.missing != before and (wiring.missing or before):
        log.warning("configured tools missing", server=server.id, tools=sorted(wiring.missing or ()))


async def _missing(session: OwnSession, configured: frozenset[str]) -> frozenset[str] | None:
    missing, params = set(configured), dict[str, Any]()
    for _ in range(PAGES):
        answer = await session.ask("tools/list", params)
        if answer.response is None:
            return None
        try:
            page = await in_turns(read_page(answer.response, SHAPES[OfferKind.TOOL]))
        except ListRefused:
            return None
        if page is None:
            return None
        missing.difference_update(name for name, _ in page.entries)
        if not missing or page.cursor is None:
            break
        params = {"cursor": page.cursor}
    return frozenset(missing)


async def watch_tools(server: Server, log: FilteringBoundLogger) -> None:
    """Look for the configured tools of a server until cancelled: at start, when it begins anew, and again where a look
    failed or found a tool missing. Each look has a session of its own, and may take as long as a client's request.
    """
    pause, wiring = FIRST_PAUSE, server.wiring
    while True:
        session = OwnSession(server, server.timeouts.request)
        try:
            await session.open(server.timeouts.request + LATEST)
            await look_at_tools(server, session, log)
        except AdapterError as error:
            log.info("tools could not be looked for", server=server.id, why=str(error))
        except Exception:
            # A defect here must not end the watch, or the wiring would never be looked at again.
            log.exception("tools could not be looked for", server=server.id)
        finally:
            await session.close()
        if wiring.settled:
            await wiring.stale.wait()
            pause = FIRST_PAUSE
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


T = TypeVar("T")

POINTS = 120
"""Pings of one server that are remembered: half an hour at the interval that is usual."""

START_PAUSE = 1.0
"""Seconds between two looks at a server that nobody has reached yet. They double where it is there and opens no
session, as it is for a server that is slow to wake.
"""


@dataclass(slots=True)
class Pulse:
    """The result of the last ping. ``latency`` in seconds; times are Unix seconds.

    ``refusal`` is the upstream's answer to the adapter's own credentials if it does not accept them, since
    ``refused_since``; ``asks_oauth`` tells whether it names where people sign in. ``last_failure`` is the time of the
    last ping without an answer, and ``last_error`` its reason; both stay when the server answers again.
    ``failing_since`` is None while it answers.
    """

    reached: bool = field(default=False, init=False)
    era: Era | None = field(default=None, init=False)
    latency: float | None = field(default=None, init=False)
    error: str | None = field(default=None, init=False)
    last_success: float | None = field(default=None, init=False)
    first_success: float | None = field(default=None, init=False)
    last_attempt: float | None = field(default=None, init=False)
    refusal: str | None = field(default=None, init=False)
    refused_since: float | None = field(default=None, init=False)
    asks_oauth: bool = field(default=False, init=False)
    last_error: str | None = field(default=None, init=False)
    last_failure: float | None = field(default=None, init=False)
    failing_since: float | None = field(default=None, init=False)


class HealthMonitor:
    """Pings one server in ``own_session``, on its interval and when a call cannot connect, and feeds its breaker.
    ``clock`` gives Unix time in seconds.

    A session is opened once at a time, and its answer may take as long as a client's would: a server that wakes slowly
    is not asked again and again. An answer that comes even later is used by the ping that then comes.

    ``history`` has when each of the last pings was answered and how long that took, in Unix seconds and milliseconds;
    None for one that was not.
    """

    def __init__(
        self, server: Server, settings: UpstreamPing, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> None:
        self.server = server
        self.pulse = Pulse()
        self.history: deque[tuple[float, float | None]] = deque(maxlen=POINTS)
        self.first = asyncio.Event()
        self._settings = settings
        self.own_session = OwnSession(server, settings.timeout_seconds)
        self._opening: asyncio.Task[int] | None = None
        self._clock = clock
        self._log = log
        self.on_ping: Callable[[str, float], None] = nothing
        """Is told of the result of a ping, and of the seconds that it took."""
        self._logged_state = BreakerState.CLOSED
        self._looking: asyncio.Task[None] | None = None
        self._pause = START_PAUSE
        self._looked = True
        self._unreachable = False
        self._wake = asyncio.Event()
        server.on_unreachable = self._note_unreachable

    async def run(self) -> None:
        """Ping until cancelled; servers are watched apart, so that a slow one delays no other."""
        loop = asyncio.get_running_loop()
        while True:
            breaker = self.server.breaker
            if breaker is None or breaker.may_probe(loop.time()):
                await self.ping_once()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._until_next(loop.time())):
                    await self._wake.wait()

    def _note_unreachable(self) -> None:
        self._unreachable = True
        if self.pulse.reached and self._clock() >= (self.pulse.last_attempt or 0.0) + START_PAUSE:
            self._wake.set()

    async def ping_once(self) -> None:
        loop = asyncio.get_running_loop()
        breaker, began = self.server.breaker, loop.time()
        if breaker is not None:
            breaker.probe_started()
        self.pulse.last_attempt, self._unreachable = self._clock(), False
        try:
            await self._guarded(self._ping())
        except AdapterError as error:
            self._failed(error, loop.time())
            self.on_ping("failure", loop.time() - began)
        except asyncio.CancelledError:
            if breaker is not None:
                breaker.probe_abandoned()
            raise
        else:
            self._succeeded(began, loop.time())
            self.on_ping("success", loop.time() - began)
        self.first.set()
        # Not each try in between: a server that stays away would fill the log.
        if breaker is not None and breaker.state not in (self._logged_state, BreakerState.HALF_OPEN):
            self._logged_state = breaker.state
            self._log.warning(
                "breaker changed", server=self.server.id, state=breaker.state.value, why=self.pulse.error
            )
        if self.pulse.reached and not self.server.wiring.settled and self._looking is None:
            # Apart, for a list that never comes is no reason to ping no more.
            self._looking = loop.create_task(self._look_at_tools())

    async def _ping(self) -> None:
        """Raises an AdapterError unless the upstream answered as an MCP server, in whichever era it speaks.

        A refusal for want of credentials is an answer too: they are the clients' to bring.
        """
        opens = self._opening is not None or not self.own_session.is_open or self._looks_again()
        if opens or not await self._answers():
            await self._open()

    def _looks_again(self) -> bool:
        """Tell whether this ping looks for the other era too: every second one of a server that speaks one only, and
        could speak both from now on without ending a session.
        """
        server = self.server
        if server.bridge is None or len(server.eras) != 1 or (server.issues_ids and LEGACY in server.eras):
            return False
        self._looked = not self._looked
        return self._looked

    async def _answers(self) -> bool:
        """Tell whether the open session is still one. Raises UpstreamUnreachable where nothing comes in time."""
        timeout = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(timeout):
                if self.own_session.era is Era.MODERN:
                    await self.own_session.discover()
                    return True
                status = (await self.own_session.ask("ping")).status
        except TimeoutError:
            raise UpstreamUnreachable(f"No answer to a ping within {timeout:g} s.") from None
        return status == 200 or status in REFUSED

    async def _open(self) -> None:
        patience = max(self._settings.timeout_seconds, self.server.timeouts.request)
        if self._opening is None:
            self.server.wiring.changed()
            if self.own_session.is_open:
                self.server.doubt()
            opening = self.own_session.open(patience + LATEST)
            self._opening = asyncio.get_running_loop().create_task(opening)
        await asyncio.wait((self._opening,), timeout=patience)
        if not self._opening.done():
            raise UpstreamSilent(f"The upstream server opened no session within {patience:g} s.")
        opened, self._opening = self._opening, None
        opened.result()

    def _failed(self, error: AdapterError, now: float) -> None:
        pulse, at = self.pulse, self._clock()
        pulse.reached, pulse.error = False, error.reason or str(error)
        pulse.last_error, pulse.last_failure = pulse.error, at
        pulse.failing_since = pulse.failing_since or at
        self.history.append((at, None))
        self.server.wiring.changed()
        self.server.failed(error)
        there = not isinstance(error, UpstreamUnreachable)
        self._pause = min(self._pause * 2, self._settings.interval_seconds) if there else START_PAUSE
        if self.server.breaker is not None:
            self.server.breaker.failed(now, unreachable=self._unreachable)

    def _succeeded(self, began: float, now: float) -> None:
        pulse, own_session = self.pulse, self.own_session
        # Callers who bring credentials of their own are those who may be refused; the probe has none.
        if own_session.refusal is not None and pulse.refusal is None and not self.server.apart:
            self._log.warning(
                "the upstream refuses the adapter's own credentials",
                server=self.server.id,
                answer=own_session.refusal,
                setting="servers[].upstream.auth.type: authorization_code"
                if own_session.asks_oauth
                else "servers[].upstream.static_headers, servers[].upstream.auth",
            )
        was_away = not pulse.reached or self.server.trouble is not None
        self.server.trouble = None
        if was_away:
            self.server.doubt()
        pulse.reached, pulse.error, pulse.era = True, None, own_session.era
        pulse.refusal, pulse.asks_oauth = own_session.refusal, own_session.asks_oauth
        pulse.latency = now - began
        pulse.last_success, pulse.failing_since = self._clock(), None
        pulse.first_success = pulse.first_success or pulse.last_success
        if pulse.refusal is None:
            pulse.refused_since = None
        elif pulse.refused_since is None:
            pulse.refused_since = pulse.last_success
        self.history.append((pulse.last_success, round(pulse.latency * 1000, 2)))
        self._pause = START_PAUSE
        if self.server.breaker is not None:
            self.server.breaker.succeeded(now)

    async def _look_at_tools(self) -> None:
        """Look for the configured tools: once when the server begins anew, and again while any is missing."""
        try:
            await self._guarded(look_at_tools(self.server, self.own_session, self._log))
        except AdapterError as error:
            # The upstream answered a ping just now, so what is known of its tools stays until it says otherwise.
            self._log.info("tools could not be looked for", server=self.server.id, why=str(error))
        finally:
            self._looking = None

    async def _guarded(self, asking: Coroutine[Any, Any, T]) -> T:
        try:
            return await asking
        except AdapterError:
            raise
        except Exception as error:
            # A defect here must not end the watch: the breaker would stay as it is for good.
            self._log.exception("a ping failed unexpectedly", server=self.server.id)
            raise UpstreamBroken("A ping failed unexpectedly; the adapter's log has the details.") from error

    def _until_next(self, now: float) -> float:
        """Seconds until the next ping: fewer than the interval before the first success, and when the breaker opens."""
        if self.pulse.last_success is None:
            return min(self._pause, self._settings.interval_seconds)
        breaker = self.server.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            return min(self._settings.interval_seconds, breaker.retry_after(now))
        return self._settings.interval_seconds

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, AdapterError):
                await self._opening
        await self.own_session.close()
