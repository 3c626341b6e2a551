"""The one GET stream of a session at a merged mount, which carries those of its sessions at all servers.

A client that comes back with ``Last-Event-ID`` wants the rest of one server's stream: the id says of which.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges, both
from adapter.relay.flow import RETRY
from adapter.relay.mounts.asks import stream_from, with_version
from adapter.relay.mounts.events import MemberEvents, News, Uris
from adapter.relay.mounts.sessions import MountSession, MountSessions
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.relay.server import Server
from adapter.rules.access.visible_lists import ListShape
from adapter.rules.mounts.lists import TEMPLATES
from adapter.rules.mounts.member_ids import member_of
from adapter.wire.envelope import dump
from adapter.wire.sse import encode

WAITING = 64
"""Pieces that wait for the client; servers wait while there are so many."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until the stream of a server that ended or failed is asked for again, longer each time that it fails."""

Listeners = set[Callable[[ListShape], None]]
"""Those who are told when a list of the mount is another one than it was."""

BUSY = (409, 429)
"""Statuses of a server that has a stream, but not at this moment: its last one may not have ended there yet."""

STREAM_FIELDS = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]


@dataclass(eq=False, repr=False)
class MergedStream:
    """The stream of ``session``, opened with ``ask``. It is held by the session, and ends with it."""

    relay: Exchanges
    sessions: MountSessions
    ask: ClientRequest
    session: MountSession
    news: News
    uris: Uris
    listeners: Listeners
    _pieces: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(WAITING), init=False)
    _reading: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def follow(self, server: Server, after: str | None = None) -> None:
        """Carry the stream of that server too, from behind the event ``after`` if there is one."""
        if server.id not in self._reading and not self._over.is_set():
            ask, events = partial(self._asked, server), partial(self._events, server, after is not None)
            carrying = carry(self.relay, self._pieces, server, ask, events, after)
            self._reading[server.id] = asyncio.get_running_loop().create_task(carrying)

    def tell(self, shape: ListShape) -> None:
        """Say that a list of the mount is another one now, unless so much waits for the client already."""
        if not self._pieces.full():
            self._pieces.put_nowait(encode(list_changed(shape)))

    def abort(self) -> None:
        """End the stream: its client has gone, or its session has ended."""
        self._over.set()
        self.listeners.discard(self.tell)
        for task in self._reading.values():
            task.cancel()
        if self.follow in self.session.followers:
            self.session.followers.remove(self.follow)
            self.sessions.leave_others(self.session)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """What the servers say, as it comes."""
        over = asyncio.ensure_future(self._over.wait())
        taking: asyncio.Future[bytes] = over.get_loop().create_future()
        try:
            while True:
                taking = asyncio.ensure_future(self._pieces.get())
                await asyncio.wait((taking, over), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    return
                yield taking.result()
        finally:
            taking.cancel()
            over.cancel()
            self.abort()

    def _asked(self, server: Server, after: str | None) -> ClientRequest:
        session_id = self.session.id_at(server.id)
        own = stream_from(self.ask, server, session_id, after)
        version = self.sessions.version_at(session_id)
        if version is not None and own.sender.version not in (None, version):
            with_version(own, version)
        return own

    def _events(self, server: Server, resumed: bool) -> MemberEvents:
        return MemberEvents(server, self.news, self.uris, self.session, resumed=resumed)


async def open_stream(
    relay: Exchanges,
    sessions: MountSessions,
    servers: Mapping[str, Server],
    ask: ClientRequest,
    session: MountSession,
    news: News,
    uris: Uris,
    listeners: Listeners,
) -> ClientResponse:
    """Open a stream of a session, or resume one. Raises StoreUnavailable."""
    stream = MergedStream(relay, sessions, ask, session, news, uris, listeners)
    resumed = member_of(ask.sender.last_event_id, servers)
    try:
        if resumed is not None and await sessions.is_open(session, servers[resumed[0]]):
            stream.follow(servers[resumed[0]], resumed[1])
        if not session.followers:
            # Many servers allow one such stream in a session: of several that are open here the first one has it.
            session.followers.append(stream.follow)
            listeners.add(stream.tell)
            sessions.follow_others(session)
            for server in servers.values():
                if await sessions.is_open(session, server):
                    stream.follow(server)
    except BaseException:
        stream.abort()
        raise
    session.session.hold(stream.abort)
    # A client that has gone before the first piece leaves pieces that never began, and so never end.
    release = both(stream.abort, lambda: session.session.release(stream.abort))
    return ClientResponse(200, STREAM_FIELDS, stream.pieces(), release=release, last_words=last_words)


async def last_words(_: AdapterError) -> bytes:
    """Tell the client to come back in a while: only whole events are sent."""
    return RETRY


async def carry(
    relay: Exchanges,
    pieces: asyncio.Queue[bytes],
    server: Server,
    ask: Callable[[str | None], ClientRequest],
    read: Callable[[], MemberEvents],
    after: str | None = None,
) -> None:
    """Put what a server says on its stream among the pieces; the stream is asked for again when it ends or fails, from
    behind its last event. Returns where the server has none.
    """
    pause = SHORTEST_PAUSE
    while True:
        events = read()
        try:
            answer = await relay.handle(ask(after))
            try:
                if not _is_stream(answer):
                    return
                async for piece in events.whole(answer):
                    await pieces.put(piece)
                pause = SHORTEST_PAUSE
            finally:
                await answer.close()
        except Exception as error:
            if not isinstance(error, AdapterError):
                # A defect must not make a client deaf for good.
                context = {"message": f"the stream of the server {server.id} failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
            pause = min(2 * pause, LONGEST_PAUSE)
        after = events.last_id.decode("latin-1") or after
        await asyncio.sleep(max(pause, min((events.retry or 0) / 1000, LONGEST_PAUSE)))


def _is_stream(answer: ClientResponse) -> bool:
    """False where the server has no stream. Raises UpstreamBroken where it has one, but not now."""
    if answer.status >= 500 or answer.status in BUSY:
        raise UpstreamBroken(f"The upstream server refuses its stream with {answer.status} now.")
    return answer.status == 200 and media_type(answer.headers) == EVENT_STREAM


def list_changed(shape: ListShape, meta: dict[str, Any] | None = None) -> bytes:
    """The notification that a list is another one than it was. The protocol has none for templates alone."""
    kind = "resources" if shape is TEMPLATES else shape.key
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
    return dump(message if meta is None else {**message, "params": {"_meta": meta}})
