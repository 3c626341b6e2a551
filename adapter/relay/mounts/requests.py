"""Messages of clients of a merged mount to its servers, and the answers of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from adapter.errors import BadJson, BadRequest, SessionUnknown
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Exchanges, both
from adapter.relay.mounts.asks import Route, message_to
from adapter.relay.mounts.events import told_apart
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.reading import response_of
from adapter.relay.mounts.sessions import MountSession, MountSessions, NotOpened
from adapter.relay.server import Server
from adapter.rules.mounts.member_ids import upward
from adapter.rules.mounts.names import Owner
from adapter.wire.envelope import Envelope, Kind, dump, parse, read_envelope
from adapter.wire.eras import MODERN
from adapter.wire.shared_ids import CANCELLED, PROGRESS, about, named, with_id
from adapter.wire.spans import Replace, edit

MOST_ROUTES = 1000
"""Ways of requests of one session that are remembered."""

LISTS_OF = {"tools/call": "tools/list", "prompts/get": "prompts/list"}
"""The methods that go by name, and the lists in which their names stand."""

BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
"""The methods that go by URI."""


@dataclass(frozen=True, slots=True)
class MemberRequests:
    """Sends messages to the ``servers`` of a mount, in its ``sessions`` there."""

    relay: Exchanges
    sessions: MountSessions
    lists: MountLists
    servers: Mapping[str, Server]

    async def send_to(
        self, ask: ClientRequest, session: MountSession | None, owner: Owner, envelope: Envelope, member: str
    ) -> ClientResponse:
        """Send a request to the server that has what its params name; ``member`` is where in them that stands."""
        return await self.send(ask, session, owner.server, _about(envelope, member, owner.name))

    async def send(
        self, ask: ClientRequest, session: MountSession | None, server_id: str, message: Envelope
    ) -> ClientResponse:
        """The server's answer to a request. Raises what its relay raises."""
        server = self.servers[server_id]
        body = upward(server.id, message.body)
        if body is not message.body:
            message = message.with_body(body)
        try:
            return await self._sent(ask, session, server, message)
        except SessionUnknown:
            if session is None or not await self.is_gone(session, server):
                raise
        return await self._sent(ask, session, server, message)

    async def is_gone(self, session: MountSession, server: Server) -> bool:
        """Tell whether nothing was sent because the time of the session at that server was over: then it is opened
        anew. One that was revoked is not.
        """
        self.sessions.lost(session, server)
        return not await self.sessions.is_open(session, server)

    async def _sent(
        self, ask: ClientRequest, session: MountSession | None, server: Server, message: Envelope
    ) -> ClientResponse:
        session_id = None
        if session is not None:
            try:
                session_id = await self.sessions.enter(ask, session, server)
            except NotOpened as found:
                return await _not_opened(found, message)
            if message.id not in session.held:
                # The client has cancelled it, and expects no answer.
                return ClientResponse(202, [], b"")
        is_renamed = ask.sender.era is MODERN and (message.method in LISTS_OF or message.method in BY_URI)
        own = message_to(ask, server, session_id, message, message.name if is_renamed else None)
        if session is None:
            answer = await self.relay.handle(own)
            uris = self.lists.last_uris(ask, None)
            return await told_apart(answer, server, self.lists.changed, uris, own=message.id)
        self.sessions.in_agreed_version(own)
        self._keep_route(ask, session, own)
        return await self.answered(ask, session, own)

    async def answered(self, ask: ClientRequest, session: MountSession, own: ClientRequest) -> ClientResponse:
        """The answer to ``own`` in a session at a server, which may be cancelled meanwhile. Raises what the relay
        raises.
        """
        message, server = own.envelope, own.server
        assert isinstance(message, Envelope)
        session.under_way[message.id] = server.id
        answered = partial(session.under_way.pop, message.id, None)
        try:
            answer = await self.relay.handle(own)
            uris = self.lists.last_uris(ask, session)
            answer = await told_apart(answer, server, self.lists.changed, uris, session, message.id)
        except BaseException:
            answered()
            raise
        if isinstance(answer.body, bytes):
            answered()
        else:
            answer.release = both(answer.release, answered)
        return answer

    # --- messages that have no answer -------------------------------------------------------------------------

    async def pass_on(self, ask: ClientRequest, session: MountSession, envelope: Envelope) -> ClientResponse:
        """Pass a message on to the server that it is about, or to all of them. Raises what the relay raises."""
        body, method = envelope.body, envelope.method
        if envelope.kind is Kind.RESPONSE:
            # One that answers nobody's question goes to nobody.
            if (found := session.asked_by(envelope.id, self.servers)) is not None:
                body = with_id(upward(found.server, body), found.id)
                return await self._tell(ask, session, found.server, body)
        elif method == PROGRESS:
            token = named(parse(body), "progressToken")
            if (found := session.asked_by(token, self.servers)) is not None:
                body = about(body, "progressToken", found.id)
                return await self._tell(ask, session, found.server, body)
        elif method == CANCELLED:
            number = named(parse(body), "requestId")
            if isinstance(number, str | int | float):
                if (server := session.under_way.get(number)) is not None:
                    return await self._tell(ask, session, server, body)
                if not session.held.pop(number, 0):
                    # No two requests of a client have one id, so that nobody else feels meant.
                    await self.sessions.tell_all(ask, session, body)
        elif method != "notifications/initialized":
            # Of that each session at a server hears when it is opened.
            await self.sessions.tell_all(ask, session, body)
        return ClientResponse(202, [], b"")

    async def _tell(
        self, ask: ClientRequest, session: MountSession, server: str, body: bytes
    ) -> ClientResponse:
        message = read_envelope(body)
        assert isinstance(message, Envelope)
        target = self.servers[server]
        if not await self.sessions.is_open(session, target):
            return ClientResponse(202, [], b"")
        return await self.relay.handle(message_to(ask, target, session.id_at(server), message))

    def _keep_route(self, ask: ClientRequest, session: MountSession, own: ClientRequest) -> None:
        """Remember the way of a request by name, for the next one."""
        assert isinstance(ask.envelope, Envelope)
        method, name = ask.envelope.method, ask.envelope.name
        member = self.sessions.member(own.sender.session_id or "")
        if method not in LISTS_OF or name is None or member is None:
            return
        table = None
        if not self.lists.is_certain(LISTS_OF[method], name):
            table = self.lists.tables.get(LISTS_OF[method])
            if table is None:
                return
        if (route := Route.of(table, ask, own, member)) is not None:
            if len(session.routes) >= MOST_ROUTES:
                session.routes.clear()
            session.routes[method, name] = route


async def _not_opened(found: NotOpened, message: Envelope) -> ClientResponse:
    """What the server said to ``initialize``, as the answer to the request that needed a session."""
    answer = found.answer
    response = await response_of(answer, None, max(1, len(found.body)))
    fields = [each for each in answer.headers if each[0].lower() not in ("content-length", "content-type")]
    try:
        read = None if response is None else read_envelope(response)
    except (BadJson, BadRequest):
        read = None
    if response is None or not isinstance(read, Envelope) or b'"id"' not in response:
        return answer
    return ClientResponse(answer.status, [*fields, JSON], with_id(response, message.id_bytes))


def _about(envelope: Envelope, member: str, name: str) -> Envelope:
    """The request with the name or URI that the server knows; ``member`` is where in its params it stands."""
    if envelope.name is None or name == envelope.name:
        return envelope
    said = b'"%b":%b' % (member.encode(), dump(envelope.name))
    body, new = envelope.body, dump(name)
    if body.count(b'"%b"' % member.encode()) == 1 and b"\\u" not in body and said in body:
        # Most clients write it so, and nothing else in the message can be meant.
        body = body.replace(said, b'"%b":%b' % (member.encode(), new), 1)
    else:
        body = edit(body, [Replace(("params", member), new)])
    found = Envelope(envelope.kind, envelope.method, envelope.id, name, envelope.meta, body)
    found.trace = envelope.trace
    return found
