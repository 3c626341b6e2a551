"""Reading the lists of servers for merged mounts: in sessions of the adapter's own, or in those of a client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import AdapterError, BadJson, SessionUnknown, UpstreamBroken
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges
from adapter.relay.http_api.callers import whole_body
from adapter.relay.mounts.asks import beside, end_of, in_own_name, message_to, own_ask
from adapter.relay.mounts.sessions import MountRequest, MountSessions, NotOpened
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import (
    INITIALIZE_PARAMS,
    INITIALIZED,
    initialize_result,
    read_result,
    rpc_request,
)
from adapter.relay.tools.catalogue_reader import LONGEST_LIST, PAGES
from adapter.rules.access.access_rules import ListShape, read_page
from adapter.rules.mounts.lists import ServerList
from adapter.rules.tools.lists import MOST_ITEMS, ListRefused
from adapter.upstream.port import header
from adapter.wire.envelope import Envelope, dump, read_envelope
from adapter.wire.outline import responds
from adapter.wire.spans import find
from adapter.wire.sse import SseReader


@dataclass(eq=False, slots=True)
class ListReader:
    """Reads lists of one server of a mount, whose clients have ``sessions``. ``instructions`` are those that the server
    gave when the adapter last opened a session of its own.
    """

    relay: Exchanges
    sessions: MountSessions
    server: Server
    instructions: str | None = field(default=None, init=False)
    _session: str | None = field(default=None, init=False)
    _opening: SingleFlight[None, str] = field(default_factory=SingleFlight, init=False)

    def __repr__(self) -> str:
        return f"<ListReader of {self.server.id!r}>"

    async def for_all(self, request: MountRequest, shape: ListShape) -> ServerList:
        """The list that all callers see, read in the era of ``request``. Raises AdapterError."""
        if request.is_modern:
            return await self._pages(
                shape, request, lambda body: in_own_name(self._asked(request, None, body))
            )
        ask, used = partial(beside, own_ask(self.server), self.server), await self._own_session()
        with suppress(SessionUnknown):
            return await self._pages(shape, None, partial(ask, used))
        # It has ended for want of use, or because the tools have changed. Another list may have a new one already.
        if self._session == used:
            self._session = None
        return await self._pages(shape, None, partial(ask, await self._own_session()))

    async def for_caller(self, request: MountRequest, shape: ListShape) -> ServerList:
        """The list that the caller sees, in its own session where there are any. Raises AdapterError."""
        try:
            session_id = await self.sessions.enter(request, self.server)
        except NotOpened as refused:
            raise UpstreamBroken(f"The server {self.server.id} opened no session.") from refused
        return await self._pages(shape, request, partial(self._asked, request, session_id))

    async def leave(self, within: float) -> None:
        """End the adapter's own session, at the server if that takes no longer than ``within`` seconds."""
        await self._opening.close()
        session_id, self._session = self._session, None
        if session_id is not None:
            with suppress(AdapterError):
                await (
                    await self.relay.end(end_of(own_ask(self.server), self.server, session_id), within)
                ).close()

    async def _pages(
        self, shape: ListShape, request: MountRequest | None, ask: Callable[[bytes], ClientRequest]
    ) -> ServerList:
        """All pages; ``ask`` gives the request with a body, which says of the client what its own ``request`` does."""
        entries: list[tuple[str, bytes]] = []
        cursor, size = None, 0
        # What a client says of itself is in each request of the modern era, which is refused without it.
        span = None if request is None else find(request.envelope.body, ("params", "_meta"))
        meta = [] if request is None or span is None else [b'"_meta":' + request.envelope.body[slice(*span)]]
        for _ in range(PAGES):
            # Several lists may be read at once in the client's session, and its own request follows.
            number = f"adapter-{secrets.token_hex(8)}"
            params = [*meta, *([] if cursor is None else [b'"cursor":' + dump(cursor)])]
            asked = dump(number), dump(shape.method), b",".join(params)
            own = ask(b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":{%b}}' % asked)
            response = await self._response(own, number)
            try:
                read = None if response is None else await in_turns(read_page(response, shape))
            except (BadJson, ListRefused) as refused:
                raise UpstreamBroken(
                    f"The list of the server {self.server.id} cannot be read: {refused}."
                ) from refused
            if response is None or read is None:
                raise UpstreamBroken(f"The server {self.server.id} answered {shape.method} without a list.")
            entries += read.entries
            size, cursor = size + len(response), read.cursor
            if cursor is None:
                return ServerList.of(self.server.id, entries)
            if size > LONGEST_LIST or len(entries) > MOST_ITEMS:
                break
        raise UpstreamBroken(
            f"The list of the server {self.server.id} does not end within {PAGES} pages, {LONGEST_LIST} bytes and "
            f"{MOST_ITEMS} entries."
        )

    def _asked(self, request: MountRequest, session_id: str | None, body: bytes) -> ClientRequest:
        """A message with this body, asked as the client asked at the mount."""
        envelope = read_envelope(body)
        assert isinstance(envelope, Envelope)
        return message_to(request.ask, self.server, session_id, envelope)

    async def _response(self, own: ClientRequest, number: str) -> bytes | None:
        return await response_of(await self.relay.handle(own), number, self.server.rules.answer_limit)

    async def _own_session(self) -> str:
        """The id of the adapter's own session: one for all lists that are read at once. Raises UpstreamBroken where
        none can be opened.
        """
        return self._session or await self._opening.get(None, self._open)

    async def _open(self) -> str:
        server, own = self.server, partial(beside, own_ask(self.server), self.server)
        message = dump(rpc_request("adapter", "initialize", INITIALIZE_PARAMS))
        answer = await self.relay.handle(own(None, message))
        session_id = header(answer.headers, "mcp-session-id")
        result = initialize_result(await response_of(answer, "adapter", server.rules.answer_limit))
        if session_id is None or result is None:
            raise UpstreamBroken(f"The server {server.id} opened no session.")
        said = read_result(result).get("instructions")
        self.instructions = said if isinstance(said, str) else None
        await (await self.relay.handle(own(session_id, INITIALIZED))).close()
        self._session = session_id
        return session_id


async def response_of(answer: ClientResponse, number: str | int | float | None, limit: int) -> bytes | None:
    """The response to that request in an answer, which is read to its end; None where there is none."""
    try:
        body = await whole_body(answer, limit)
    finally:
        await answer.close()
    if media_type(answer.headers) != EVENT_STREAM:
        texts = [body]
    else:
        texts = [event.data or b"" for event in SseReader(max(1, len(body))).feed(body)]
    for text in texts:
        is_it: bool = await in_turns(responds(text, number))
        if is_it:
            return text
    return None
