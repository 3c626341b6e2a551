"""A LocalServer whose answers come from child processes: messages pass through as they are.

In the legacy era each session has a process, or shares the one of its principal, or of all. Clients of MCP 2026-07-28
open no sessions, so those of one principal share a process. So do the sessions of the adapter's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import SessionUnknown
from adapter.rules.access.principals import NOBODY
from adapter.settings.servers.server import UpstreamSettings
from adapter.upstream.local.correlation import BOUNDS
from adapter.upstream.local.messages import LocalAnswer, RpcRefused, result
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.local.under_way import RequestUnderWay
from adapter.upstream.port import ProcessUse
from adapter.upstream.stdio.audiences import DISCOVER, NoSession, OneSession
from adapter.upstream.stdio.conversation import (
    Audience,
    ChildConversation,
    StartChild,
)
from adapter.upstream.stdio.processes import SPARE, Processes
from adapter.upstream.stdio.shared import ManySessions
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, agreed_version

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
        self._processes = Processes(name, settings, start, log, self._put_to_rest, spare)
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
        conversation = self._left_by_modern(principal) or self._processes.begin(
            f"session {principal}", self._over, shared=False
        )
        session = self.sessions.open("")
        self._of_session[session] = conversation
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
        return self._processes.begin(f"{era} {key}", self._over, shared=True)

    def _join(self, conversation: ChildConversation, version: str) -> LocalSession:
        session = self.sessions.open(version)
        self._of_session[session] = conversation
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
        if isinstance(conversation.audience, ManySessions):
            conversation.audience.leave(session)
        else:
            conversation.leave()

    def _put_to_rest(self, conversation: ChildConversation) -> None:
        """Stop a process that nobody uses. Its sessions rest until they are used again."""
        if conversation.audience is not None:
            for session in conversation.audience.sessions:
                self._of_session.pop(session, None)
        conversation.leave()

    def _over(self, conversation: ChildConversation) -> None:
        """Forget a process that has ended, and end its sessions: the relay opens them again where they are used."""
        for key in [key for key, each in self._modern.items() if each.conversation is conversation]:
            del self._modern[key]
        for key in [key for key, each in self._shared.items() if each.conversation is conversation]:
            self._shared.pop(key).fail()
        for session in conversation.audience.sessions if conversation.audience is not None else ():
            if self._of_session.pop(session, None) is not None:
                session.end()
        now = asyncio.get_running_loop().time()
        if not conversation.was_left and now >= self._quiet_until:
            self._quiet_until = now + NEWS_PAUSE
            self.on_death()
