"""A LocalServer whose answers come from child processes: messages pass through as they are.

In the legacy era each session has a process, or shares the one of its principal, or of all. Clients of MCP 2026-07-28
open no sessions, so those of one principal share a process. So do the sessions of the adapter's own.

The processes of one server: as many as are allowed, not too soon after failures, and stopped when idle.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached, SessionUnknown
from adapter.rules.access.principals import NOBODY
from adapter.rules.calls.circuit_breaker import RestartBackoff
from adapter.settings.servers.server import UpstreamSettings
from adapter.upstream.local.correlation import BOUNDS, RequestUnderWay
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, RpcRefused, result
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import ProcessUse
from adapter.upstream.stdio.child import ChildOwner, ChildProcess
from adapter.upstream.stdio.conversation import (
    DISCOVER,
    Audience,
    ChildConversation,
    NoSession,
    OneSession,
    StartChild,
)
from adapter.upstream.stdio.failures import backing_off
from adapter.upstream.stdio.shared import ManySessions
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, agreed_version

MOST_BACKOFFS = 1000
"""Principals whose failed starts are remembered."""

SPARE = 60.0
"""Seconds without use after which a process may be stopped to make room for another."""

_LOOKS = 8
"""Looks at the idle processes within the time after which they are stopped."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between failed starts; each is twice the one before."""


@dataclass(eq=False, slots=True)
class Processes:
    """Starts processes of the server ``name`` by ``start``. ``put_to_rest`` is called with a conversation that nobody
    uses, and ends it; ``ended`` with each that is over. After ``spare`` seconds without use a process may be stopped to
    make room for another.
    """

    name: str
    settings: UpstreamSettings
    start: StartChild
    log: FilteringBoundLogger
    put_to_rest: Callable[[ChildConversation], None]
    ended: Callable[[ChildConversation], None]
    spare: float
    # Also those that are being stopped: they are processes as long as anything of them is left.
    _all: dict[ChildConversation, str] = field(default_factory=dict, init=False)
    _closing: dict[ChildConversation, asyncio.Task[None]] = field(default_factory=dict, init=False)
    # Of these, those for which another one waits to start.
    _claimed: set[ChildConversation] = field(default_factory=set, init=False)
    _backoffs: OrderedDict[str, RestartBackoff] = field(default_factory=OrderedDict, init=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Processes of {self.name!r}: {len(self._all)} of {self.settings.max_processes}>"

    @property
    def use(self) -> ProcessUse:
        """The number of processes now, and the most."""
        return ProcessUse(len(self._all), self.settings.max_processes)

    def begin(self, series: str, *, shared: bool) -> ChildConversation:
        """Start a process. ``series`` names the starts that fail together.

        Raises LimitReached, and UpstreamUnreachable where the last start of the series failed just now.
        """
        now = asyncio.get_running_loop().time()
        backoff = self._backoffs.get(series)
        if backoff is not None and (wait := backoff.wait(now)):
            raise backing_off(self.name, wait, backoff.reason)
        start = self.start if len(self._all) < self.settings.max_processes else self._start_in_place(now)
        conversation = ChildConversation(
            self.name, self.settings.start_timeout_seconds, start, self._over, self.log, shared=shared
        )
        self._all[conversation] = series
        if self._looking is None and self.settings.idle_ttl_seconds is not None:
            self._looking = asyncio.get_running_loop().create_task(self._look(self.settings.idle_ttl_seconds))
        return conversation

    async def close(self) -> None:
        """Stop all processes; returns when nothing of them is left."""
        if self._looking is not None:
            self._looking.cancel()
        for conversation in list(self._all):
            conversation.leave()
        await asyncio.gather(*self._closing.values())

    def _over(self, conversation: ChildConversation) -> None:
        now = asyncio.get_running_loop().time()
        self._note(self._all[conversation], conversation, now)
        self.ended(conversation)
        self._closing[conversation] = asyncio.get_running_loop().create_task(self._close(conversation))

    async def _close(self, conversation: ChildConversation) -> None:
        try:
            await conversation.close()
        finally:
            del self._all[conversation], self._closing[conversation]
            self._claimed.discard(conversation)

    def _note(self, series: str, conversation: ChildConversation, now: float) -> None:
        """Count a start that failed. One that was stopped by the adapter says nothing."""
        if conversation.answered:
            self._backoffs.pop(series, None)
        elif not conversation.was_left:
            backoff = self._backoffs.pop(series, None) or RestartBackoff(FIRST_PAUSE, LONGEST_PAUSE)
            failure = conversation.failure
            backoff.failed(now, "" if failure is None else failure.reason or str(failure))
            self._backoffs[series] = backoff
            if len(self._backoffs) > MOST_BACKOFFS:
                self._backoffs.popitem(last=False)

    # --- idle processes ---------------------------------------------------------------------------------------

    def _start_in_place(self, now: float) -> StartChild:
        """Start when nothing is left of a process that has ended, else of the one that was unused for longest, which is
        stopped for it.

        Raises LimitReached where each was used a short time ago.
        """
        # Each makes room for one.
        leaving = [each for each in self._closing if each not in self._claimed]
        idle = [
            each
            for each in self._all
            if each not in self._closing and each.is_idle and now - each.used >= self.spare
        ]
        if not (leaving or idle):
            raise LimitReached(
                f'The server "{self.name}" has {self.settings.max_processes} processes, as many as '
                "servers[].upstream.max_processes allows. Try again when a session has ended.",
                retry_after=SPARE,
            )
        if leaving:
            place = leaving[0]
        else:
            place = min(idle, key=lambda each: each.used)
            self.put_to_rest(place)
        self._claimed.add(place)
        return partial(self._start_after, self._closing[place])

    async def _start_after(self, closing: asyncio.Task[None], owner: ChildOwner) -> ChildProcess:
        await asyncio.wait((closing,))
        return await self.start(owner)

    async def _look(self, idle_ttl: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.1, idle_ttl / _LOOKS))
            for each in list(self._all):
                if each.is_idle and loop.time() - each.used > idle_ttl:
                    self.put_to_rest(each)


MOST_SESSIONS = 100_000
"""Sessions of one server, also those whose process rests."""

NEWS_PAUSE = 30.0
"""Seconds for which no further process that ends by itself is told of: a program may end after each answer."""


class StdioServer:
    """Serves sessions by processes that ``start`` starts; see ``Processes``.

    A session whose process was stopped because nobody used it rests: it answers pings, and any other request 404, at
    which the relay opens it again.
    """

    reads_params = False

    def __init__(
        self,
        name: str,
        settings: UpstreamSettings,
        start: StartChild,
        log: FilteringBoundLogger,
        spare: float = SPARE,
    ) -> None:
        self.sessions = LocalSessions(MOST_SESSIONS, self._session_ended, BOUNDS)
        self._name = name
        self._mode = settings.process
        self._processes = Processes(name, settings, start, log, self._put_to_rest, self._over, spare)
        self._of_session: dict[LocalSession, ChildConversation] = {}
        # Both by principal; where all share a process there is one.
        self._modern: dict[str, NoSession] = {}
        self._shared: dict[str, ManySessions] = {}
        self.on_death: Callable[[], None] = lambda: None
        """Is called when a process has ended by itself."""
        self._quiet_until = 0.0

    def __repr__(self) -> str:
        return f"<StdioServer {self._name!r}: {len(self.sessions)} sessions, {self.use.running} processes>"

    @property
    def use(self) -> ProcessUse:
        """The number of processes now, and the most."""
        return self._processes.use

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """See LocalServer."""
        session = request.session
        if session is not None:
            if session not in self._of_session and request.envelope.method == "ping":
                return LocalAnswer(result(request.id_bytes, {}))
            return self._audience(session).ask(request, session)
        if request.head.era is Era.MODERN:
            if request.envelope.method == "initialize":
                # A child that speaks both eras would take it for the handshake of the other one.
                raise RpcRefused(METHOD_NOT_FOUND, "initialize does not exist in this protocol version.")
            return self._modern_audience(self._key(request), request.envelope.method).ask(request)
        if self._mode == "per_session" and request.head.caller is not NOBODY:
            return self._open(request)
        return self._sharing(self._key(request)).open(request)

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:  # noqa: ARG002 (pipes have no heads)
        """See LocalServer."""
        self._audience(session).observe(envelope, session)

    async def close(self) -> None:
        """Stop all processes."""
        await self._processes.close()

    def _audience(self, session: LocalSession) -> Audience:
        """The audience that a session is in. Raises SessionUnknown for one that rests: it is opened again then."""
        conversation = self._of_session.get(session)
        if conversation is None or conversation.audience is None:
            session.end()
            raise SessionUnknown()
        return conversation.audience

    def _key(self, request: LocalRequest) -> str:
        """Equal for those who share a process. What the adapter itself asks shares one in every mode: with many
        servers it would cost as much again to ping them and to list their tools by a process for each.
        """
        caller = request.head.caller
        return "" if self._mode == "shared" or caller is NOBODY else caller.principal

    # --- opening ----------------------------------------------------------------------------------------------

    def _open(self, request: LocalRequest) -> PendingReply:
        """Start a process for a session of its own, which gets the client's ``initialize`` as it is."""
        # An initialize that its process does not survive delays nobody but the principal who sends it.
        principal = request.head.caller.principal
        conversation = self._left_by_modern(principal)
        conversation = conversation or self._processes.begin(f"session {principal}", shared=False)
        session = self._join(conversation, "")
        conversation.audience = OneSession(conversation, session)
        return conversation.ask(request, session, partial(self._opened, session))

    def _left_by_modern(self, principal: str) -> ChildConversation | None:
        """The process that a client of the modern era has just found to be of the other one, None if there is none.

        It was asked for nothing else, so it is as good as one that is started now.
        """
        audience = self._modern.get(principal)
        if audience is None or not audience.is_left or audience.conversation.correlation.requests:
            return None
        if audience.is_silent:
            # A late answer could meet a request of the session.
            audience.conversation.leave()
            return None
        del self._modern[principal]
        audience.conversation.serve_one()
        return audience.conversation

    def _opened(self, session: LocalSession, way: RequestUnderWay, message: LineMessage) -> None:
        version = agreed_version(message)
        if version is None:
            way.respond(message)
            session.end()
            return
        session.version = version
        way.answer(LocalAnswer(message.data, session_id=session.id))

    def _sharing(self, key: str) -> ManySessions:
        """The sessions that share a process, which is started if there is none."""
        sharing = self._shared.get(key)
        if sharing is None:
            modern = self._modern.get(key)
            if modern is not None and modern.is_left:
                conversation = modern.conversation
                conversation.start_again()
            else:
                conversation = self._begun("legacy", key)
            refused = partial(self._legacy_refused, key)
            sharing = ManySessions(conversation, self._join, refused, strangers=self._mode == "shared")
            self._shared[key] = conversation.audience = sharing
        return sharing

    def _legacy_refused(self, key: str) -> None:
        """Stop a process that opens no sessions, unless clients of the modern era use it."""
        conversation, modern = self._shared.pop(key).conversation, self._modern.get(key)
        if modern is not None and modern.conversation is conversation and not modern.is_left:
            conversation.audience = modern
        else:
            conversation.leave()

    def _begun(self, era: str, key: str) -> ChildConversation:
        """A process for several clients. One that does not survive the question for the era may open sessions."""
        return self._processes.begin(f"{era} {key}", shared=True)

    def _join(self, conversation: ChildConversation, version: str) -> LocalSession:
        session = self.sessions.open(version)
        self._of_session[session] = conversation
        conversation.sessions.append(session)
        return session

    def _modern_audience(self, key: str, method: str) -> NoSession:
        audience, legacy = self._modern.get(key), self._shared.get(key)
        shares = legacy is not None and audience is not None and audience.conversation is legacy.conversation
        if audience is not None and audience.is_left and shares and method != DISCOVER:
            # Who asks this all the same knows that the program speaks both eras: not both to one process, it seems.
            audience = None
        if audience is None:
            # Where sessions share a process, that one is asked which eras it speaks.
            asks = legacy is not None and legacy.is_open and method == DISCOVER
            conversation = legacy.conversation if legacy and asks else self._begun("modern", key)
            audience = NoSession(conversation, strangers=self._mode == "shared")
            conversation.audience = conversation.audience or audience
            self._modern[key] = audience
        return audience

    # --- ending -----------------------------------------------------------------------------------------------

    def _session_ended(self, session: LocalSession) -> None:
        conversation = self._of_session.pop(session, None)
        if conversation is None:
            return
        conversation.sessions.remove(session)
        if isinstance(conversation.audience, ManySessions):
            conversation.audience.leave(session)
        else:
            conversation.leave()

    def _put_to_rest(self, conversation: ChildConversation) -> None:
        """Stop a process that nobody uses. Its sessions rest until they are used again."""
        for session in conversation.sessions:
            self._of_session.pop(session, None)
        conversation.leave()

    def _over(self, conversation: ChildConversation) -> None:
        """Forget a process that has ended, and end its sessions: the relay opens them again where they are used."""
        for key in [key for key, each in self._modern.items() if each.conversation is conversation]:
            del self._modern[key]
        for key in [key for key, each in self._shared.items() if each.conversation is conversation]:
            self._shared.pop(key).fail()
        for session in conversation.sessions:
            if self._of_session.pop(session, None) is not None:
                session.end()
        now = asyncio.get_running_loop().time()
        if not conversation.was_left and now >= self._quiet_until:
            self._quiet_until = now + NEWS_PAUSE
            self.on_death()
