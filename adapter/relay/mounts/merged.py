"""The entrance of a merged mount: each request goes to the relay of the server that it is about, which judges it.

What a mount says itself: to ``initialize`` and ``server/discover``, and to requests of the modern era that do not say
what they have to of their client (MCP 2026-07-28, "_meta" and "Versioning"). In code mode it has three tools, to
search, to describe and to call those of all its servers.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from adapter.errors import BadRequest, SessionMissing, ToolUnknown
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Exchanges, forwardable
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.requests import LISTS_OF, MemberRequests, is_routed
from adapter.relay.mounts.sessions import MountRequest, MountSessions
from adapter.relay.mounts.streams import MountStreams
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.relay.tools.catalogue_reader import Offered
from adapter.relay.tools.code_mode import KEPT, CodeModeTools, headers_of, without_mirrors
from adapter.rules.eras.legacy_server import CAPABILITIES_KEY, SERVER_INFO_KEY
from adapter.rules.last_used import LastUsed
from adapter.rules.mounts.lists import KINDS, MISSING, TOOLS, MergedList, stored_entries
from adapter.rules.results.tool_results import rpc_result, tool_result
from adapter.rules.text.unicode import shown
from adapter.rules.tools.code_mode import CodeModeNames, UnusableCall
from adapter.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Envelope,
    Kind,
    dump,
    error_response,
    parse,
    value_at,
)
from adapter.wire.eras import LEGACY, LEGACY_VERSIONS, MODERN_VERSIONS
from adapter.wire.names import VERSION_KEY
from adapter.wire.rpc_refusals import RpcRefused, require_version, status_of
from adapter.wire.shared_ids import named
from adapter.wire.spans import Insert, edit


class MountCodeMode:
    """The three tools of one mount, over its ``lists``."""

    def __init__(self, names: CodeModeNames, lists: MountLists) -> None:
        self._tools = CodeModeTools(names)
        self._lists = lists
        self._offers = SingleFlight[bytes, Offered](LastUsed(KEPT))

    async def answer(self, request: MountRequest) -> bytes | ClientRequest:
        """The response to a request for the list or to a call, or the call that it stands for.

        Raises ToolUnknown for a tool that is called by its name.
        """
        envelope, names, modern = request.envelope, self._tools.names, request.is_modern
        if envelope.method == TOOLS.method:
            return self._tools.page(envelope, modern=modern)
        if envelope.name not in self._tools.own:
            raise ToolUnknown(names.hint)
        missing: dict[str, str] = {}

        async def read() -> Offered:
            held = await self._lists.now(TOOLS, request)
            missing.update(held.missing)
            found = held.found
            return await self._offers.get(found.digest, lambda: _offered(found))

        if envelope.name == names.call:
            try:
                inner = self._tools.unfolded(envelope)
                if inner.name in self._tools.own:
                    raise UnusableCall(f"{shown(inner.name or '', 100)} is called by its own name.")
            except UnusableCall as error:
                return tool_result(envelope.id_bytes, str(error), None, modern=modern, is_error=True)
            headers = without_mirrors(forwardable(request.ask.headers, drop=frozenset({"content-encoding"})))
            if modern:
                headers = headers_of(inner, (await read()).definitions.get(inner.name or ""), headers)
            return request.ask.with_message(inner, inner.body, headers)
        response = await self._tools.answer(envelope, read, modern=modern)
        if not missing or envelope.name != names.search:
            return response
        return edit(response, [Insert(("result", "_meta"), dump({MISSING: missing}))])


async def _offered(found: MergedList) -> Offered:
    tools: dict[str, bytes] = {}
    for page in found.pages:
        tools |= await in_turns(stored_entries(page, TOOLS))
    return Offered(found.digest.hex(), tools, tools.keys())


SET_LEVEL = "logging/setLevel"

LONGEST_INSTRUCTIONS: Final = 16 << 10
"""Characters of the instructions of one server that are joined with the others'."""

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
"""Of every mount, before any server has been asked: what a server lacks is empty."""

_DISCOVERED = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "supportedVersions": list(MODERN_VERSIONS),
}


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
    _streams: MountStreams = field(init=False)

    def __post_init__(self) -> None:
        self._requests = MemberRequests(self.relay, self.sessions, self.lists, self.servers)
        self._streams = MountStreams(self.relay, self.sessions, self.lists, self.servers)

    def __repr__(self) -> str:
        return f"<MergedMount {self.mount.id!r} of {list(self.servers)}>"

    def handle(self, ask: ClientRequest) -> Coroutine[Any, Any, ClientResponse]:
        """See Relay. What has been asked before goes the way that it went."""
        envelope = ask.envelope
        if type(envelope) is Envelope and self.code_mode is None:
            session = self.sessions.at_hand(ask.sender)
            route = None if session is None else session.routes.get((envelope.method, envelope.name))
            if route is not None:
                table = route.table
                if table is None or table is self.lists.tables.get(LISTS_OF[envelope.method]):
                    own = route.request(ask, envelope)
                    if own is not None:
                        anew = partial(self._handle, ask)
                        return self._requests.answered(ask, session, own, envelope.id, anew)
        return self._handle(ask)

    async def _handle(self, ask: ClientRequest) -> ClientResponse:
        envelope, is_legacy = ask.envelope, ask.sender.era is LEGACY
        if ask.method == "DELETE" and is_legacy:
            return await self.sessions.end(ask)
        if ask.method != "POST":
            return await self._streams.open(ask, await self.sessions.find(ask))
        if not isinstance(envelope, Envelope):
            raise BadRequest("A merged mount takes no JSON-RPC batches: send each message by itself.")
        if envelope.doubt is not None:
            # It decides which server gets the message, which may be read otherwise there.
            raise BadRequest(envelope.doubt)
        if is_legacy and envelope.method == "initialize" and envelope.kind is Kind.REQUEST:
            return await self._initialize(ask, envelope)
        session = None
        if is_legacy and ask.sender.session_id is not None:
            session = await self.sessions.find(ask)
        elif (
            is_legacy
            and not self.serves_missing
            and not any(each.issues_ids is False for each in self.servers.values())
        ):
            raise SessionMissing()
        request = MountRequest(ask, session)
        if envelope.kind is not Kind.REQUEST:
            return await self._requests.pass_on(request)
        with nullcontext() if session is None else session.holding(envelope.id):
            try:
                return await self._answer(request)
            except RpcRefused as why:
                body = error_response(envelope.id_bytes, why.code, str(why), why.data)
                return ClientResponse(status_of(why.code, ask.sender.era), [JSON], body)

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
        body = rpc_result(envelope.id_bytes, self._introduced(protocolVersion=version, serverInfo=self.info))
        return ClientResponse(200, [JSON, ("Mcp-Session-Id", session_id)], body)

    def _introduced(self, **members: Any) -> dict[str, Any]:
        """The result of ``initialize`` or ``server/discover`` with these members."""
        joined = joined_instructions(self.lists.instructions())
        instructions = {} if joined is None else {"instructions": joined}
        return {**members, "capabilities": CAPABILITIES, **instructions}

    # --- requests ---------------------------------------------------------------------------------------------

    async def _answer(self, request: MountRequest) -> ClientResponse:
        """The answer to a request. Raises RpcRefused, and what the relay raises."""
        method = request.envelope.method
        is_folded = self.code_mode is not None and method in ("tools/call", "tools/list")
        if is_routed(request) and not is_folded:
            return await self._requests.route(request)
        if request.is_modern:
            require_meta(request.envelope.body)
        if self.code_mode is not None and is_folded:
            own = await self.code_mode.answer(request)
            if isinstance(own, ClientRequest):
                return await self._requests.route(request._replace(ask=own))
            return ClientResponse(200, [JSON], own)
        if method in KINDS:
            return ClientResponse(200, [JSON], await self.lists.merged(request))
        if method == LISTEN and request.is_modern:
            return await self._streams.subscribe(request)
        return ClientResponse(
            200, [JSON], rpc_result(request.envelope.id_bytes, await self._own_result(request))
        )

    async def _own_result(self, request: MountRequest) -> dict[str, Any]:
        """What the mount itself answers. Raises RpcRefused for a method that it does not know."""
        ask, session = request
        method, body = request.envelope.method, request.envelope.body
        if request.is_modern and method == "server/discover":
            return self._introduced(**_DISCOVERED, _meta={SERVER_INFO_KEY: self.info})
        if session is not None and method == SET_LEVEL:
            await self.sessions.remember(session, body)
            await self.sessions.tell_all(ask, session, body)
        elif request.is_modern or method != "ping":
            raise RpcRefused(METHOD_NOT_FOUND, f"Method not found: {method[:128]}")
        return {}


def joined_instructions(servers: Iterable[tuple[str, str | None]]) -> str | None:
    """The instructions of all servers, each under the name of its server; None where there are none."""
    parts = []
    for server, text in servers:
        if text is not None and (text := text.strip()):
            cut = text if len(text) <= LONGEST_INSTRUCTIONS else text[: LONGEST_INSTRUCTIONS - 1] + "…"
            parts.append(f"# {server}\n\n{cut}")
    return "\n\n".join(parts) or None


def require_meta(body: bytes) -> None:
    """Raise RpcRefused for a request with this body that does not say what it has to."""
    meta = value_at(parse(body), "params", "_meta")
    meta = meta if isinstance(meta, dict) else {}
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcRefused(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    require_version(meta[VERSION_KEY])
