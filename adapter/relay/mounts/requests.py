"""Messages of clients of a merged mount to its servers, and the answers of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from adapter.errors import BadJson, BadRequest, SessionUnknown
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Exchanges, both
from adapter.relay.mounts.asks import Number, Route, message_to
from adapter.relay.mounts.events import is_plain, told_apart
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.reading import response_of
from adapter.relay.mounts.sessions import MountRequest, MountSession, MountSessions, NotOpened
from adapter.relay.replies import is_encoded
from adapter.relay.server import Server
from adapter.rules.mounts.member_ids import member_of, upward
from adapter.rules.mounts.names import Owner
from adapter.wire.envelope import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Envelope,
    Kind,
    dump,
    parse,
    read_envelope,
    value_at,
)
from adapter.wire.rpc_refusals import RpcRefused
from adapter.wire.shared_ids import CANCELLED, PROGRESS, about, named, with_id
from adapter.wire.spans import Replace, edit

MOST_ROUTES = 1000
"""Ways of requests of one session that are remembered."""

LISTS_OF = {"tools/call": "tools/list", "prompts/get": "prompts/list"}
"""The methods that go by name, and the lists in which their names stand."""

BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
"""The methods that go by URI."""

COMPLETE = "completion/complete"

Anew = Callable[[], Awaitable[ClientResponse]]

_UNKNOWN = {
    "tools/call": "Unknown tool: ",
    "prompts/get": "Unknown prompt: ",
    COMPLETE: "No server knows what is to be completed.",
    **dict.fromkeys(BY_URI, "Resource not found"),
}


def is_routed(request: MountRequest) -> bool:
    """Tell whether a request goes to the one server that has what it is about, which judges it."""
    method = request.envelope.method
    if method in BY_URI:
        return method == "resources/read" or not request.is_modern
    return (
        method in LISTS_OF or method == COMPLETE or (method.startswith("tasks/") and method != "tasks/list")
    )


@dataclass(frozen=True, slots=True)
class MemberRequests:
    """Sends messages to the ``servers`` of a mount, in its ``sessions`` there."""

    relay: Exchanges
    sessions: MountSessions
    lists: MountLists
    servers: Mapping[str, Server]

    async def route(self, request: MountRequest) -> ClientResponse:
        """The answer of the server that has what a request is about. Raises RpcRefused where none has it, and what the
        relay raises.
        """
        envelope, method = request.envelope, request.envelope.method
        owner, place = await self._owner(request)
        if owner is None:
            why = _UNKNOWN.get(method, "Unknown task") + (envelope.name or "" if method in LISTS_OF else "")
            raise RpcRefused(RESOURCE_NOT_FOUND if method in BY_URI else INVALID_PARAMS, why)
        server = self.servers[owner.server]
        message = _about(envelope, place, owner.name) if place else envelope
        body = upward(server.id, message.body)
        if body is not message.body:
            message = message.with_body(body)
        return await self._sent(request, server, message, partial(self._sent, request, server, message))

    async def _owner(self, request: MountRequest) -> tuple[Owner | None, tuple[str, ...]]:
        """The server that has what a request is about, under the name that it has there, and where in the params that
        name is to stand.
        """
        envelope, lists = request.envelope, self.lists
        if envelope.method in LISTS_OF:
            if envelope.name is None:
                return None, ()
            return await lists.owner(request, LISTS_OF[envelope.method], envelope.name), ("name",)
        if envelope.method in BY_URI:
            return await lists.owner_of_uri(request, envelope.name or ""), ("uri",)
        params = value_at(parse(envelope.body), "params")
        if envelope.method != COMPLETE:
            found = member_of(value_at(params, "taskId"), self.servers)
            return None if found is None else Owner(*found), ()
        name, uri = (value_at(params, "ref", member) for member in ("name", "uri"))
        if isinstance(name, str):
            return await lists.owner(request, "prompts/list", name), ("ref", "name")
        return await lists.owner_of_uri(request, uri) if isinstance(uri, str) else None, ("ref", "uri")

    async def _sent(
        self, request: MountRequest, server: Server, message: Envelope, anew: Anew | None = None
    ) -> ClientResponse:
        ask, session = request
        try:
            session_id = await self.sessions.enter(request, server)
        except NotOpened as found:
            return await _not_opened(found, message)
        if session is not None and message.id not in session.held:
            # The client has cancelled it, and expects no answer.
            return ClientResponse(202, [], b"")
        is_renamed = request.is_modern and (message.method in LISTS_OF or message.method in BY_URI)
        own = message_to(ask, server, session_id, message, message.name if is_renamed else None)
        self.sessions.in_agreed_version(own)
        if session is not None:
            self._keep_route(ask, session, own)
        return await self.answered(ask, session, own, message.id, anew)

    async def answered(
        self,
        ask: ClientRequest,
        session: MountSession | None,
        own: ClientRequest,
        number: Number,
        anew: Anew | None,
    ) -> ClientResponse:
        """The answer to ``own``, the request of that ``number`` at a server, which may be cancelled meanwhile. ``anew``
        answers where nothing was sent because the time of the session there was over. Raises what the relay raises.
        """
        server = own.server
        under_way: dict[Number, str] = {} if session is None else session.under_way
        under_way[number] = server.id
        try:
            answer = await self.relay.handle(own)
            body = answer.body
            if type(body) is not bytes or not is_plain(body, number) or is_encoded(answer.headers):
                uris = partial(self.lists.last_uris, ask, session)
                answer = await told_apart(answer, server, self.lists.changed, uris, session, number)
                if not isinstance(answer.body, bytes):
                    answer.release = both(answer.release, partial(under_way.pop, number, None))
                    return answer
        except SessionUnknown:
            under_way.pop(number, None)
            if anew is None or session is None or not await self.sessions.is_gone(session, server):
                raise
            return await anew()
        except BaseException:
            under_way.pop(number, None)
            raise
        under_way.pop(number, None)
        return answer

    # --- messages that have no answer -------------------------------------------------------------------------

    async def pass_on(self, request: MountRequest) -> ClientResponse:
        """Pass a message on to the server that it is about, or to all of them. Raises what the relay raises."""
        ask, session = request
        body, method, server = request.envelope.body, request.envelope.method, None
        if session is None:
            return ClientResponse(202, [], b"")
        if request.envelope.kind is Kind.RESPONSE:
            # One that answers nobody's question goes to nobody.
            if (found := session.asked_by(request.envelope.id, self.servers)) is not None:
                server, body = found.server, with_id(upward(found.server, body), found.id)
        elif method == PROGRESS:
            if (found := session.asked_by(named(parse(body), "progressToken"), self.servers)) is not None:
                server, body = found.server, about(body, "progressToken", found.id)
        elif method == CANCELLED:
            number = named(parse(body), "requestId")
            if isinstance(number, str | int | float):
                server = session.under_way.get(number)
                if server is None and not session.held.pop(number, 0):
                    # No two requests of a client have one id, so that nobody else feels meant.
                    await self.sessions.tell_all(ask, session, body)
        elif method != "notifications/initialized":
            # Of that each session at a server hears when it is opened.
            await self.sessions.tell_all(ask, session, body)
        if server is None or not await self.sessions.is_open(session, self.servers[server]):
            return ClientResponse(202, [], b"")
        message = read_envelope(body)
        assert isinstance(message, Envelope)
        return await self.relay.handle(message_to(ask, self.servers[server], session.id_at(server), message))

    def _keep_route(self, ask: ClientRequest, session: MountSession, own: ClientRequest) -> None:
        """Remember the way of a request by name, for the next one."""
        client, message, session_id = ask.envelope, own.envelope, own.sender.session_id or ""
        assert isinstance(client, Envelope) and isinstance(message, Envelope)
        member, method = self.sessions.member(session_id), client.method
        if method not in LISTS_OF or client.name is None or message.name is None or member is None:
            return
        is_certain = self.lists.is_certain(LISTS_OF[method], client.name)
        table = None if is_certain else self.lists.tables.get(LISTS_OF[method])
        if is_certain or table is not None:
            if len(session.routes) >= MOST_ROUTES:
                session.routes.clear()
            said, renamed = (b'"name":' + dump(each) for each in (client.name, message.name))
            route = Route(table, own.server, message.name, session_id, member, said, renamed)
            session.routes[method, client.name] = route


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


def _about(envelope: Envelope, place: tuple[str, ...], name: str) -> Envelope:
    """The request with the name or URI that the server knows; ``place`` is where in its params that stands."""
    if name == envelope.name and len(place) == 1:
        return envelope
    member, body, new = b'"%b"' % place[-1].encode(), envelope.body, dump(name)
    said = member + b":" + dump(envelope.name)
    if body.count(member) == 1 and b"\\u" not in body and said in body:
        # Most clients write it so, and nothing else in the message can be meant.
        body = body.replace(said, member + b":" + new, 1)
    else:
        body = edit(body, [Replace(("params", *place), new)])
    found = envelope.with_body(body)
    if envelope.name is not None:
        found.name = name
    return found
