"""The entrance of a merged mount: each request goes to the relay of the server that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.errors import BadRequest, SessionMissing, SessionUnknown
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Exchanges
from adapter.relay.mounts.code_mode import MountCodeMode
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.requests import BY_URI, LISTS_OF, MemberRequests
from adapter.relay.mounts.sessions import MountSession, MountSessions
from adapter.relay.mounts.streams import open_stream
from adapter.relay.mounts.subscriptions import open_subscription, wanted_of
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.eras.modern_results import SERVER_INFO_KEY
from adapter.rules.mounts.lists import KINDS
from adapter.rules.mounts.member_ids import member_of
from adapter.rules.mounts.own_answers import (
    CAPABILITIES,
    UNSUPPORTED_VERSION,
    joined_instructions,
    refusal_of,
)
from adapter.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Batch,
    Envelope,
    Kind,
    dump,
    error_response,
    parse,
)
from adapter.wire.eras import LEGACY, LEGACY_VERSIONS, MODERN, MODERN_VERSIONS
from adapter.wire.shared_ids import named
from adapter.wire.spans import Replace, edit

SET_LEVEL = "logging/setLevel"

_FORWARDED = ("resources/read", "tasks/", "completion/")
"""Requests that a server judges."""

_MODERN_STATUS = {INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404, UNSUPPORTED_VERSION: 400}
"""A modern client reads from the status whether the request was understood."""

_DISCOVERED = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "supportedVersions": list(MODERN_VERSIONS),
}
_UNKNOWN = {"tools/call": "Unknown tool", "prompts/get": "Unknown prompt"}


@dataclass(eq=False, slots=True)
class MergedMount:
    """Several servers at one address. ``mount`` is its own light server; ``info`` is how it calls itself.

    ``serves_missing``: requests without a session are served, as ``sessions.missing_id`` says. ``code_mode`` is that of
    the mount, None where it shows all tools.
    """

    relay: Exchanges
    mount: Server
    servers: Mapping[str, Server]
    sessions: MountSessions
    lists: MountLists
    info: Mapping[str, Any]
    serves_missing: bool = False
    code_mode: MountCodeMode | None = field(default=None, init=False)
    _requests: MemberRequests = field(init=False)

    def __post_init__(self) -> None:
        self._requests = MemberRequests(self.relay, self.sessions, self.lists, self.servers)

    def __repr__(self) -> str:
        return f"<MergedMount {self.mount.id!r} of {list(self.servers)}>"

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay."""
        envelope, is_legacy = ask.envelope, ask.sender.era is LEGACY
        session = self.sessions.at_hand(ask.sender) if is_legacy and self.code_mode is None else None
        if session is not None and type(envelope) is Envelope:
            route = session.routes.get((envelope.method, envelope.name))
            own = None
            if route is not None and route.table in (None, self.lists.tables.get(LISTS_OF[envelope.method])):
                own = route.request(ask, envelope)
            if own is not None:
                try:
                    return await self._requests.answered(ask, session, own)
                except SessionUnknown:
                    if not await self._requests.is_gone(session, own.server):
                        raise
        if ask.method == "DELETE" and is_legacy:
            return await self.sessions.end(ask)
        if ask.method != "POST":
            session = await self.sessions.find(ask)
            return await open_stream(self.relay, self.sessions, self.lists, self.servers, ask, session)
        if isinstance(envelope, Batch):
            raise BadRequest("A merged mount takes no JSON-RPC batches: send each message by itself.")
        assert envelope is not None
        if envelope.doubt is not None:
            # It decides which server gets the message, which may be read otherwise there.
            raise BadRequest(envelope.doubt)
        if is_legacy and envelope.method == "initialize" and envelope.kind is Kind.REQUEST:
            return await self._initialize(ask, envelope)
        session = None
        if is_legacy and ask.sender.session_id is not None:
            session = await self.sessions.find(ask)
        elif is_legacy and not self.serves_missing and all(map(_issues_ids, self.servers.values())):
            raise SessionMissing()
        if envelope.kind is not Kind.REQUEST:
            if session is None:
                return ClientResponse(202, [], b"")
            return await self._requests.pass_on(ask, session, envelope)
        if session is None:
            return await self._request(ask, None, envelope)
        with session.holding(envelope.id):
            return await self._request(ask, session, envelope)

    async def leave(self, within: float) -> None:
        """End what the mount itself does, at servers as far as that takes no longer than ``within`` seconds."""
        await self.sessions.leave()
        await self.lists.leave(within)

    async def end(self, ask: ClientRequest, within: float) -> ClientResponse:  # noqa: ARG002 (servers have their own)
        """See Relay."""
        return await self.sessions.end(ask)

    async def _initialize(self, ask: ClientRequest, envelope: Envelope) -> ClientResponse:
        wanted = named(parse(envelope.body), "protocolVersion")
        version = wanted if wanted in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        assert isinstance(version, str)
        session_id = await self.sessions.create(ask, envelope, version)
        answer = _result(envelope, self._introduced(protocolVersion=version, serverInfo=self.info))
        answer.headers = [JSON, ("Mcp-Session-Id", session_id)]
        return answer

    def _introduced(self, **members: Any) -> dict[str, Any]:
        """The result of ``initialize`` or ``server/discover`` with these members."""
        joined = joined_instructions(self.lists.instructions())
        instructions = {} if joined is None else {"instructions": joined}
        return {**members, "capabilities": CAPABILITIES, **instructions}

    # --- requests ---------------------------------------------------------------------------------------------

    async def _request(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        method = envelope.method
        if method in LISTS_OF and (self.code_mode is None or method != "tools/call"):
            return await self._by_name(ask, session, envelope)
        if ask.sender.era is MODERN and not method.startswith(_FORWARDED):
            refusal = refusal_of(envelope.body)
            if refusal is not None:
                return _refused(ask, envelope, *refusal)
        if self.code_mode is not None and method in ("tools/call", "tools/list"):
            own = await self.code_mode.answer(ask, session)
            if isinstance(own, bytes):
                return ClientResponse(200, [JSON], own)
            assert isinstance(own.envelope, Envelope)
            return await self._by_name(own, session, own.envelope)
        if method in KINDS:
            return ClientResponse(200, [JSON], await self.lists.merged(ask, session, method))
        if method == "resources/read" or (method in BY_URI and ask.sender.era is LEGACY):
            owner = await self.lists.owner_of_uri(ask, session, envelope.name or "")
            if owner is None:
                return _refused(ask, envelope, RESOURCE_NOT_FOUND, "Resource not found")
            return await self._requests.send_to(ask, session, owner, envelope, "uri")
        if method.startswith("tasks/") and method != "tasks/list":
            return await self._about_task(ask, session, envelope)
        if method == "completion/complete":
            return await self._complete(ask, session, envelope)
        if method == "ping" and ask.sender.era is LEGACY:
            return _result(envelope, {})
        if method == SET_LEVEL and session is not None:
            await self.sessions.remember(session, envelope.body)
            await self.sessions.tell_all(ask, session, envelope.body)
            return _result(envelope, {})
        if method == "server/discover" and ask.sender.era is MODERN:
            return _result(envelope, self._introduced(**_DISCOVERED, _meta={SERVER_INFO_KEY: self.info}))
        if method == LISTEN and ask.sender.era is MODERN:
            return await self._subscribe(ask, envelope)
        return _refused(ask, envelope, METHOD_NOT_FOUND, f"Method not found: {method[:128]}")

    async def _by_name(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        name, method = envelope.name, envelope.method
        owner = None if name is None else await self.lists.owner(ask, session, LISTS_OF[method], name)
        if owner is None:
            return _refused(ask, envelope, INVALID_PARAMS, f"{_UNKNOWN[method]}: {name or ''}")
        return await self._requests.send_to(ask, session, owner, envelope, "name")

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
            return _refused(ask, envelope, INVALID_PARAMS, "No server knows what is to be completed.")
        change = Replace(("params", "ref", member), dump(owner.name))
        message = envelope.with_body(edit(envelope.body, [change]))
        return await self._requests.send(ask, session, owner.server, message)

    async def _about_task(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientResponse:
        found = member_of(named(parse(envelope.body), "taskId"), self.servers)
        if found is None:
            return _refused(ask, envelope, INVALID_PARAMS, "Unknown task")
        return await self._requests.send(ask, session, found[0], envelope)

    async def _subscribe(self, ask: ClientRequest, envelope: Envelope) -> ClientResponse:
        try:
            wanted = wanted_of(envelope)
        except ValueError as error:
            return _refused(ask, envelope, INVALID_PARAMS, str(error))
        return await open_subscription(self.relay, self.lists, self.servers, ask, wanted)


def _issues_ids(server: Server) -> bool:
    """Tell whether a server may need a session for each request."""
    return server.issues_ids is not False


def _result(envelope: Envelope, value: Mapping[str, Any]) -> ClientResponse:
    """The answer to a request, with that result."""
    body = b'{"jsonrpc":"2.0","id":' + envelope.id_bytes + b',"result":' + dump(value) + b"}"
    return ClientResponse(200, [JSON], body)


def _refused(
    ask: ClientRequest, envelope: Envelope, code: int, why: str, data: Mapping[str, Any] | None = None
) -> ClientResponse:
    """The answer to a request, with that error."""
    status = _MODERN_STATUS.get(code, 200) if ask.sender.era is MODERN else 200
    return ClientResponse(status, [JSON], error_response(envelope.id_bytes, code, why, data))
