"""The one GET stream of a session at a merged mount, which carries those of its sessions at all servers.

A client that comes back with ``Last-Event-ID`` wants the rest of one server's stream: the id says of which.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.call.get_streams import ACKNOWLEDGED
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges, both
from adapter.relay.flow import last_words_behind
from adapter.relay.mounts.asks import message_to, stream_from, with_version
from adapter.relay.mounts.events import MemberEvents, News, Uris
from adapter.relay.mounts.sessions import MountSession, MountSessions
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.relay.server import Server
from adapter.rules.access.visible_lists import ListShape
from adapter.rules.mounts.lists import TEMPLATES
from adapter.rules.mounts.member_ids import member_of
from adapter.wire.envelope import Envelope, dump, parse
from adapter.wire.shared_ids import named
from adapter.wire.sse import encode

WAITING = 64
"""Pieces that wait for the client; servers wait while there are so many."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until the stream of a server that ended or failed is asked for again, longer each time that it fails."""

Listeners = set[Callable[[ListShape], None]]
"""Those who are told when a list of the mount is another one than it was."""

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
TOO_MANY = 429
"""The status of a server that has a stream, but not at this moment."""

_FIELDS = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]


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
            task = asyncio.get_running_loop().create_task(self._follow(server, after))
            self._reading[server.id] = task

    def tell(self, shape: ListShape) -> None:
        """Say that a list of the mount is another one now, unless so much waits for the client already."""
        if not self._pieces.full():
            self._pieces.put_nowait(encode(_list_changed(shape)))

    def abort(self) -> None:
        """End the stream: its client has gone, or its session has ended."""
        self._over.set()
        self.listeners.discard(self.tell)
        for task in self._reading.values():
            task.cancel()
        if self in self.session.streams:
            self.session.streams.remove(self)
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

    async def last_words(self, _: AdapterError) -> bytes:
        """Tell the client to come back in a while: only whole events are sent."""
        return last_words_behind(b"")

    async def _follow(self, server: Server, after: str | None) -> None:
        pause = SHORTEST_PAUSE
        while True:
            events = MemberEvents(server, self.news, self.uris, self.session.marked(server.id))
            try:
                if not await self._read(server, after, events):
                    return
                pause = SHORTEST_PAUSE
            except AdapterError:
                pause = min(2 * pause, LONGEST_PAUSE)
            after = events.last_id.decode("latin-1") or after
            await asyncio.sleep(max(pause, min((events.retry or 0) / 1000, LONGEST_PAUSE)))

    async def _read(self, server: Server, after: str | None, events: MemberEvents) -> bool:
        """Read one stream of a server to its end. False where it has none. Raises AdapterError."""
        session_id = self.session.id_at(server.id)
        own = stream_from(self.ask, server, session_id, after)
        version = self.sessions.version_at(session_id)
        if version is not None and own.sender.version not in (None, version):
            with_version(own, version)
        answer = await self.relay.handle(own)
        try:
            if answer.status >= 500 or answer.status == TOO_MANY:
                raise UpstreamBroken(f"The upstream server refuses its stream with {answer.status} now.")
            if answer.status != 200 or media_type(answer.headers) != EVENT_STREAM:
                return False
            async for piece in events.whole(answer):
                await self._pieces.put(piece)
        finally:
            await answer.close()
        return True


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
        if not session.streams:
            # Many servers allow one such stream in a session: of several that are open here the first one has it.
            session.streams.append(stream)
            listeners.add(stream.tell)
            sessions.follow_others(session)
            for server in servers.values():
                if await sessions.is_open(session, server):
                    stream.follow(server)
    except BaseException:
        stream.abort()
        raise
    session.session.hold(stream)
    # A client that has gone before the first piece leaves pieces that never began, and so never end.
    release = both(stream.abort, lambda: session.session.release(stream))
    return ClientResponse(200, _FIELDS, stream.pieces(), release=release, last_words=stream.last_words)


# --- the modern era ---------------------------------------------------------------------------------------------


async def subscribed(
    relay: Exchanges,
    servers: Mapping[str, Server],
    ask: ClientRequest,
    envelope: Envelope,
    news: News,
    uris: Uris,
    listeners: Listeners,
) -> ClientResponse:
    """The stream of ``subscriptions/listen``, which carries those of all servers.

    Each of them knows the subscription by the client's own id, so nothing has to be told apart.
    """
    pieces: asyncio.Queue[bytes] = asyncio.Queue(WAITING)

    async def listen(server: Server) -> None:
        pause = SHORTEST_PAUSE
        while True:
            try:
                answer = await relay.handle(message_to(ask, server, None, envelope))
                try:
                    if answer.status != 200 or media_type(answer.headers) != EVENT_STREAM:
                        return
                    pause = SHORTEST_PAUSE
                    async for piece in MemberEvents(server, news, uris, subscription=True).whole(answer):
                        await pieces.put(piece)
                finally:
                    await answer.close()
            except AdapterError:
                pause = min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    wanted = named(parse(envelope.body), "notifications")
    wanted = wanted if isinstance(wanted, dict) else {}

    def tell(shape: ListShape) -> None:
        if wanted.get(f"{_kind(shape)}ListChanged") is True and not pieces.full():
            pieces.put_nowait(encode(_list_changed(shape, {_SUBSCRIPTION: envelope.id})))

    async def body() -> AsyncGenerator[bytes, None]:
        tasks = [asyncio.get_running_loop().create_task(listen(server)) for server in servers.values()]
        listeners.add(tell)
        try:
            yield encode(_acknowledged(envelope.id, wanted))
            while True:
                yield await pieces.get()
        finally:
            listeners.discard(tell)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def last_words(_: AdapterError) -> bytes:
        return last_words_behind(b"")

    return ClientResponse(200, _FIELDS, body(), last_words=last_words)


def _acknowledged(number: object, wanted: dict[str, Any]) -> bytes:
    """The first word on the stream: the mount tells of all that its client wants to hear (MCP 2026-07-28)."""
    params = {"notifications": wanted, "_meta": {_SUBSCRIPTION: number}}
    return dump({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params})


def _kind(shape: ListShape) -> str:
    """The word of the protocol for what is in a list; it knows no templates."""
    return "resources" if shape is TEMPLATES else shape.key


def _list_changed(shape: ListShape, meta: dict[str, Any] | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{_kind(shape)}/list_changed"}
    return dump(message if meta is None else {**message, "params": {"_meta": meta}})
