"""The place of a bridge: before an upstream that is known to speak one era of MCP only, and nowhere else.

Requests in the era of the upstream, and the adapter's own pings, pass it as they are. An upstream that speaks both eras
has nothing before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.background import SingleFlight
from adapter.relay.exchange import ClientRequest
from adapter.relay.server import Server
from adapter.relay.sessions.own_session import OwnSession
from adapter.rules.access.principals import NOBODY, Caller, authorization_of
from adapter.upstream.port import PING, Upstream, UpstreamReply, UpstreamRequest, header, silent
from adapter.wire.envelope import Envelope
from adapter.wire.eras import MODERN, Era, classify

APART = 5.0
"""Seconds between two looks at a server after refusals, which any client can cause."""

SILENCE = 10.0
"""Seconds for which a process is asked for its era: some programs say nothing to what they do not know."""

LONGEST_CREDENTIAL = 4096
"""Bytes of a client's credential that is shown to a server to learn its eras."""

Side: TypeAlias = Callable[[Upstream], Upstream]
"""Makes the translation for clients of one era, in front of an upstream that speaks the other."""


@dataclass(eq=False, repr=False)
class Bridge:
    """An Upstream around the one that ``server`` has. ``sides`` make the translations, for the eras of clients.

    ``stand`` puts an upstream in the place where the server's own is; it is called when the eras have changed.

    Before the first modern request, a server that consists of processes is asked for its eras by the process of the
    adapter's pings: one that is started for a request, and refuses it, has been started for nothing, and each look that
    follows starts more. It is not where there are no pings, since that would take a process beside those of clients.

    Where clients have processes of their own, that of the adapter's pings has chosen the legacy era and may speak no
    other any more. So the process that the first modern client gets is asked before it is told anything else: it serves
    that client in any case, in the era that it speaks. Each may be silent for ``silence`` seconds.
    """

    server: Server
    sides: Mapping[Era, Side]
    log: FilteringBoundLogger
    silence: float = SILENCE
    _made: dict[Era, Upstream] = field(default_factory=dict, init=False)
    # Until the eras change.
    _roads: dict[Era, Upstream] = field(default_factory=dict, init=False)
    # As a process of a client's own said; None while none was asked.
    _is_modern: bool | None = field(default=None, init=False)
    _looks: SingleFlight[str, None] = field(default_factory=SingleFlight[str, None], init=False)
    _looked: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.upstream = self.server.upstream
        self.stand: Callable[[Upstream], None] = partial(setattr, self.server, "upstream")
        self.server.bridge = self
        self.asks_processes = self.server.process_use() is not None
        self._is_unasked = self.server.breaker is not None

    def __repr__(self) -> str:
        return f"<Bridge before {self.upstream!r}>"

    def send(
        self, request: UpstreamRequest, read_timeout: float | None
    ) -> Coroutine[Any, Any, UpstreamReply]:
        """See Upstream."""
        if request.purpose is PING:
            return self.upstream.send(request, read_timeout)
        envelope = request.envelope
        if type(envelope) is Envelope and envelope.meta.is_modern:
            era = MODERN
        else:
            era = classify(header(request.headers, "mcp-protocol-version"), envelope)
        if (road := self._roads.get(era)) is None:
            road = self._road_of(era)
        return road.send(request, read_timeout)

    async def ready(self, caller: Caller, read_timeout: float | None) -> None:
        """See EraBridge."""
        if self._is_unasked and not self.server.eras:
            await self._wait("pings", self._look_beside_pings, read_timeout)
        if self._is_modern is None and caller is not NOBODY and self._bridges(MODERN, self.server.eras):
            await self._wait("process", partial(self._look_in_process, caller), read_timeout)

    async def _wait(
        self, name: str, look: Callable[[], Coroutine[Any, Any, None]], seconds: float | None
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._looks.get(name, look)
        except TimeoutError:
            raise silent(seconds) from None

    def _road_of(self, era: Era) -> Upstream:
        road = self.upstream
        if self._bridges(era, self.server.eras):
            road = self._made.get(era) or self.sides[era](road)
            self._made[era] = road
        self._roads[era] = road
        return road

    async def close(self) -> None:
        """See Upstream."""
        await asyncio.gather(*(made.close() for made in self._made.values()))
        await self.upstream.close()
        # Last, so that who waits for a look hears why it is over.
        await self._looks.close()

    # --- the eras of the server -------------------------------------------------------------------------------

    def found(self, eras: frozenset[Era]) -> None:
        """See EraBridge."""
        if self._is_modern:
            eras |= {MODERN}
        if eras == self.server.eras:
            return
        self.server.eras = eras
        self._roads.clear()
        bridged = [era.value for era in Era if self._bridges(era, eras)]
        self.stand(self if bridged else self.upstream)
        if bridged:
            self.log.info("the server speaks one era of MCP only", server=self.server.id, bridged=bridged)

    async def look(self, ask: ClientRequest, known: frozenset[Era]) -> bool:
        """See EraBridge."""
        if self.server.eras == known:
            now = asyncio.get_running_loop().time()
            if self._looked is not None and now < self._looked + APART:
                return False
            await self._looks.get("refusal", partial(self._look, ask))
        return self._bridges(ask.sender.era, self.server.eras) != self._bridges(ask.sender.era, known)

    def _bridges(self, era: Era, eras: frozenset[Era]) -> bool:
        return bool(eras) and era in self.sides and era not in eras

    async def _look(self, ask: ClientRequest) -> None:
        # What is told to nobody counts for all. A client is asked for its credential where that is refused. A process
        # of the principal's own answers as those of clients do: that of the adapter's pings has chosen its era.
        self._is_modern = None
        own, seconds = self._own(ask.sender.principal), self.server.timeouts.request
        if not await self._asked(seconds, own) and (like := self._with_credential(ask)) is not None:
            await self._asked(seconds, like)
        self._looked = asyncio.get_running_loop().time()

    async def _look_beside_pings(self) -> None:
        """Ask once: one that does not say it then gets requests as they come, as any other server does."""
        try:
            await self._asked(self.silence)
        finally:
            self._is_unasked = False

    async def _look_in_process(self, caller: Caller) -> None:
        session = OwnSession(self.server, self.silence, self._own(caller.principal))
        try:
            await session.discover()
        except AdapterError as error:
            # One that does not survive the question speaks the era in which others have opened.
            self.log.info("a process was not asked for its era", server=self.server.id, why=str(error))
        self._is_modern = session.era is MODERN
        self.found(self.server.eras)

    def _own(self, principal: str) -> UpstreamRequest:
        caller = Caller(principal)
        return UpstreamRequest("POST", self.server.rules.static, b"", caller, purpose=PING)

    async def _asked(self, seconds: float, like: UpstreamRequest | None = None) -> bool:
        """Ask the server for its eras, in the name of a client or as pings do. False where it wants credentials."""
        session = OwnSession(self.server, seconds, like)
        try:
            await session.open()
        except AdapterError as error:
            self.log.info("the eras of a server could not be found", server=self.server.id, why=str(error))
        finally:
            await session.close()
        return session.refusal is None

    def _with_credential(self, ask: ClientRequest) -> UpstreamRequest | None:
        """A request with the client's credential and nothing else of its own: by its other fields and its query it
        could reach what answers for it alone. None for a credential for which not every request may have room.
        """
        caller = ask.sender.caller
        if len(authorization_of(caller) or "") > LONGEST_CREDENTIAL:
            return None
        own = [each for each in ask.headers if each[0].lower() == "authorization"]
        return UpstreamRequest("POST", [*self.server.rules.static, *own], b"", caller, purpose=PING)
