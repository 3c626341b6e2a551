"""The adapter's own client: what the adapter itself says to upstreams, in its own sessions and in those of clients.

Whoever opens, renews, resumes or ends a session at an upstream, or asks it something beside a client, does so here. In
sessions that are nobody else's it does so by ``own_session``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import JSON, LATEST_LEGACY, POST_FIELDS, ClientRequest, forwardable
from adapter.relay.replies import ANSWER_LIMIT, WholeAnswer, discard, media_type, read_answer
from adapter.rules.access.headers import Field, SharedFields
from adapter.rules.access.sessions import Membership, UpstreamSession
from adapter.upstream.port import MemberRequest, Upstream, UpstreamReply, UpstreamRequest, always, header
from adapter.wire.envelope import Envelope
from adapter.wire.eras import MODERN_VERSIONS
from adapter.wire.spans import find

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ACCEPT = "application/json, text/event-stream"

_POSTED = (("Accept", ACCEPT), JSON)

_OF_ITS_MESSAGE = POST_FIELDS | {"mcp-method", "mcp-name", "mcp-session-id"}
"""Fields of a client's request that say nothing of another one beside it."""

MOST_HEADS = 64
"""Heads of requests beside one head of a client's that are kept, such as those of each tool."""

LONGEST_KEPT = 512
"""Characters of the own fields of a head that is kept: arguments that are mirrored in fields are the client's."""

ABANDON_SILENCE = 2.0
"""Seconds without a byte after which the end of an abandoned session is not waited for: its failure waits behind it."""

LONGEST_AGREED = 16 << 10
"""Bytes of a response to ``initialize`` that is remembered with what it says."""

NO_LEGACY = (400, 404, 405, 406)
"""Statuses of a server that does not know a request, or its era."""

CLOSE_SILENCE = 10.0
"""Seconds without a byte after which the end of a session that no caller waits for is given up."""

LONGEST_RETRY = 10.0
"""Seconds of an upstream's ``retry:`` that are waited at most when the adapter itself resumes a stream."""


def initialize_result(response: bytes | None) -> bytes | None:
    """The bytes of a successful initialize result, or None."""
    if response is None:
        return None
    span = find(response, ("result",))
    return response[span[0] : span[1]] if span else None


def read_result(result: bytes) -> Mapping[str, Any]:
    """The members of a result; none of what is no object. Raises UpstreamBroken for no JSON."""
    try:
        read = orjson.loads(result)
    except orjson.JSONDecodeError as error:
        # Only the envelope has been read so far; what is between its braces may be anything.
        raise UpstreamBroken("The upstream server's answer to initialize is not valid JSON.") from error
    return read if isinstance(read, dict) else {}


def opened(session_id: str | None, response: bytes | None, generation: int = 0) -> UpstreamSession | None:
    """The upstream session that a response to ``initialize`` stands for, None if that is no result.

    Raises UpstreamBroken for no JSON.
    """
    if response is None:
        return None
    agreed = _agreed(response) if len(response) <= LONGEST_AGREED else _agreed.__wrapped__(response)
    return None if agreed is None else UpstreamSession(session_id, *agreed, generation)


# A server answers most of its clients in the same words, and reading them is a tenth of what opening a session costs.
@lru_cache(maxsize=64)
def _agreed(response: bytes) -> tuple[str, str] | None:
    """The negotiated version and the digest of the result, None if there is no result."""
    if (result := initialize_result(response)) is None:
        return None
    version = read_result(result).get("protocolVersion")
    # Where it names none, the specification says which one it is.
    return version if isinstance(version, str) else "2025-03-26", hashlib.sha256(result).hexdigest()


class InnerClient(NamedTuple):
    """Speaks in one session of ``upstream``, with the credentials, the query and the purpose of the request ``like``.

    ``session`` has no id where none is open, and an empty version before one was negotiated. ``read_timeout`` in
    seconds, ``limit`` in bytes of an answer. ``part`` is one in a shared session that no id names.
    """

    upstream: Upstream
    like: UpstreamRequest
    session: UpstreamSession
    read_timeout: float | None
    limit: int = ANSWER_LIMIT
    part: Membership | None = None

    @classmethod
    def of(cls, ask: ClientRequest, session: UpstreamSession) -> InnerClient:
        """Speaks beside the client of ``ask``."""
        like = UpstreamRequest("POST", ask.headers, b"", ask.sender.caller, ask.query)
        server = ask.server
        return cls(server.upstream, like, session, server.timeouts.request, server.rules.answer_limit)

    def post(
        self,
        body: bytes,
        fields: Sequence[tuple[str, str]] = (),
        repeatable: Callable[[], bool] = always,
        envelope: Envelope | None = None,
    ) -> Coroutine[Any, Any, UpstreamReply]:
        """The answer to a message, by its head. Raises what Upstream.send raises."""
        request = self._request("POST", (*_POSTED, *fields), body, repeatable)
        request.envelope = envelope
        return self.upstream.send(request, self.read_timeout)

    async def tell(self, body: bytes) -> None:
        """Send a message that has no answer. Raises what Upstream.send raises."""
        await discard(await self.post(body), self.read_timeout)

    async def answer(
        self,
        reply: UpstreamReply,
        number: str | int | float | None,
        *,
        keeps_raw: bool = True,
        between: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> WholeAnswer:
        """An answer to its end, over as many streams as it takes; see ``read_answer``."""
        return await read_answer(
            reply, number, self.read_timeout, self.resume, self.limit, keeps_raw=keeps_raw, between=between
        )

    async def begun(
        self,
        reply: UpstreamReply,
        number: str | int | float | None,
        initialized: bytes = INITIALIZED,
        generation: int = 0,
        *,
        keeps_raw: bool = False,
    ) -> tuple[InnerClient | None, WholeAnswer]:
        """The answer to ``initialize``, and a client that speaks in the session that it opens, in which ``initialized``
        was said. It is None where none was opened; one that cannot be gone on in is ended.

        Raises what the upstream raises, and UpstreamBroken for a result that is no JSON.
        """
        client = self._replace(session=self.session._replace(id=header(reply.headers, "mcp-session-id")))
        try:
            answer = await client.answer(reply, number, keeps_raw=keeps_raw)
            agreed = opened(client.session.id, answer.response, generation)
            if agreed is not None:
                client = client._replace(session=agreed)
                await client.tell(initialized)
                return client, answer
        except BaseException:
            await client.abandon()
            raise
        await client.abandon()
        return None, answer

    async def resume(self, last_event_id: bytes, retry: int | None) -> UpstreamReply | None:
        """The stream after ``last_event_id`` (MCP 2025-11-25, "Resumability and Redelivery"), asked for when ``retry``
        milliseconds have passed; None if refused.
        """
        if retry:
            await asyncio.sleep(min(retry / 1000, LONGEST_RETRY))
        return await self.stream(("Last-Event-ID", last_event_id.decode("latin-1")))

    async def stream(self, *fields: tuple[str, str]) -> UpstreamReply | None:
        """A stream of the server's own; None if refused."""
        accepting = (("Accept", "text/event-stream"), *fields)
        try:
            reply = await self.upstream.send(self._request("GET", accepting), self.read_timeout)
        except AdapterError:
            return None
        if reply.status == 200 and media_type(reply.headers) == "text/event-stream":
            return reply
        reply.abort()
        return None

    async def close(self, within: float) -> bool:
        """End the session, if one is open; ``within``: seconds without a byte. False if the upstream cannot do so now.

        Raises what Upstream.send raises.
        """
        if self.session.id is None:
            return True
        reply = await self.upstream.send(self._request("DELETE"), within)
        await discard(reply, within)
        return reply.status < 500

    async def abandon(self) -> None:
        """End a session that no client's session maps to, if the upstream answers soon."""
        with contextlib.suppress(AdapterError):
            await self.close(ABANDON_SILENCE)

    def _request(
        self,
        method: str,
        fields: tuple[Field, ...] = (),
        body: bytes = b"",
        repeatable: Callable[[], bool] = always,
    ) -> UpstreamRequest:
        like, known = self.like, self.like.headers
        version, session_id = self.session.protocol_version, None if self.part else self.session.id
        key = version, session_id, fields
        derived = known.derived if type(known) is SharedFields else {}
        kept: dict[object, SharedFields] = derived.setdefault(InnerClient, {})
        if (headers := kept.get(key)) is None:
            made = [*forwardable(known, drop=_OF_ITS_MESSAGE), *fields]
            if version:
                made.append(("MCP-Protocol-Version", version))
            if session_id is not None:
                made.append(("Mcp-Session-Id", session_id))
            headers = SharedFields(made)
            if sum(len(value) for _, value in fields) <= LONGEST_KEPT:
                if len(kept) >= MOST_HEADS:
                    kept.clear()
                kept[key] = headers
        request = MemberRequest(method, headers, body, like.caller, like.query, repeatable, like.purpose)
        request.part, request.traceparent, request.listens = self.part, like.traceparent, like.listens
        return request


MODERN_VERSION = MODERN_VERSIONS[-1]

CLIENT = {"name": "mcp-file-adapter", "version": "1"}

NO_CAPABILITIES: Mapping[str, Any] = {}

INITIALIZE_PARAMS = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": CLIENT}
"""Of the adapter's own ``initialize``: a client that can do nothing but ask."""


def rpc_request(number: int | str, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """A JSON-RPC request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
    if params is not None:
        message["params"] = params
    return message


def modern_meta(capabilities: Mapping[str, Any] = NO_CAPABILITIES) -> dict[str, Any]:
    """The data on its client that every modern request carries (MCP 2026-07-28, "_meta")."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
