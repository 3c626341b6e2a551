"""The entrance of a merged mount: each request goes to the relay of the server that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import BadJson, BadRequest, SessionMissing, SessionUnknown
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Exchanges, asking_plain, both
from adapter.relay.mounts.asks import fields_for, message_to, sender_for, with_version
from adapter.relay.mounts.events import told_apart
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.reading import response_of
from adapter.relay.mounts.sessions import MountSession, MountSessions, NotOpened, Route
from adapter.relay.mounts.streams import open_stream, subscribed
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.mounts.introduction import CAPABILITIES, joined_instructions
from adapter.rules.mounts.lists import KINDS
from adapter.rules.mounts.member_ids import member_of, upward
from adapter.rules.mounts.modern_requests import UNSUPPORTED_VERSION, refusal_of
from adapter.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    REQUEST,
    Batch,
    Envelope,
    Kind,
    dump,
    error_response,
    parse,
    read_envelope,
)
from adapter.wire.eras import LEGACY, LEGACY_VERSIONS, MODERN, MODERN_VERSIONS
from adapter.wire.shared_ids import CANCELLED, PROGRESS, about, named, with_id
from adapter.wire.spans import Replace, edit

RESOURCE_NOT_FOUND = -32002
MOST_ROUTES = 1000
"""Ways of requests of one session that are remembered."""

SET_LEVEL = "logging/setLevel"
LISTS_OF = {"tools/call": "tools/list", "prompts/get": "prompts/list"}
"""The methods that go by name, and the lists in which their names stand."""

_BY_URI = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_FORWARDED = ("resources/read", "tasks/", "completion/")
"""Requests that a server judges."""

_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_MODERN_STATUS = {INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404, UNSUPPORTED_VERSION: 400}
"""A modern client reads from the status whether the request was understood."""
_UNKNOWN = {"tools/call": "Unknown tool", "prompts/get": "Unknown prompt"}


@dataclass(eq=False, slots=True)
class MergedMount:
    """Several servers at one address. ``mount`` is its own light server; ``info`` is how it calls itself.

    ``serves_missing``: requests without a session are served, as ``sessions.missing_id`` says.
    """

    relay: Exchanges
    mount: Server
    servers: Mapping[str, Server]
    sessions: MountSessions
    lists: MountLists
    info: Mapping[str, Any]
    serves_missing: bool = False
    end: Callable[[ClientRequest, float], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.end = self._end

    def __repr__(self) -> str:
        return f"<MergedMount {self.mount.id!r} of {list(self.servers)}>"

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay."""
        envelope, legacy = ask.envelope, ask.sender.era is LEGACY
        if (
            type(envelope) is Envelope
            and legacy
            and (session := self.sessions.at_hand(ask.sender)) is not None
        ):
            route = session.routes.get((envelope.method, envelope.name))
            own = None if route is None else self._on_route(ask, route, envelope)
            if own is not None:
                try:
                    return await self._answered(ask, session, own)
                except SessionUnknown:
                    if not await self._is_gone(session, own.server):
                        raise
        if ask.method == "DELETE" and legacy:
            return await self.sessions.end(ask)
        if ask.method != "POST":
            return await self._listen(ask)
        if isinstance(envelope, Batch):
            raise BadRequest("A merged mount takes no JSON-RPC batches: send each message by itself.")
        assert envelope is not None
        if envelope.doubt is not None:
            # It decides which server gets the message, which may be read otherwise there.
            raise BadRequest(envelope.doubt)
        if legacy and envelope.method == "initialize" and envelope.kind is Kind.REQUEST:
            return await self._initialize(ask, envelope)
        session = None
        if legacy and ask.sender.session_id is not None:
            session = await self.sessions.find(ask)
        elif legacy:
            self._require_session()
        if envelope.kind is Kind.REQUEST:
            return await self._request(ask, session, envelope)
        if session is None:
            return ClientResponse(202, [], b"")
        if envelope.kind is Kind.RESPONSE:
            return await self._answer(ask, session, envelope)
        return await self._notify(ask, session, envelope)

    async def leave(self, within: float) -> None:
        """End what the mount itself does, at servers as far as that takes no longer than ``within`` seconds."""
        await self.sessions.leave()
        await self.lists.leave(within)

    async def _end(self, ask: ClientRequest, within: float) -> ClientResponse:  # noqa: ARG002 (servers have their own)
        return await self.sessions.end(ask)

    def _require_session(self) -> None:
        """Raise SessionMissing, unless some server serves requests without a session."""
        if not self.serves_missing and all(each.issues_ids is not False for each in self.servers.values()):
            raise SessionMissing()

    # --- the mount's own answers ------------------------------------------------------------------------------

    async def _initialize(self, ask: ClientRequest, envelope: Envelope) -> ClientResponse:
        wanted = named(parse(envelope.body), "protocolVersion")
        version = wanted if wanted in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        assert isinstance(version, str)
        session_id = await self.sessions.create(ask, envelope, version)
        introduced = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": self.info}
        introduced |= self._instructions()
        answer = _result(envelope, introduced)
        answer.headers = [JSON, ("Mcp-Session-Id", session_id)]
        return answer

    def _discovered(self, envelope: Envelope) -> ClientResponse:
        introduced = {
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": CAPABILITIES,
            "_meta": {_SERVER_INFO: self.info},
            **self._instructions(),
        }
        return _result(envelope, introduced)

    def _instructions(self) -> dict[str, str]:
        joined = joined_instructions(self.lists.instructions())
        return {} if joined is None else {"instructions": joined}

    def _refused(
        self,
        ask: ClientRequest,
        envelope: Envelope,
        code: int,
        why: str,
        data: Mapping[str, Any] | None = None,
    ) -> ClientResponse:
        status = _MODERN_STATUS.get(code, 200) if ask.sender.era is MODERN else 200
        return ClientResponse(status, [JSON], error_response(envelope.id_bytes, code, why, data))

    # --- requests ---------------------------------------------------------------------------------------------

    async def _request(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        method = envelope.method
        if method in LISTS_OF:
            return await self._by_name(ask, session, envelope)
        if ask.sender.era is MODERN and not method.startswith(_FORWARDED):
            refused = refusal_of(envelope.body)
            if refused is not None:
                return self._refused(ask, envelope, *refused)
        if method in KINDS:
            return ClientResponse(200, [JSON], await self.lists.merged(ask, session, method))
        if method == "resources/read" or (method in _BY_URI and ask.sender.era is LEGACY):
            owner = await self.lists.owner_of_uri(ask, session, envelope.name or "")
            if owner is None:
                return self._refused(ask, envelope, RESOURCE_NOT_FOUND, "Resource not found")
            message = _about(envelope, "uri", owner.name)
            return await self._send(ask, session, self.servers[owner.server], message)
        if method.startswith("tasks/"):
            return await self._about_task(ask, session, envelope)
        if method == "completion/complete":
            return await self._complete(ask, session, envelope)
        if method == "ping" and ask.sender.era is LEGACY:
            return _result(envelope, {})
        if method == SET_LEVEL and session is not None:
            await self.sessions.remember(session, envelope.body)
            await self.sessions.tell_all(ask, session, envelope)
            return _result(envelope, {})
        if method == "server/discover" and ask.sender.era is MODERN:
            return self._discovered(envelope)
        if method == LISTEN and ask.sender.era is MODERN:
            uris = partial(self.lists.told_apart, ask, session)
            return await subscribed(
                self.relay, self.servers, ask, envelope, self.lists.changed, uris, self.lists.listeners
            )
        return self._refused(ask, envelope, METHOD_NOT_FOUND, f"Method not found: {method[:128]}")

    async def _by_name(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        name, method = envelope.name, envelope.method
        owner = None if name is None else await self.lists.owner(ask, session, LISTS_OF[method], name)
        if owner is None:
            return self._refused(ask, envelope, INVALID_PARAMS, f"{_UNKNOWN[method]}: {name or ''}")
        return await self._send(
            ask, session, self.servers[owner.server], _about(envelope, "name", owner.name)
        )

    async def _complete(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        ref = named(parse(envelope.body), "ref")
        ref = ref if isinstance(ref, dict) else {}
        name, uri = ref.get("name"), ref.get("uri")
        owner, member = None, "name"
        if isinstance(name, str):
            owner = await self.lists.owner(ask, session, "prompts/list", name)
        elif isinstance(uri, str):
            owner, member = await self.lists.owner_of_uri(ask, session, uri), "uri"
        if owner is None:
            return self._refused(ask, envelope, INVALID_PARAMS, "No server knows what is to be completed.")
        change = Replace(("params", "ref", member), dump(owner.name))
        message = envelope.with_body(edit(envelope.body, [change]))
        return await self._send(ask, session, self.servers[owner.server], message)

    async def _about_task(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        found = member_of(named(parse(envelope.body), "taskId"), self.servers)
        if found is None:
            return self._refused(ask, envelope, INVALID_PARAMS, "Unknown task")
        return await self._send(ask, session, self.servers[found[0]], envelope)

    # --- to one server ----------------------------------------------------------------------------------------

    async def _send(
        self, ask: ClientRequest, session: MountSession | None, server: Server, message: Envelope
    ) -> ClientResponse:
        """The server's answer to a request. Raises what its relay raises."""
        body = upward(server.id, message.body)
        if body is not message.body:
            message = message.with_body(body)
        try:
            return await self._sent(ask, session, server, message)
        except NotOpened as refused:
            return await self._not_opened(refused, message)
        except SessionUnknown:
            if session is None:
                raise
            if not await self._is_gone(session, server):
                raise
        return await self._sent(ask, session, server, message)

    async def _is_gone(self, session: MountSession, server: Server) -> bool:
        """Tell whether nothing was sent because the time of the session at that server was over: then it is opened
        anew. One that was revoked is not.
        """
        self.sessions.lost(session, server)
        return not await self.sessions.is_open(session, server)

    async def _sent(
        self, ask: ClientRequest, session: MountSession | None, server: Server, message: Envelope
    ) -> ClientResponse:
        session_id = None if session is None else await self.sessions.enter(ask, session, server)
        is_renamed = ask.sender.era is MODERN and (message.method in LISTS_OF or message.method in _BY_URI)
        own = message_to(ask, server, session_id, message, message.name if is_renamed else None)
        if session_id is not None:
            version = self.sessions.version_at(session_id)
            if version is not None and ask.sender.version not in (None, version):
                with_version(own, version)
        if session is None:
            answer = await self.relay.handle(own)
            return told_apart(answer, server, self.lists.changed, partial(self.lists.told_apart, ask, None))
        self._keep_route(ask, session, own)
        return await self._answered(ask, session, own)

    async def _answered(
        self, ask: ClientRequest, session: MountSession, own: ClientRequest
    ) -> ClientResponse:
        """The answer to a request in a session at a server, which may be cancelled meanwhile."""
        message, server = own.envelope, own.server
        assert isinstance(message, Envelope)
        session.under_way[message.id] = server.id
        try:
            answer = await self.relay.handle(own)
            uris = partial(self.lists.told_apart, ask, session)
            answer = told_apart(answer, server, self.lists.changed, uris, session.marked(server.id))
        except BaseException:
            session.under_way.pop(message.id, None)
            raise
        if isinstance(answer.body, bytes):
            session.under_way.pop(message.id, None)
        else:
            answer.release = both(answer.release, session.asked(message.id))
        return answer

    def _keep_route(self, ask: ClientRequest, session: MountSession, own: ClientRequest) -> None:
        """Remember the way of a request by name, for the next one."""
        envelope, message, sender = ask.envelope, own.envelope, own.sender
        assert isinstance(envelope, Envelope) and isinstance(message, Envelope)
        method, name = envelope.method, message.name
        table = self.lists.table_at_hand(LISTS_OF.get(method, ""))
        member = self.sessions.member(sender.session_id or "")
        if (
            table is None
            or member is None
            or name is None
            or ask.encoded
            or sender.version != ask.sender.version
        ):
            return
        if len(session.routes) >= MOST_ROUTES:
            session.routes.clear()
        session.routes[method, envelope.name] = Route(
            table,
            own.server,
            name,
            sender.session_id or "",
            member,
            b'"name":' + dump(envelope.name),
            b'"name":' + dump(name),
        )

    def _on_route(self, ask: ClientRequest, route: Route, envelope: Envelope) -> ClientRequest | None:
        """A request on a way that was made before; None for one that has to be looked at more closely."""
        body = envelope.body
        if (
            route.table is not self.lists.table_at_hand(LISTS_OF[envelope.method])
            or envelope.doubt is not None
            or envelope.kind is not REQUEST
            or ask.encoded
            or route.member.over
            or route.member.protocol_version != route.version
            or body.count(b'"name"') != 1
            or route.said not in body
            or b"\\u" in body
            or b'"taskId"' in body
        ):
            return None
        if ask.sender is not route.last_sender:
            route.last_sender = ask.sender
            route.sender = sender_for(ask, route.server, route.session_id)
        if ask.headers is not route.last_headers:
            route.headers = asking_plain(fields_for(ask, route.server))
            route.last_headers = ask.headers
        found = ClientRequest(route.server, "POST", route.sender, route.headers, ask.query)
        found.body = body.replace(route.said, route.renamed, 1)
        message = Envelope(REQUEST, envelope.method, envelope.id, route.name, envelope.meta, found.body)
        message.trace = envelope.trace
        found.envelope, found.sent = message, ask.sent
        return found

    async def _not_opened(self, refused: NotOpened, message: Envelope) -> ClientResponse:
        """What the server said to ``initialize``, as the answer to the request that needed a session."""
        answer = refused.answer
        whole = ClientResponse(answer.status, answer.headers, refused.body)
        response = await response_of(whole, None, max(1, len(refused.body)))
        fields = [
            each for each in answer.headers if each[0].lower() not in ("content-length", "content-type")
        ]
        try:
            found = None if response is None else read_envelope(response)
        except (BadJson, BadRequest):
            found = None
        if response is None or not isinstance(found, Envelope) or b'"id"' not in response:
            return whole
        return ClientResponse(answer.status, [*fields, JSON], with_id(response, message.id_bytes))

    # --- what has no answer -----------------------------------------------------------------------------------

    async def _answer(self, ask: ClientRequest, session: MountSession, envelope: Envelope) -> ClientResponse:
        """A client's answer to a question goes to the server that asked it."""
        found = session.asked_by(envelope.id, self.servers)
        if found is None:
            # It answers nobody's question.
            return ClientResponse(202, [], b"")
        body = with_id(upward(found.server, envelope.body), found.id)
        return await self._told(ask, session, found.server, body)

    async def _notify(self, ask: ClientRequest, session: MountSession, envelope: Envelope) -> ClientResponse:
        method = envelope.method
        if method == "notifications/initialized":
            # Each session at a server hears of it when it is opened.
            return ClientResponse(202, [], b"")
        if method == PROGRESS:
            found = session.asked_by(named(parse(envelope.body), "progressToken"), self.servers)
            if found is None:
                return ClientResponse(202, [], b"")
            return await self._told(
                ask, session, found.server, about(envelope.body, "progressToken", found.id)
            )
        if method == CANCELLED:
            number = named(parse(envelope.body), "requestId")
            server = session.under_way.get(number) if isinstance(number, str | int | float) else None
            if server is not None:
                return await self._told(ask, session, server, envelope.body)
        # No two requests of a client have one id, so that nobody else feels meant.
        await self.sessions.tell_all(ask, session, envelope)
        return ClientResponse(202, [], b"")

    async def _told(
        self, ask: ClientRequest, session: MountSession, server: str, body: bytes
    ) -> ClientResponse:
        message = read_envelope(body)
        assert isinstance(message, Envelope)
        target = self.servers[server]
        if not await self.sessions.is_open(session, target):
            return ClientResponse(202, [], b"")
        return await self.relay.handle(message_to(ask, target, session.id_at(server), message))

    # --- streams ----------------------------------------------------------------------------------------------

    async def _listen(self, ask: ClientRequest) -> ClientResponse:
        """Open the one stream of a session, which carries those of its sessions at all servers."""
        session = await self.sessions.find(ask)
        uris = partial(self.lists.told_apart, ask, session)
        return await open_stream(
            self.relay,
            self.sessions,
            self.servers,
            ask,
            session,
            self.lists.changed,
            uris,
            self.lists.listeners,
        )


def _result(envelope: Envelope, value: Mapping[str, Any]) -> ClientResponse:
    body = b'{"jsonrpc":"2.0","id":' + envelope.id_bytes + b',"result":' + dump(value) + b"}"
    return ClientResponse(200, [JSON], body)


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
