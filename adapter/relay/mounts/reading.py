"""Reading the lists of servers for merged mounts: in sessions of the adapter's own, or in those of a client."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import AdapterError, BadJson, SessionUnknown, UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges
from adapter.relay.http_api.callers import whole_body
from adapter.relay.mounts.asks import in_own_name, message_to, own_end, own_message
from adapter.relay.mounts.sessions import MountSession, MountSessions, NotOpened
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
from adapter.rules.access.visible_lists import ListShape
from adapter.rules.mounts.lists import ServerList, read_page
from adapter.rules.tools.lists import MOST_ITEMS, ListRefused
from adapter.upstream.port import header
from adapter.wire.envelope import Envelope, dump, read_envelope
from adapter.wire.eras import MODERN
from adapter.wire.outline import responds
from adapter.wire.spans import Drop, Insert, edit, find
from adapter.wire.sse import SseReader

Page = Callable[[str | None], Awaitable[bytes | None]]
"""Gives the response with the page of that cursor; None where the server gave no response."""


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
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def __repr__(self) -> str:
        return f"<ListReader of {self.server.id!r}>"

    async def for_all(self, ask: ClientRequest, shape: ListShape) -> ServerList:
        """The list that all callers see, read in the era of ``ask``. Raises AdapterError."""
        if ask.sender.era is MODERN:
            return await self._pages(shape, partial(self._asked_page, ask, shape, None, is_own=True))
        with suppress(SessionUnknown):
            return await self._pages(shape, partial(self._own_page, await self._entered(), shape))
        # It has ended for want of use, or because the tools have changed.
        self._session = None
        return await self._pages(shape, partial(self._own_page, await self._entered(), shape))

    async def for_caller(
        self, ask: ClientRequest, session: MountSession | None, shape: ListShape
    ) -> ServerList:
        """The list that the caller of ``ask`` sees, in its own session where there are any. Raises AdapterError."""
        session_id = None
        if session is not None:
            try:
                session_id = await self.sessions.enter(ask, session, self.server)
            except NotOpened as refused:
                raise UpstreamBroken(f"The server {self.server.id} opened no session.") from refused
        return await self._pages(shape, partial(self._asked_page, ask, shape, session_id, is_own=False))

    async def leave(self, within: float) -> None:
        """End the adapter's own session, at the server if that takes no longer than ``within`` seconds."""
        session_id, self._session = self._session, None
        if session_id is not None:
            with suppress(AdapterError):
                await (await self.relay.end(own_end(self.server, session_id), within)).close()

    # --- pages ------------------------------------------------------------------------------------------------

    async def _pages(self, shape: ListShape, page: Page) -> ServerList:
        entries: list[tuple[str, bytes]] = []
        cursor, size = None, 0
        for _ in range(PAGES):
            response = await page(cursor)
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

    async def _asked_page(
        self,
        ask: ClientRequest,
        shape: ListShape,
        session_id: str | None,
        cursor: str | None,
        *,
        is_own: bool,
    ) -> bytes | None:
        """A page, asked for as the client asked at the mount, with what it says of itself; ``is_own``: in the adapter's
        name.
        """
        assert isinstance(ask.envelope, Envelope)
        body, number = ask.envelope.body, ask.envelope.id
        if ask.envelope.method != shape.method:
            # Several lists may be read at once in the client's session, and its own request follows.
            number = f"adapter-{secrets.token_hex(8)}"
            # What a client says of itself is in each request of the modern era, which is refused without it.
            span = find(body, ("params", "_meta"))
            meta = b"{}" if span is None else body[slice(*span)]
            asked = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":{"_meta":%b}}'
            body = asked % (dump(number), dump(shape.method), meta)
        elif cursor is None:
            body = edit(body, [Drop(("params", "cursor"))])
        if cursor is not None:
            body = edit(body, [Insert(("params", "cursor"), dump(cursor))])
        envelope = read_envelope(body)
        assert isinstance(envelope, Envelope)
        own = message_to(ask, self.server, session_id, envelope)
        if is_own:
            in_own_name(own)
        return await self._response(own)

    async def _own_page(self, session_id: str, shape: ListShape, cursor: str | None) -> bytes | None:
        params = {} if cursor is None else {"cursor": cursor}
        body = dump(rpc_request(next(self._numbers), shape.method, params))
        return await self._response(own_message(self.server, session_id, body))

    async def _response(self, own: ClientRequest) -> bytes | None:
        assert isinstance(own.envelope, Envelope)
        number, limit = own.envelope.id, self.server.rules.answer_limit
        return await response_of(await self.relay.handle(own), number, limit)

    async def _entered(self) -> str:
        """The id of the adapter's own session. Raises UpstreamBroken where none can be opened."""
        if self._session is not None:
            return self._session
        message = dump(rpc_request(0, "initialize", INITIALIZE_PARAMS))
        answer = await self.relay.handle(own_message(self.server, None, message))
        response = await response_of(answer, 0, self.server.rules.answer_limit)
        session_id = header(answer.headers, "mcp-session-id")
        result = initialize_result(response)
        if session_id is None or result is None:
            raise UpstreamBroken(f"The server {self.server.id} opened no session.")
        said = read_result(result).get("instructions")
        self.instructions = said if isinstance(said, str) else None
        await (await self.relay.handle(own_message(self.server, session_id, INITIALIZED))).close()
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
