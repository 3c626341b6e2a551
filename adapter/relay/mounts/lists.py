"""The lists of a merged mount: those of its servers, one behind the other, under the names that clients see.

A list opens no session of the client: it comes from the adapter's own session at the server, unless the server may say
other things to each caller.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from adapter.errors import AdapterError, BadJson, SessionUnknown, UpstreamBroken
from adapter.relay.background import SingleFlight
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges
from adapter.relay.http_api.callers import whole_body
from adapter.relay.mounts.asks import message_to, own_end, own_message
from adapter.relay.mounts.sessions import MountSession, MountSessions, NotOpened
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import INITIALIZE_PARAMS, INITIALIZED, rpc_request
from adapter.rules.access.principals import Caller
from adapter.rules.mounts.names import NameTable, NamingRules, Owner, ServerNames
from adapter.upstream.port import header
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope, dump, envelope_of, parse, response_in
from adapter.wire.eras import MODERN, Era
from adapter.wire.spans import Drop, Insert, Replace, edit, find, items
from adapter.wire.sse import SseReader

PAGES = 100
"""Pages of one server's list that are read."""

FRESH = 5.0
"""Seconds for which a list is taken to be as it was, unless its server says that it has changed."""

MISSING = "mcp-file-adapter/missing"
"""The member of a result's ``_meta`` that names the servers whose list is missing."""

_NOBODY = ""
"""The principal of the adapter's own sessions, which no caller has."""

KEYS: Mapping[str, str] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""The methods that answer with merged lists, and where in their result those stand."""

NAMED = ("tools/list", "prompts/list")
"""Those whose definitions get names of the mount's own."""


class ListedItem(NamedTuple):
    """A definition as its server wrote it; ``key`` is its name or URI."""

    key: str
    raw: bytes


Items = Sequence[ListedItem]


@dataclass(slots=True)
class KeptList:
    """The list of one server; ``until`` is the moment at which it is asked for again."""

    items: Items
    until: float


@dataclass(eq=False)
class MemberLists:
    """Reads and keeps the lists of all servers of one mount. ``now`` gives seconds that never go back.

    ``tools`` and ``prompts`` say how the mount names these.
    """

    relay: Exchanges
    sessions: MountSessions
    servers: Mapping[str, Server]
    tools: NamingRules
    prompts: NamingRules
    patience: float
    now: Callable[[], float]
    _kept: dict[tuple[str, str], KeptList] = field(default_factory=dict, init=False)
    _own: dict[str, str] = field(default_factory=dict, init=False)
    _reading: SingleFlight[tuple[str, str, Era], Items] = field(
        default_factory=SingleFlight[tuple[str, str, Era], Items], init=False
    )
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    _tables: dict[str, NameTable] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<MemberLists of {list(self.servers)}: {len(self._kept)} kept>"

    def changed(self, server: str) -> None:
        """Ask for the lists of a server again before they are used next: it said that one of them has changed."""
        for (of, _), kept in self._kept.items():
            if of == server:
                kept.until = 0.0

    async def leave(self, within: float) -> None:
        """End the adapter's own sessions, at servers as far as that takes no longer than ``within`` seconds."""
        own, self._own = self._own, {}
        await self._reading.close()
        ends = [self._end(self.servers[server], session_id, within) for server, session_id in own.items()]
        await asyncio.gather(*ends)

    async def _end(self, server: Server, session_id: str, within: float) -> None:
        with suppress(AdapterError):
            await (await self.relay.end(own_end(server, _NOBODY, session_id), within)).close()

    # --- owners -----------------------------------------------------------------------------------------------

    async def owner(
        self, ask: ClientRequest, session: MountSession | None, method: str, shown: str
    ) -> Owner | None:
        """The owner of a name that a client uses; ``method`` is that of the list in which it stands."""
        rules = self._rules(method)
        if len(self.servers) > 1 and (not rules.prefixed or self._table(method).owner(shown) is None):
            # Who owns a bare name only the lists tell.
            await self.all(ask, session, method)
        return self._table(method).owner(shown)

    async def owner_of_uri(self, ask: ClientRequest, session: MountSession | None, uri: str) -> str | None:
        """The id of the server that lists a resource; the only one for what is in no list."""
        if len(self.servers) == 1:
            return next(iter(self.servers))
        if (found := self._lister(uri)) is None:
            await self.all(ask, session, "resources/list")
            found = self._lister(uri)
        return found

    def _lister(self, uri: str) -> str | None:
        for server in self.servers:
            kept = self._kept.get((server, "resources/list"))
            if kept is not None and any(each.key == uri for each in kept.items):
                return server
        return None

    def _rules(self, method: str) -> NamingRules:
        return self.tools if method == "tools/list" else self.prompts

    def _table(self, method: str) -> NameTable:
        table = self._tables.get(method)
        if table is None:
            rules = self._rules(method)
            names = []
            for server in self.servers.values():
                kept = self._kept.get((server.id, method))
                stages = server.stages
                own = stages.named_tools - stages.upstream_tools if method == "tools/list" else frozenset()
                listed = [each.key for each in kept.items] if kept is not None else []
                names.append(ServerNames.of(rules, server.id, listed, own))
            table = self._tables[method] = NameTable(rules, names)
        return table

    # --- lists ------------------------------------------------------------------------------------------------

    async def merged(self, ask: ClientRequest, session: MountSession | None, method: str) -> bytes:
        """The response to a client's request for a list."""
        found, missing = await self.all(ask, session, method)
        texts: list[bytes] = []
        for server, listed in found:
            texts += self._shown(server, method, listed)
        meta: dict[str, Any] = {}
        if missing:
            meta[MISSING] = missing
        members = [b'"%b":[%b]' % (KEYS[method].encode(), b",".join(texts))]
        if ask.sender.era is MODERN:
            members.append(b'"resultType":"complete","ttlMs":0,"cacheScope":"private"')
        if meta:
            members.append(b'"_meta":' + dump(meta))
        assert isinstance(ask.envelope, Envelope)
        return b'{"jsonrpc":"2.0","id":%b,"result":{%b}}' % (ask.envelope.id_bytes, b",".join(members))

    def _shown(self, server: str, method: str, listed: Items) -> list[bytes]:
        if method not in NAMED:
            return [each.raw for each in listed]
        table, texts = self._table(method), []
        for each in listed:
            shown = table.shown(server, each.key)
            if shown is not None:
                same = shown == each.key
                texts.append(each.raw if same else edit(each.raw, [Replace(("name",), dump(shown))]))
        return texts

    async def all(
        self, ask: ClientRequest, session: MountSession | None, method: str
    ) -> tuple[list[tuple[str, Items]], list[str]]:
        """The lists of all servers in their order, and the ids of those that did not answer in time."""
        reads = {
            server.id: asyncio.ensure_future(self._list(ask, session, server, method))
            for server in self.servers.values()
        }
        await asyncio.wait(reads.values(), timeout=self.patience)
        found: list[tuple[str, Items]] = []
        missing = []
        for server, reading in reads.items():
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                found.append((server, reading.result()))
                continue
            if not reading.done():
                # It goes on, and is there for the next list.
                reading.add_done_callback(_looked_at)
            missing.append(server)
            if (kept := self._kept.get((server, method))) is not None and not self._varies(server):
                found.append((server, kept.items))
        return found, missing

    def _varies(self, server: str) -> bool:
        """Tell whether a server may say other things to each caller."""
        found = self.servers[server]
        return found.apart or found.stages.access is not None

    async def _list(
        self, ask: ClientRequest, session: MountSession | None, server: Server, method: str
    ) -> Items:
        """The list of one server. Raises what the relay raises, and UpstreamBroken for no list."""
        if self._varies(server.id):
            listed = await self._of_caller(ask, session, server, method)
            self._keep(server.id, method, listed, 0.0)
            return listed
        kept = self._kept.get((server.id, method))
        if kept is not None and self.now() < kept.until:
            return kept.items
        reading = partial(self._read_own, ask, server, method)
        return await self._reading.get((server.id, method, ask.sender.era), reading)

    async def _read_own(self, ask: ClientRequest, server: Server, method: str) -> Items:
        began = self.now()
        if ask.sender.era is MODERN:
            listed = await self._pages(method, partial(self._modern, ask, server))
        else:
            listed = await self._in_own_session(server, method)
        self._keep(server.id, method, listed, began + FRESH)
        return listed

    def _keep(self, server: str, method: str, listed: Items, until: float) -> None:
        before = self._kept.get((server, method))
        self._kept[server, method] = KeptList(listed, until)
        if before is None or [each.key for each in before.items] != [each.key for each in listed]:
            self._tables.pop(method, None)

    # --- reading ----------------------------------------------------------------------------------------------

    async def _of_caller(
        self, ask: ClientRequest, session: MountSession | None, server: Server, method: str
    ) -> Items:
        session_id = None
        if session is not None:
            try:
                session_id = await self.sessions.enter(ask, session, server)
            except NotOpened as refused:
                raise UpstreamBroken(f"The server {server.id} opened no session.") from refused

        async def send(body: bytes) -> ClientResponse:
            return await self.relay.handle(message_to(ask, server, session_id, _envelope(body)))

        return await self._pages(method, partial(_client_page, ask, send))

    async def _modern(self, ask: ClientRequest, server: Server, cursor: str | None) -> bytes | None:
        async def send(body: bytes) -> ClientResponse:
            own = message_to(ask, server, None, _envelope(body))
            own.sender = own.sender._replace(principal=_NOBODY, caller=Caller(_NOBODY), party="")
            return await self.relay.handle(own)

        return await _client_page(ask, send, cursor)

    async def _in_own_session(self, server: Server, method: str) -> Items:
        with suppress(SessionUnknown):
            return await self._pages(
                method, partial(self._own_page, server, await self._entered(server), method)
            )
        # It has ended for want of use, or because the tools have changed.
        self._own.pop(server.id, None)
        return await self._pages(method, partial(self._own_page, server, await self._entered(server), method))

    async def _entered(self, server: Server) -> str:
        """The id of the adapter's own session at a server. Raises UpstreamBroken where none can be opened."""
        if (known := self._own.get(server.id)) is not None:
            return known
        message = rpc_request(0, "initialize", INITIALIZE_PARAMS)
        answer = await self.relay.handle(own_message(server, _NOBODY, None, _envelope(dump(message))))
        await answer.close()
        session_id = header(answer.headers, "mcp-session-id")
        if session_id is None:
            raise UpstreamBroken(f"The server {server.id} opened no session.")
        self._own[server.id] = session_id
        await (
            await self.relay.handle(own_message(server, _NOBODY, session_id, _envelope(INITIALIZED)))
        ).close()
        return session_id

    async def _own_page(
        self, server: Server, session_id: str, method: str, cursor: str | None
    ) -> bytes | None:
        number = next(self._numbers)
        params = {} if cursor is None else {"cursor": cursor}
        body = dump(rpc_request(number, method, params))
        answer = await self.relay.handle(own_message(server, _NOBODY, session_id, _envelope(body)))
        return await response_of(answer, number, server.rules.answer_limit)

    async def _pages(self, method: str, page: Callable[[str | None], Awaitable[bytes | None]]) -> Items:
        listed: list[ListedItem] = []
        cursor = None
        for _ in range(PAGES):
            response = await page(cursor)
            cursor = _read_page(response, method, listed)
            if cursor is None:
                return listed
        raise UpstreamBroken(f"The upstream server's list does not end within {PAGES} pages.")


def _looked_at(reading: asyncio.Future[Items]) -> None:
    """A failure that is never looked at would be logged."""
    if not reading.cancelled():
        reading.exception()


def _envelope(body: bytes) -> Envelope:
    envelope = envelope_of(parse(body), body)
    assert isinstance(envelope, Envelope)
    return envelope


async def _client_page(
    ask: ClientRequest, send: Callable[[bytes], Awaitable[ClientResponse]], cursor: str | None
) -> bytes | None:
    """A page of a list, asked for with the client's own request."""
    assert isinstance(ask.envelope, Envelope)
    body = ask.envelope.body
    change = Drop(("params", "cursor")) if cursor is None else Insert(("params", "cursor"), dump(cursor))
    if b"cursor" in body or b"\\u" in body or cursor is not None:
        body = edit(body, [change])
    answer = await send(body)
    return await response_of(answer, ask.envelope.id, ask.server.rules.answer_limit)


async def response_of(answer: ClientResponse, number: str | int | float | None, limit: int) -> bytes | None:
    """The response to that request in an answer, which is read to its end; None where there is none."""
    try:
        body = await whole_body(answer, limit)
    finally:
        await answer.close()
    if media_type(answer.headers) != EVENT_STREAM:
        return body if response_in(body, number) is not None else None
    for event in SseReader(max(1, len(body))).feed(body):
        if event.data and response_in(event.data, number) is not None:
            return event.data
    return None


def _read_page(response: bytes | None, method: str, listed: list[ListedItem]) -> str | None:
    """Add the definitions of a page, and return the cursor of the next one. Raises UpstreamBroken for no list."""
    if response is None:
        raise UpstreamBroken("The upstream server gave no list.")
    try:
        read = parse(response)
    except BadJson as error:
        raise UpstreamBroken("The upstream server's list is not valid JSON.") from error
    refused = read.get("error")
    if isinstance(refused, dict) and refused.get("code") == METHOD_NOT_FOUND:
        return None
    result, key = read.get("result"), KEYS[method]
    values = result.get(key) if isinstance(result, dict) else None
    span = find(response, ("result", key))
    if not isinstance(values, list) or span is None:
        raise UpstreamBroken("The upstream server gave no list.")
    name = "name" if method in NAMED else "uri"
    for value, (start, end) in zip(values, items(response, span[0]), strict=True):
        if isinstance(value, dict):
            found = value.get(name, value.get("uriTemplate"))
            if isinstance(found, str):
                listed.append(ListedItem(found, response[start:end]))
    cursor = result.get("nextCursor")
    return cursor if isinstance(cursor, str) else None
