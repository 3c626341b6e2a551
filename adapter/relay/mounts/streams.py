"""Streams of a merged mount, each of which carries those of its servers: the GET stream of a session, or the answer to
a subscription (MCP 2026-07-28).

A client that comes back with ``Last-Event-ID`` wants the rest of one server's stream: the id says of which. Each server
knows a subscription by the client's own id, so no id has to be told apart there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.background import nothing
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges, both
from adapter.relay.flow import RETRY
from adapter.relay.mounts.asks import in_own_name, message_to, stream_from
from adapter.relay.mounts.events import MemberEvents
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.sessions import MountRequest, MountSession, MountSessions
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.relay.server import Server
from adapter.rules.access.access_rules import ListShape
from adapter.rules.eras.legacy_server import of_subscription, subscription_message, uris_in
from adapter.rules.mounts.lists import TEMPLATES, TOLD
from adapter.rules.mounts.member_ids import member_of
from adapter.wire.envelope import INVALID_PARAMS, Envelope, dump, parse, value_at
from adapter.wire.rpc_refusals import RpcRefused
from adapter.wire.spans import Drop, Replace, edit
from adapter.wire.sse import encode

WAITING = 64
"""Pieces that wait for the client; servers wait while there are so many."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until the stream of a server that ended or failed is asked for again, longer each time that it fails."""

BUSY = (409, 429)
"""Statuses of a server that has a stream, but not at this moment: its last one may not have ended there yet."""

STREAM_FIELDS = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]

Asked = Callable[[str | None], ClientRequest]
"""Gives the request for the stream of a server, from behind that event if there is one."""


_URIS = ("params", "notifications", "resourceSubscriptions")


@dataclass(eq=False, repr=False)
class MergedStream:
    """The streams of servers as one, which a client asked for by ``request``.

    ``wanted`` is what a subscription is to tell, ``left`` is called when the stream has ended.
    """

    relay: Exchanges
    lists: MountLists
    request: MountRequest
    wanted: Mapping[str, Any] | None = None
    left: Callable[[], None] = field(default=nothing, init=False)
    _pieces: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(WAITING), init=False)
    _reading: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _is_over: bool = field(default=False, init=False)

    def carry(self, server: Server, ask: Asked, after: str | None = None) -> None:
        """Carry the stream of that server too, from behind the event ``after`` if there is one."""
        if server.id not in self._reading and not self._is_over:
            self._reading[server.id] = asyncio.get_running_loop().create_task(self._carry(server, ask, after))

    def listen(self) -> None:
        """Tell of all lists of the mount that change."""
        self.lists.listeners.streams.add(self.tell)

    def tell(self, shape: ListShape) -> None:
        """Say that a list of the mount is another one now, unless so much waits for the client already."""
        is_wanted = self.wanted is None or self.wanted.get(f"{shape.key}ListChanged") is True
        if is_wanted and not self._pieces.full():
            # The protocol has no such notification for templates alone.
            kind = "resources" if shape is TEMPLATES else shape.key
            message = dump({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
            if self.wanted is not None:
                message = of_subscription(message, self.request.envelope.id_bytes)
            self._pieces.put_nowait(encode(message))

    def end(self) -> None:
        """End the stream: its client has gone, or its session has ended."""
        self._is_over = True
        self.lists.listeners.streams.discard(self.tell)
        for task in self._reading.values():
            task.cancel()
        if self._pieces.full():
            self._pieces.get_nowait()
        self._pieces.put_nowait(b"")
        left, self.left = self.left, nothing
        left()

    async def pieces(self, first: bytes = b"") -> AsyncGenerator[bytes, None]:
        """What the servers say, as it comes, behind the ``first`` piece if there is one."""
        try:
            if first:
                yield first
            # Nothing is the end.
            while piece := await self._pieces.get():
                yield piece
        finally:
            self.end()

    def answer(self, release: Callable[[], None], first: bytes = b"") -> ClientResponse:
        """The stream as an answer to its client."""
        return ClientResponse(200, STREAM_FIELDS, self.pieces(first), release=release, last_words=last_words)

    async def _carry(self, server: Server, ask: Asked, after: str | None) -> None:
        """Put what a server says on its stream among the pieces; the stream is asked for again when it ends or fails,
        from behind its last event. Returns where the server has none.
        """
        pause, resumed = SHORTEST_PAUSE, after is not None
        uris, session = partial(self.lists.last_uris, *self.request), self.request.session
        while True:
            events = MemberEvents(
                server,
                self.lists.changed,
                uris,
                session,
                resumed=resumed,
                subscription=self.wanted is not None,
            )
            try:
                answer = await self.relay.handle(ask(after))
                try:
                    if not _is_stream(answer):
                        return
                    async for piece in events.pieces(answer, torn=False):
                        await self._pieces.put(piece)
                    pause = SHORTEST_PAUSE
                finally:
                    await answer.close()
            except Exception as error:
                if not isinstance(error, AdapterError):
                    # A defect must not make a client deaf for good.
                    context = {"message": f"the stream of the server {server.id} failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
                pause = min(2 * pause, LONGEST_PAUSE)
            after = events.reader.last_id.decode("latin-1") or after
            await asyncio.sleep(max(pause, min((events.reader.retry or 0) / 1000, LONGEST_PAUSE)))


@dataclass(frozen=True, slots=True)
class MountStreams:
    """Opens the streams of a mount with these ``servers``."""

    relay: Exchanges
    sessions: MountSessions
    lists: MountLists
    servers: Mapping[str, Server]

    async def open(self, ask: ClientRequest, session: MountSession) -> ClientResponse:
        """Open the stream of a session, which is held by that and ends with it, or resume one. Raises
        StoreUnavailable.
        """
        stream = MergedStream(self.relay, self.lists, MountRequest(ask, session))
        sessions, servers = self.sessions, self.servers

        def asked(server: Server, after: str | None) -> ClientRequest:
            own = stream_from(ask, server, session.id_at(server.id), after)
            sessions.in_agreed_version(own)
            return own

        def follow(server: Server, after: str | None = None) -> None:
            stream.carry(server, partial(asked, server), after)

        def left() -> None:
            session.followers.remove(follow)
            sessions.leave_others(session)

        resumed = member_of(ask.sender.last_event_id, servers)
        try:
            if resumed is not None and await sessions.is_open(session, servers[resumed[0]]):
                follow(servers[resumed[0]], resumed[1])
            if not session.followers:
                # Many servers allow one such stream in a session: of several that are open here the first one has it.
                session.followers.append(follow)
                stream.left = left
                stream.listen()
                sessions.follow_others(session)
                for server in servers.values():
                    if await sessions.is_open(session, server):
                        follow(server)
        except BaseException:
            stream.end()
            raise
        session.session.hold(stream.end)
        # A client that has gone before the first piece leaves pieces that never began, and so never end.
        return stream.answer(both(stream.end, lambda: session.session.release(stream.end)))

    async def subscribe(self, request: MountRequest) -> ClientResponse:
        """Open the stream of a subscription. Raises RpcRefused for what is none, and what finding the owners of its
        resources raises.

        What every caller hears alike of a server is asked for in the adapter's own name, as lists are: a program over
        stdio needs no process for each who only listens.
        """
        envelope = request.envelope
        wanted = value_at(parse(envelope.body), "params", "notifications")
        wanted = wanted if isinstance(wanted, dict) else {}
        try:
            asked = uris_in(wanted)
        except ValueError as error:
            raise RpcRefused(INVALID_PARAMS, str(error)) from None
        uris: dict[str, list[str]] = {}
        for uri in asked:
            if (owner := await self.lists.owner_of_uri(request, uri)) is not None:
                uris.setdefault(owner.server, []).append(owner.name)
        shapes = [shape for shape in TOLD if wanted.get(f"{shape.key}ListChanged") is True]
        stream = MergedStream(self.relay, self.lists, request, wanted)
        for server in self.servers.values():
            its = uris.get(server.id)
            if not (shapes or its):
                continue
            change = Replace(_URIS, dump(its)) if its else Drop(_URIS)
            body = edit(envelope.body, [change]) if _URIS[-1] in wanted else envelope.body
            own = message_to(request.ask, server, None, envelope.with_body(body))
            if not its and self.lists.are_alike(server.id, shapes):
                in_own_name(own)
            stream.carry(server, partial(_again, own))
        stream.listen()
        return stream.answer(stream.end, encode(subscription_message(envelope.id_bytes, wanted)))


def _again(own: ClientRequest, _: str | None) -> ClientRequest:
    """The request anew: one that was sent keeps nothing of its message."""
    assert isinstance(own.envelope, Envelope)
    return own.with_message(own.envelope.with_body(own.body), own.body, own.headers)


async def last_words(_: AdapterError) -> bytes:
    """Tell the client to come back in a while: only whole events are sent."""
    return RETRY


def _is_stream(answer: ClientResponse) -> bool:
    """False where the server has no stream. Raises UpstreamBroken where it has one, but not now."""
    if answer.status >= 500 or answer.status in BUSY:
        raise UpstreamBroken(f"The upstream server refuses its stream with {answer.status} now.")
    return answer.status == 200 and media_type(answer.headers) == EVENT_STREAM
