"""A modern server as the bridge speaks to it: each message is a request of HTTP, whose answer has what comes before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from adapter.errors import UpstreamBroken
from adapter.relay.param_headers import MOST_PAGES, headers_on, mirrors
from adapter.relay.replies import decoded, is_response, read_answer, read_body
from adapter.relay.server import REFUSED, Server
from adapter.relay.sessions.inner_client import InnerClient
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.access.headers import Field
from adapter.rules.access.sessions import UpstreamSession
from adapter.rules.calls.arguments import ANNOTATION, NO_HEADERS, Headers
from adapter.rules.eras.modern_server import MODERN_VERSION, own_request
from adapter.upstream.local.port import LocalHead
from adapter.upstream.local.replies import LocalAnswer
from adapter.upstream.port import STREAM, Upstream, UpstreamReply, UpstreamRequest, always
from adapter.wire.envelope import Envelope, dump, parse, value_at
from adapter.wire.spans import find

MOST_TOOLS = 10_000
"""Tools of one server whose mirrored arguments are remembered."""

HEADER_MISMATCH = -32020

_ANNOTATION = ANNOTATION.encode()
_NO_SESSION = UpstreamSession(None, MODERN_VERSION)


class PassedOn(Exception):
    """An answer that is no message of MCP: it reaches the client as it is."""

    def __init__(self, answer: LocalAnswer) -> None:
        super().__init__(f"The upstream server answered with HTTP status {answer.status}.")
        self.answer = answer


Between = Callable[[bytes], Awaitable[None]]
"""Takes a message that comes before the response."""


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
        between: Between | None = None,
        repeatable: Callable[[], bool] | None = None,
    ) -> bytes:
        """The response to a request with this ``number`` as its id; ``between`` gets the notifications before it.

        ``name`` is mirrored in a header, ``fields`` are those beside the client's own. Raises PassedOn, what the
        upstream raises, and UpstreamBroken where there is no response.
        """
        timeout, limit = self._server.read_timeout_of(method, name), self._server.rules.answer_limit
        client, said = self._client(head.request, timeout), [("Mcp-Method", method)]
        if name is not None:
            said.append(("Mcp-Name", name))
        reply = await client.post(body, (*said, *fields), repeatable or head.request.repeatable)
        if reply.status == 200:
            answer = await read_answer(
                reply, number, timeout, _not_resumed, limit, keeps_raw=False, plain=True, between=between
            )
            if answer.response is None:
                raise UpstreamBroken("The upstream server's answer is no response to the request.")
            return answer.response
        raw = await read_body(reply, timeout, limit)
        body = decoded(raw, reply, limit)
        if reply.status not in REFUSED and await is_response(body, number):
            return body
        raise PassedOn(LocalAnswer(raw, reply.status, headers=reply.headers))

    def listen(self, head: LocalHead, body: bytes) -> Coroutine[Any, Any, UpstreamReply]:
        """The stream of a subscription, by its head. Raises what Upstream.send raises."""
        like = replace(head.request, purpose=STREAM)
        client = self._client(like, self._server.timeouts.request)
        return client.post(body, (("Mcp-Method", LISTEN),), head.request.repeatable)

    def _client(self, like: UpstreamRequest, read_timeout: float | None) -> InnerClient:
        """Speaks beside one of the client's requests."""
        return InnerClient(self._upstream, like, _NO_SESSION, read_timeout)

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
        found: Headers | None = None
        for page in range(MOST_PAGES):
            body = own_request(dump(number), "tools/list", members, params)
            response = await self.ask(head, "tools/list", body, number, repeatable=always)
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


async def _not_resumed(_: bytes, __: int | None) -> None:
    """Have no more of an answer that broke off: this era resumes none."""
