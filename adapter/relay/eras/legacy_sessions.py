"""Sessions at a legacy server for clients that have none: one for each principal, or one for each request.

A principal's is a shared session, so that all replicas speak in the same one. Where everybody is nobody, a call has no
part in what another has left behind: it gets a session of its own, unless the server keeps none or the settings say
otherwise. Lists and subscriptions leave nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.background import SingleFlight
from adapter.relay.eras.hearers import Hearers
from adapter.relay.eras.legacy_session import Exchange, LegacySession, OnHeard
from adapter.relay.eras.parked_calls import ParkedCalls, Round
from adapter.relay.exchange import JSON, LATEST_LEGACY, POST_FIELDS, forwardable
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.replies import LARGE, edited, kept_fields, long_value, read_body
from adapter.relay.sessions.inner_client import (
    ABANDON_SILENCE,
    ACCEPT,
    CLIENT,
    InnerClient,
    initialize_result,
    read_result,
    rpc_request,
)
from adapter.rules.access.principals import ANONYMOUS, party_of
from adapter.rules.calls.arguments import annotated, check_parameters
from adapter.rules.calls.rounds import ASKING
from adapter.rules.eras.legacy_server import error_code, legacy_fields, modern_response
from adapter.rules.eras.questions import HELD_CAPABILITIES, URL_REQUIRED, input_required, links_in
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import Deadlines, LocalAnswer, status_of
from adapter.upstream.port import InitializeRequest, ReadLimit, Share, Upstream, UpstreamRequest
from adapter.wire.envelope import answers, dump, parse
from adapter.wire.eras import Era
from adapter.wire.shared_ids import with_id

KEPT_SECONDS = 60.0
"""Seconds that a principal's session is listened to when nothing is under way in it."""

MOST_KEPT = 10_000
"""Sessions that are listened to; one more ends the one that was used longest ago."""

_INITIALIZE = dump(
    rpc_request(
        0,
        "initialize",
        {"protocolVersion": LATEST_LEGACY, "capabilities": HELD_CAPABILITIES, "clientInfo": CLIENT},
    )
)


LastWord = Callable[[], Awaitable[None]]


class OpeningRefused(Exception):
    """The server opened no session, and said why."""

    def __init__(self, answer: LocalAnswer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self._answer = answer

    def under(self, id_bytes: bytes) -> LocalAnswer:
        """The answer to the request with this id."""
        answer = self._answer
        body = with_id(answer.body, id_bytes) if answers(answer.body, 0) else answer.body
        return LocalAnswer(body, answer.status, headers=answer.headers)


@dataclass(eq=False)
class LegacySessions:
    """Opens them at ``shared``, which gives one session to all of a principal, or at the ``upstream`` itself.

    ``shares``: also calls of callers who are nobody share one.
    """

    upstream: Upstream
    shared: Upstream
    like: InnerClient
    shares: bool
    log: FilteringBoundLogger
    deadlines: Deadlines
    on_heard: OnHeard = field(init=False)
    _kept: dict[str, LegacySession] = field(default_factory=dict, init=False)
    _opening: SingleFlight[str, LegacySession] = field(
        default_factory=SingleFlight[str, LegacySession], init=False
    )
    # Since when, those that are so for longest first.
    _idle: dict[LegacySession, float] = field(default_factory=dict, init=False)
    _is_looking: bool = field(default=False, init=False)
    _entered: set[Exchange] = field(default_factory=set, init=False)
    _others: dict[str, set[Exchange]] = field(default_factory=dict, init=False)
    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __len__(self) -> int:
        return len(self._kept)

    async def find(self, request: UpstreamRequest) -> LegacySession:
        """The session that lasts, for who only asks about it. Raises as ``enter`` does."""
        party = party_of(request.caller)
        open_ = partial(self._open, request, party, alone=False)
        return self._kept.get(party) or await self._opening.get(party, open_)

    async def enter(self, exchange: Exchange, request: UpstreamRequest) -> LegacySession:
        """Take part in the session of the caller. Raises OpeningRefused, and what the upstream raises."""
        party = party_of(request.caller)
        session = self._kept.get(party)
        alone = exchange.is_call and not self.shares and request.caller.principal == ANONYMOUS
        if session is None or (alone and session.client.session.id is not None):
            open_ = partial(self._open, request, party, alone=alone)
            session = await (open_() if alone else self._opening.get(party, open_))
        self._idle.pop(session, None)
        session.under_way.add(exchange)
        self._entered.add(exchange)
        if not exchange.is_call:
            self._others.setdefault(party, set()).add(exchange)
        return session

    def leave(self, exchange: Exchange, session: LegacySession, last: LastWord | None = None) -> None:
        """Take no more part, and say a ``last`` word. A session of one request is closed."""
        session.under_way.discard(exchange)
        self._entered.discard(exchange)
        if (others := self._others.get(session.party)) is not None:
            others.discard(exchange)
            if not others:
                del self._others[session.party]
        ends = not session.lasts and not session.under_way
        if ends or last is not None:
            task = asyncio.get_running_loop().create_task(_end(session, last, ends=ends))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        if not session.under_way and not session.over:
            self._rest(session)

    def _rest(self, session: LegacySession) -> None:
        """Forget it soon, unless somebody comes."""
        if session not in self._idle and session.lasts:
            self._idle[session] = self.deadlines.loop.time()
            if not self._is_looking:
                self._is_looking = True
                self.deadlines.set(self._forget_idle, KEPT_SECONDS)

    def _forget_idle(self) -> None:
        """Do so, and look again when it is time for the next. One look for all: each request ends a rest."""
        since = self.deadlines.loop.time() - KEPT_SECONDS
        for session, rests in list(self._idle.items()):
            if rests > since:
                self.deadlines.set(self._forget_idle, rests - since)
                return
            self.forget(session)
        self._is_looking = False

    def forget(self, session: LegacySession) -> None:
        """Listen to it no more: the server has lost it, or nobody used it lately."""
        self._idle.pop(session, None)
        if self._kept.get(session.party) is session:
            del self._kept[session.party]
        session.stop()

    async def close(self) -> None:
        """End what is under way, and listen to none any more."""
        await self._opening.close()
        for exchange in list(self._entered):
            exchange.stop()
        for session in list(self._kept.values()):
            self.forget(session)
        if self._ending:
            await asyncio.wait(self._ending, timeout=ABANDON_SILENCE)
        for task in self._ending:
            task.cancel()

    async def _open(self, request: UpstreamRequest, party: str, *, alone: bool) -> LegacySession:
        upstream, share = (self.upstream, None) if alone else (self.shared, Share(f"modern\n{party}"))
        like = replace(request, headers=legacy_fields(request.headers), body=b"", envelope=None)
        fields = [*forwardable(like.headers, drop=POST_FIELDS), ("Accept", ACCEPT), JSON]
        asking = InitializeRequest("POST", fields, _INITIALIZE, request.caller, request.query, share=share)
        client = self.like._replace(upstream=upstream, like=like)
        reply = await upstream.send(asking, client.read_timeout)
        if reply.status != 200:
            body = await read_body(reply, client.read_timeout, client.limit)
            raise OpeningRefused(LocalAnswer(body, reply.status, headers=kept_fields(reply.headers)))
        begun, answer = await client.begun(reply, 0)
        result = initialize_result(answer.response)
        if begun is None or result is None:
            raise UpstreamBroken("The upstream server opened no session.")
        return self._made(begun, result, party, lasts=not alone or begun.session.id is None)

    def _others_of(self, party: str) -> list[Exchange]:
        return list(self._others.get(party, ()))

    def _made(self, client: InnerClient, result: bytes, party: str, *, lasts: bool) -> LegacySession:
        read, others = dict(read_result(result)), partial(self._others_of, party)
        session = LegacySession(client, read, self.log, party, lasts, others, self.on_heard)
        if lasts:
            if len(self._kept) >= MOST_KEPT:
                # Where everything is in use one in use has to go: its own requests go on.
                self.forget(next(iter(self._idle), None) or next(iter(self._kept.values())))
            self._kept[party] = session
            self._rest(session)
        return session


async def _end(session: LegacySession, last: LastWord | None, *, ends: bool) -> None:
    if ends:
        session.stop()
    if last is not None:
        with contextlib.suppress(AdapterError):
            await last()
    if ends:
        await session.client.abandon()


@dataclass(eq=False, repr=False)
class ServerBridge:
    """What all requests of modern clients at the server ``id`` have in common. ``total`` is the time that a tool call
    may take in all.

    ``one_channel``: all of a session comes on one channel, so that a question does not say which call it belongs to.
    """

    id: str
    legacy: LegacySessions
    parked: ParkedCalls
    total: ReadLimit | None = None
    one_channel: bool = False

    def __post_init__(self) -> None:
        self._mirrors = ParamHeaders()
        # Read in each call: a property would be a function of Python's.
        self.like, self.log, self.deadlines = self.legacy.like, self.legacy.log, self.legacy.deadlines
        self.hearers = Hearers(self.id, self.parked)
        self.legacy.on_heard = self.hearers.note

    def check(self, request: LocalRequest) -> None:
        """Raise HeaderMismatch for a call whose headers say something else than the arguments that they mirror."""
        if mirrors := self._mirrors.of(request.envelope.name or ""):
            check_parameters(mirrors, request.params.get("arguments"), request.head.fields)

    async def translated(
        self, response: bytes, now: Round, method: str, server_info: bytes | None, other_id: bytes | None
    ) -> LocalAnswer:
        """A response of the server as a modern client has it, ``now``, under the ``other_id`` if there is one."""
        code = error_code(response)
        if code == URL_REQUIRED and method in ASKING and "url" in now.ways:
            links = links_in(parse(response).get("error"))
            if links:
                return LocalAnswer(input_required(now.id_bytes, links, None, server_info))
        translate = partial(modern_response, response, method, server_info, other_id)
        body = translate() if len(response) <= LARGE else await edited(response, translate)
        if method == "tools/list":
            await self.learn(body)
        return LocalAnswer(body, 200 if code is None else status_of(error_code(body), Era.MODERN))

    async def learn(self, response: bytes) -> None:
        """Note which arguments of the listed tools are mirrored in headers."""
        if b"x-mcp-header" not in response:
            return
        message = parse(response) if len(response) <= LARGE else await long_value(response)
        tools = message.get("result", {}).get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self._mirrors.learn((name,), {name: dict(annotated(tool.get("inputSchema")))})
