"""A modern server as the bridge speaks to it: each message is a request of HTTP, whose answer has what comes before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from adapter.errors import UpstreamBroken
from adapter.relay.exchange import JSON, POST_FIELDS, forwardable
from adapter.relay.param_headers import MOST_PAGES, headers_on, mirrors
from adapter.relay.replies import (
    EVENT_STREAM,
    decoded,
    events_of,
    is_response,
    media_type,
    read_body,
    require_plain,
)
from adapter.relay.server import REFUSED, Server
from adapter.relay.sessions.inner_client import ACCEPT
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.access.headers import Field, SharedFields
from adapter.rules.calls.arguments import ANNOTATION, NO_HEADERS, Headers
from adapter.rules.eras.modern_server import MODERN_VERSION, own_request
from adapter.upstream.local.port import LocalHead
from adapter.upstream.local.replies import LocalAnswer
from adapter.upstream.port import STREAM, Upstream, UpstreamReply, UpstreamRequest, always
from adapter.upstream.port import Headers as Fields
from adapter.wire.envelope import Envelope, dump, parse, value_at
from adapter.wire.spans import find
from adapter.wire.sse import SseReader

MOST_HEADS = 64
"""Requests of a client by method and name whose header fields are kept."""

MOST_TOOLS = 10_000
"""Tools of one server whose mirrored arguments are remembered."""

HEADER_MISMATCH = -32020

_ANNOTATION = ANNOTATION.encode()
_ECHOED = POST_FIELDS | {"mcp-method", "mcp-name", "mcp-session-id"}


class PassedOn(Exception):
    """An answer that is no message of MCP: it reaches the client as it is."""

    def __init__(self, answer: LocalAnswer) -> None:
        super().__init__(f"The upstream server answered with HTTP status {answer.status}.")
        self.answer = answer


Between = Callable[[bytes], Awaitable[None]]
"""Takes a message that comes before the response."""


async def nobody(_: bytes) -> None:
    """Drop a message that has no reader."""


class ModernServer:
    """Sends requests of ``server``'s clients to ``upstream``."""

    def __init__(self, server: Server, upstream: Upstream) -> None:
        self.id = server.id
        self._server = server
        self._upstream = upstream
        self._mirrors: bool | None = None
        self._of_tool: dict[str, Headers] = {}

    async def ask(
        self,
        head: LocalHead,
        method: str,
        body: bytes,
        number: str | int | float,
        *,
        name: str | None = None,
        fields: tuple[Field, ...] = (),
        between: Between = nobody,
    ) -> bytes:
        """The response to a request with this ``number`` as its id; ``between`` gets the notifications before it.

        ``name`` is mirrored in a header, ``fields`` are those beside the client's own. Raises PassedOn, what the
        upstream raises, and UpstreamBroken where there is no response.
        """
        timeout = self._server.read_timeout_of(method, name)
        reply = await self._upstream.send(_request(head.request, method, body, name, fields), timeout)
        limit = self._server.rules.answer_limit
        if reply.status == 200 and media_type(reply.headers) == EVENT_STREAM:
            require_plain(reply)
            async with aclosing(events_of(reply, SseReader(limit), timeout)) as events:
                async for event in events:
                    if not event.data:
                        continue
                    if await is_response(event.data, number):
                        return event.data
                    await between(event.data)
            raise UpstreamBroken("The upstream server ended its answer without a response.")
        raw = await read_body(reply, timeout, limit)
        body = decoded(raw, reply, limit)
        if reply.status not in REFUSED and await is_response(body, number):
            return body
        if reply.status == 200:
            raise UpstreamBroken("The upstream server's answer is no response to the request.")
        raise PassedOn(LocalAnswer(raw, reply.status, headers=reply.headers))

    async def listen(self, head: LocalHead, body: bytes) -> UpstreamReply:
        """The stream of a subscription, by its head. Raises what Upstream.send raises."""
        request = _request(head.request, LISTEN, body)
        request.purpose = STREAM
        return await self._upstream.send(request, self._server.timeouts.request)

    # --- headers that mirror arguments ------------------------------------------------------------------------

    def saw_list(self, response: bytes, *, first: bool) -> None:
        """Note a page of the server's tools that a client gets: whether any of them has mirrored arguments."""
        if _ANNOTATION in response:
            self._mirrors = True
            self._of_tool.clear()
        elif first and b'"nextCursor"' not in response:
            self._mirrors = False

    def tools_changed(self) -> None:
        """Read the list again before the next call."""
        self._mirrors = None
        self._of_tool.clear()

    async def mirrored(self, head: LocalHead, envelope: Envelope, members: bytes) -> tuple[Field, ...]:
        """The headers that mirror the arguments of a call. Raises what ``ask`` raises."""
        tool = envelope.name
        if self._mirrors is False or tool is None:
            return ()
        if tool not in self._of_tool:
            await self._read_lists(head, tool, members)
        headers = self._of_tool.get(tool)
        if not headers:
            return ()
        return tuple(mirrors(headers, value_at(parse(envelope.body), "params", "arguments")))

    async def _read_lists(self, head: LocalHead, tool: str, members: bytes) -> None:
        """Look for a tool page by page."""
        params, number = b"", "mcp-file-adapter-list"
        head = head._replace(request=_repeatable(head.request))
        found: Headers | None = None
        for page in range(MOST_PAGES):
            body = own_request(dump(number), "tools/list", members, params)
            response = await self.ask(head, "tools/list", body, number)
            self.saw_list(response, first=page == 0)
            found, cursor = await headers_on(response, tool)
            if cursor is None:
                break
            params = b'"cursor":' + dump(cursor) + b","
        if len(self._of_tool) >= MOST_TOOLS:
            self._of_tool.clear()
        self._of_tool[tool] = found or NO_HEADERS


def mismatches(response: bytes) -> bool:
    """Tell whether a response is the refusal of a request whose headers do not mirror its body."""
    code = find(response, ("error", "code")) if b"-32020" in response else None
    return code is not None and parse(response[slice(*code)]) == HEADER_MISMATCH


def _repeatable(request: UpstreamRequest) -> UpstreamRequest:
    return UpstreamRequest("POST", request.headers, b"", request.caller, request.query, always)


def _request(
    like: UpstreamRequest, method: str, body: bytes, name: str | None = None, fields: tuple[Field, ...] = ()
) -> UpstreamRequest:
    """A request beside one of the client's."""
    headers: Fields = _fields(like.headers, method, name)
    if fields:
        headers = [*headers, *fields]
    found = UpstreamRequest("POST", headers, body, like.caller, like.query, like.repeatable)
    found.listens = like.listens
    return found


def _fields(headers: Fields, method: str, name: str | None) -> Fields:
    """A client's fields as a modern request has them; those of shared ones are made once for each method and name."""
    known: dict[tuple[str, str | None], SharedFields] = {}
    if type(headers) is SharedFields:
        known = headers.derived.setdefault(_fields, known)
    found = known.get((method, name))
    if found is None:
        fields = [
            *forwardable(headers, drop=_ECHOED),
            ("Accept", ACCEPT),
            JSON,
            ("MCP-Protocol-Version", MODERN_VERSION),
            ("Mcp-Method", method),
        ]
        found = SharedFields(fields if name is None else [*fields, ("Mcp-Name", name)])
        if len(known) >= MOST_HEADS:
            known.clear()
        known[method, name] = found
    return found
