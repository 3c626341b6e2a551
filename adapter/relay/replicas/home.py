"""Upstreams in the processes of replicas: those whose sessions live in one of them, and those that all serve; and the
requests that other replicas forward to sessions of this one.

What replicas tell each other of sessions that any of them serves: of their ends, calls, streams and messages.

A word is said soon and without a promise. A replica that misses one serves a call a little longer, or a client does not
hear a notification; that a session has ended is in its row, which every replica reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from adapter.errors import AdapterError, BadJson, BadRequest, InternalError, NotFound
from adapter.relay.background import BackgroundTasks
from adapter.relay.exchange import JSON
from adapter.relay.notifications import MessageClaims
from adapter.relay.replicas.forwarding import LEFT, LONGEST_FAILURE, ReplicaForwarder, beside, decode_head
from adapter.relay.replicas.registry import Replicas
from adapter.rules.access.replicas import owner_of, replica_tag
from adapter.state.port import StoreListener
from adapter.upstream.port import (
    STREAM,
    Headers,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WholeReply,
    always,
    header,
)
from adapter.wire.envelope import dump, parse
from adapter.wire.forwarding import (
    MARK,
    Kind,
    Seal,
    encode_failure,
    mark,
    read_seal,
)

_CLOSING = 10.0
"""Seconds in which a session that lives on elsewhere is to end here."""

UNUSED = 60.0
"""Seconds after which a session that another replica could not reach is ended here, unless it was used."""

MOST_LEFT = 10_000
"""Sessions that are waited for so long; the first of more ends at once."""


class LeftSessions:
    """Sessions that another replica could not reach and may have opened anew. ``end`` is called with the server and the
    id of each that nobody uses for ``unused`` seconds.
    """

    def __init__(self, end: Callable[[str, str], None], unused: float = UNUSED) -> None:
        self._end = end
        self._unused = unused
        self._waiting: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, server: str, session: str) -> None:
        """Wait for the next use of a session."""
        key = server, session
        if key in self._waiting:
            return
        if len(self._waiting) >= MOST_LEFT:
            self._over(next(iter(self._waiting)))
        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(self._unused, self._over, key)

    def used(self, server: str, session: str | None) -> None:
        """Note that a session is used here, so it lives nowhere else."""
        timer = None if session is None else self._waiting.pop((server, session), None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Wait for nothing any more."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _over(self, key: tuple[str, str]) -> None:
        self._waiting.pop(key).cancel()
        self._end(*key)


class MarkedReply(NamedTuple):
    """The answer to a forwarded request: ``headers`` are those of ``reply``, and the mark.

    ``endless``: it has no end of its own.
    """

    headers: Headers
    reply: UpstreamReply
    endless: bool


@dataclass(eq=False)
class Home(StoreListener):
    """Gives requests that replicas forward to ``upstreams``, by their servers, and to nothing else."""

    replicas: Replicas
    upstreams: Mapping[str, Upstream]
    background: BackgroundTasks
    _streams: set[UpstreamReply] = field(default_factory=set, init=False)
    _leaving: bool = field(default=False, init=False)
    _quiet_until: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.left = LeftSessions(self._end_soon)

    def __repr__(self) -> str:
        return f"<Home of {len(self.upstreams)} servers: {len(self._streams)} streams>"

    def admit(self, text: str | None) -> Seal:
        """The seal of a request that may come in, once. Raises NotFound for any other, as for any path where nothing
        is, and logs the reason."""
        try:
            seal, mac = read_seal(text or "")
        except ValueError:
            raise self._refused("it has no seal") from None
        if not self.replicas.key or not seal.is_signed(mac, self.replicas.key):
            raise self._refused("its seal is not that of a replica")
        if seal.owner != self.replicas.id:
            raise self._refused("it is for another replica")
        if self._leaving:
            raise NotFound()
        reason = self.replicas.challenges.refusal(seal.challenge, seal.nonce)
        if reason is not None:
            raise self._refused(reason)
        return seal

    def _refused(self, why: str) -> NotFound:
        """The answer to what no replica may have sent; in the log once a second for each reason."""
        now = time.monotonic()
        if now >= self._quiet_until.get(why, 0.0):
            self._quiet_until[why] = now + 1.0
            self.replicas.log.warning("a request in the name of a replica was refused", why=why)
        return NotFound()

    async def serve(self, seal: Seal, content: bytes) -> MarkedReply:
        """The answer to an admitted request. Raises NotFound for another content than the sealed one."""
        if not await beside(seal.covers, content):
            raise self._refused("it has another content than was sealed")
        try:
            server, request, read_timeout = decode_head(content[: seal.head_size], content[seal.head_size :])
            upstream = self.upstreams[server]
        except (ValueError, KeyError):
            return self.failed(seal, BadRequest("The replicas of the adapter have different settings."))
        if self.left:
            self.left.used(server, header(request.headers, "mcp-session-id"))
        try:
            reply = await upstream.send(request, read_timeout)
        except AdapterError as error:
            return self.failed(seal, error)
        except Exception:
            self.replicas.log.exception("a forwarded request failed unexpectedly", server=server)
            return self.failed(seal, InternalError())
        endless = request.purpose is STREAM
        if endless and reply.whole is None:
            self._streams.add(reply)
        return MarkedReply([*reply.headers, self._mark(seal, "answer", reply.status)], reply, endless)

    def release(self, reply: UpstreamReply) -> None:
        """Let go of an answer that has left, or whose receiver has gone."""
        self._streams.discard(reply)
        reply.abort()

    def leave(self) -> None:
        """Take no more requests, and end streams that have no end of their own: their clients come back elsewhere."""
        self._leaving = True
        self.left.close()
        for stream in list(self._streams):
            stream.abort()

    def failed(self, seal: Seal, error: AdapterError) -> MarkedReply:
        """The answer to an admitted request that has failed."""
        body = encode_failure(error)
        if len(body) > LONGEST_FAILURE:
            body = encode_failure(type(error)())
        return MarkedReply([JSON, self._mark(seal, "failure", 200)], WholeReply(200, [JSON], body), False)

    def _mark(self, seal: Seal, kind: Kind, status: int) -> tuple[str, str]:
        return MARK, mark(self.replicas.key, seal.nonce, kind, status)

    # --- sessions that live on elsewhere ----------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """Note a session that another replica could not reach here, and is about to open anew."""
        if topic != LEFT:
            return
        try:
            owner, server, session = orjson.loads(body)
        except (ValueError, TypeError):  # another version's
            return
        if owner == self.replicas.id and server in self.upstreams and isinstance(session, str):
            self.left.add(server, session)

    def _end_soon(self, server: str, session: str) -> None:
        self.background.run(self._end(self.upstreams[server], session))

    async def _end(self, upstream: Upstream, session: str) -> None:
        request = UpstreamRequest("DELETE", [("Mcp-Session-Id", session)], repeatable=always)
        try:
            (await upstream.send(request, _CLOSING)).abort()
        except AdapterError as error:
            self.replicas.log.info("a session that lives on elsewhere could not be ended", why=str(error))


class OwnedUpstream:
    """An Upstream whose sessions live in the replica that opened them: ``home`` has those that live in this one.

    Of sessions that any replica serves nothing is forwarded but a stream that broke off elsewhere: its events are kept
    in the replica that sent them, whose name their ids begin with.
    """

    def __init__(self, server: str, home: Upstream, forwarding: ReplicaForwarder, left: LeftSessions) -> None:
        self.home = home
        self._server = server
        self._forwarding = forwarding
        self._left = left

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. A stream that cannot be resumed where it was is opened anew, here. Raises StoreUnavailable."""
        session = header(request.headers, "mcp-session-id")
        owner = owner_of(session)
        if owner is not None and owner != self._forwarding.replicas.id:
            return await self._forwarding.send(owner, self._server, request, read_timeout)
        if owner is None and request.purpose is STREAM and (keeper := self._keeper(request)) is not None:
            reply = await self._forwarding.send(keeper, self._server, request, read_timeout, moves=False)
            if reply.status != 404:
                return reply
            reply.abort()
        if owner is not None and self._left:
            self._left.used(self._server, session)
        return await self.home.send(request, read_timeout)

    def _keeper(self, request: UpstreamRequest) -> str | None:
        """The other replica that keeps the events behind the one that the request names."""
        last = header(request.headers, "last-event-id")
        tag, dot, _ = (last or "").partition(".")
        replicas = self._forwarding.replicas
        if not dot or tag == replica_tag(replicas.id):
            return None
        return next((other.id for other in replicas.others() if replica_tag(other.id) == tag), None)

    async def close(self) -> None:
        """See Upstream."""
        await self.home.close()


TOPIC = "portable sessions"

LARGEST = 48 << 10
"""Bytes of a word; a larger message stays on the replica where it was said."""

Once = Callable[[str, str, Callable[[], None]], None]
"""Sends a session a message of that name, unless another replica does."""


class SessionsHere(Protocol):
    """The sessions of one server as this replica serves them."""

    def hear(self, kind: str, session_id: str, more: Sequence[Any], once: Once) -> None:
        """Take what another replica tells of a session."""


@dataclass(frozen=True, slots=True)
class SessionWordsOf:
    """The words about the sessions of one server."""

    server: str
    replicas: Replicas

    @property
    def place(self) -> bytes:
        """The begin of the ids of events that this replica keeps."""
        return f"{replica_tag(self.replicas.id)}.".encode()

    def tell(self, kind: str, session_id: str, *more: object) -> None:
        """Tell the other replicas of a session, unless that is too long."""
        # The number of a cancelled request is a client's, and may hold what UTF-8 cannot.
        body = dump([self.server, kind, session_id, *more])
        if len(body) <= LARGEST:
            self.replicas.store.announce(TOPIC, body)


@dataclass(eq=False)
class SharedSessionMessages(StoreListener):
    """Says words to the other replicas, and hears theirs. A StoreListener."""

    replicas: Replicas
    claims: MessageClaims
    _servers: dict[str, SessionsHere] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.replicas.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<SharedSessionMessages of {len(self._servers)} servers: {self.claims!r}>"

    def of(self, server: str, sessions: SessionsHere) -> SessionWordsOf:
        """The words about the sessions of a server; what others say of these is told to ``sessions``."""
        self._servers[server] = sessions
        return SessionWordsOf(server, self.replicas)

    # --- what others say --------------------------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic != TOPIC:
            return
        try:
            server, kind, about, *more = parse(body)
            if (sessions := self._servers.get(server)) is not None:
                sessions.hear(kind, about, more, self._once)
        except (BadJson, ValueError, TypeError, AttributeError, LookupError) as error:
            self.replicas.log.debug(
                "a replica of another version says what is not understood", why=str(error)
            )

    def _once(self, session_id: str, message: str, send: Callable[[], None]) -> None:
        self.claims.send_once(message, {hashlib.sha256(session_id.encode()).hexdigest()[:32]: send})
