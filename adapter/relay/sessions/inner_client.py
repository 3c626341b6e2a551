"""The adapter's own client: what the adapter itself says to upstreams, in its own sessions and in those of clients.

Whoever opens, renews, resumes or ends a session at an upstream, or asks it something beside a client, does so here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import JSON, LATEST_LEGACY, POST_FIELDS, ClientRequest, forwardable
from adapter.relay.replies import (
    ANSWER_LIMIT,
    WholeAnswer,
    decoded,
    discard,
    media_type,
    read_answer,
    read_body,
)
from adapter.relay.server import READ, REFUSED, SHOWN, Server
from adapter.rules.access.authorization_servers import Challenge
from adapter.rules.access.sessions import UpstreamSession
from adapter.rules.text.unicode import shown
from adapter.upstream.port import (
    Purpose,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    always,
    challenge_of,
    header,
    never,
)
from adapter.wire.envelope import answers, dump
from adapter.wire.eras import MODERN_VERSIONS, Era
from adapter.wire.spans import find

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ACCEPT = "application/json, text/event-stream"

ABANDON_SILENCE = 2.0
"""Seconds without a byte after which the end of an abandoned session is not waited for: its failure waits behind it."""

LONGEST_AGREED = 16 << 10
"""Bytes of a response to ``initialize`` that is remembered with what it says."""

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


def negotiated_version(result: bytes) -> str:
    """The protocol version that an initialize result names; 2025-03-26 where it names none, as the spec says.

    Raises UpstreamBroken for no JSON.
    """
    version = read_result(result).get("protocolVersion")
    return version if isinstance(version, str) else "2025-03-26"


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
    result = initialize_result(response)
    return None if result is None else (negotiated_version(result), hashlib.sha256(result).hexdigest())


class InnerClient(NamedTuple):
    """Speaks in one session of ``upstream``, with the credentials, the query and the purpose of the request ``like``.

    ``session`` has no id where none is open, and an empty version before one was negotiated. ``read_timeout`` in
    seconds, ``limit`` in bytes of an answer.
    """

    upstream: Upstream
    like: UpstreamRequest
    session: UpstreamSession
    read_timeout: float | None
    limit: int = ANSWER_LIMIT

    @classmethod
    def of(cls, ask: ClientRequest, session: UpstreamSession) -> InnerClient:
        """Speaks beside the client of ``ask``."""
        like = UpstreamRequest("POST", ask.headers, b"", ask.sender.caller, ask.query)
        server = ask.server
        return cls(server.upstream, like, session, server.timeouts.request, server.rules.answer_limit)

    async def post(
        self,
        body: bytes,
        fields: Sequence[tuple[str, str]] = (),
        repeatable: Callable[[], bool] = always,
    ) -> UpstreamReply:
        """The answer to a message, by its head. Raises what Upstream.send raises."""
        request = self._request("POST", [("Accept", ACCEPT), JSON, *fields], body, repeatable)
        return await self.upstream.send(request, self.read_timeout)

    async def tell(self, body: bytes) -> None:
        """Send a message that has no answer. Raises what Upstream.send raises."""
        await discard(await self.post(body), self.read_timeout)

    async def answer(
        self, reply: UpstreamReply, number: str | int | float | None, *, keeps_raw: bool = True
    ) -> WholeAnswer:
        """An answer to its end, over as many streams as it takes; see ``read_answer``."""
        return await read_answer(
            reply, number, self.read_timeout, self.resume, self.limit, keeps_raw=keeps_raw
        )

    async def resume(self, last_event_id: bytes, retry: int | None) -> UpstreamReply | None:
        """The stream after ``last_event_id`` (MCP 2025-11-25, "Resumability and Redelivery"), asked for when ``retry``
        milliseconds have passed; None if refused.
        """
        if retry:
            await asyncio.sleep(min(retry / 1000, LONGEST_RETRY))
        fields = [("Accept", "text/event-stream"), ("Last-Event-ID", last_event_id.decode("latin-1"))]
        try:
            reply = await self.upstream.send(self._request("GET", fields), self.read_timeout)
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
        fields: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        repeatable: Callable[[], bool] = always,
    ) -> UpstreamRequest:
        like, session = self.like, self.session
        headers = [*forwardable(like.headers, drop=POST_FIELDS), *fields]
        if session.protocol_version:
            headers.append(("MCP-Protocol-Version", session.protocol_version))
        if session.id is not None:
            headers.append(("Mcp-Session-Id", session.id))
        return UpstreamRequest(method, headers, body, like.caller, like.query, repeatable, like.purpose)


MODERN_VERSION = MODERN_VERSIONS[-1]

CLIENT = {"name": "mcp-file-adapter", "version": "1"}

NO_CAPABILITIES: Mapping[str, Any] = {}

INITIALIZE_PARAMS = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": CLIENT}
"""Of the adapter's own ``initialize``: a client that can do nothing but ask."""


class OwnAnswer(NamedTuple):
    """The answer of an upstream: the HTTP status, and the JSON-RPC response, None if there was none."""

    status: int
    response: bytes | None


class OwnSession:
    """Speaks to one upstream under its static headers. ``read_timeout`` in seconds.

    ``era`` is the one that the upstream was last found to speak, None while that is not known. ``refusal`` is what it
    answered when it last refused the adapter's credentials, None if it accepted them; ``asks_oauth`` tells whether it
    then named where people sign in. ``server_info`` is how it calls itself, empty of one that did not say.
    """

    def __init__(self, server: Server, read_timeout: float) -> None:
        self._server = server
        self._read_timeout = read_timeout
        self._ids = itertools.count(1)
        self._upstream_session: str | None = None
        self._version: str | None = None
        self.era: Era | None = None
        self.refusal: str | None = None
        self.asks_oauth = False
        self.server_info: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"<OwnSession at {self._server.id!r}: {self.era.value if self.era else 'not open'}>"

    @property
    def is_open(self) -> bool:
        """Tell whether requests can be asked: in a legacy session, or of an upstream whose era has no sessions."""
        return self.era is Era.MODERN or self._version is not None

    @property
    def version(self) -> str:
        """The revision of MCP that is spoken in the open session."""
        return self._version or MODERN_VERSION

    async def open(self, patience: float | None = None) -> int:
        """Open a session, where the era has any; an earlier one is closed. Returns the HTTP status of the upstream's
        last word.

        The answer to ``initialize`` may take ``patience`` seconds (None: no longer than any other). A 401 or 403 ends
        the attempt: without credentials there is no telling the era. Raises what the upstream raises, and
        UpstreamBroken for a status from 500 on.
        """
        await self.close()
        self.era = None
        number = next(self._ids)
        message = dump(rpc_request(number, "initialize", INITIALIZE_PARAMS))
        reply = await self._client("", patience).post(message, repeatable=never)
        if reply.status != 200:
            if reply.status in REFUSED:
                return await self._refused(reply)
            reply.abort()
            return await self.discover()
        # Known before the answer is read, so that whatever happens to that the session is closed.
        self._upstream_session = header(reply.headers, "mcp-session-id")
        answer = await self._client("", patience).answer(reply, number, keeps_raw=False)
        result = initialize_result(answer.response)
        if result is None:
            await self.close()
            return await self.discover()
        self.era, self._version, self.refusal = Era.LEGACY, negotiated_version(result), None
        self._introduced(result)
        self._server.issues_ids = self._upstream_session is not None
        await self._client(self._version).tell(INITIALIZED)
        return 200

    async def discover(self) -> int:
        """Find out whether the upstream speaks the modern era; otherwise as ``open``."""
        answer = await self._ask(Era.MODERN, "server/discover", {}, None)
        if answer.status >= 500:
            raise UpstreamBroken(f"The upstream server answered with HTTP status {answer.status}.")
        self.era = Era.MODERN if answer.status == 200 else None
        self._introduced(initialize_result(answer.response) or b"null")
        return answer.status

    def _introduced(self, result: bytes) -> None:
        info = read_result(result).get("serverInfo")
        self.server_info = info if isinstance(info, dict) and len(result) <= LONGEST_AGREED else {}

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, patience: float | None = None
    ) -> OwnAnswer:
        """Ask something that changes nothing in the open session. Its answer may take ``patience`` seconds (None: no
        longer than any other). Raises what the upstream raises.
        """
        return await self._ask(self.era, method, params, patience)

    async def close(self) -> None:
        """End the session upstream, if there is one; an upstream that does not answer is left alone."""
        client = self._client(self._version or LATEST_LEGACY)
        self._version = self._upstream_session = None
        with contextlib.suppress(AdapterError):
            await client.close(min(self._read_timeout, ABANDON_SILENCE))

    async def _ask(
        self, era: Era | None, method: str, params: Mapping[str, Any] | None, patience: float | None
    ) -> OwnAnswer:
        number = next(self._ids)
        version, fields = self._version or LATEST_LEGACY, []
        if era is Era.MODERN:
            version, fields = MODERN_VERSION, [("Mcp-Method", method)]
            params = {**(params or {}), "_meta": modern_meta()}
        client = self._client(version, patience)
        reply = await client.post(dump(rpc_request(number, method, params)), fields)
        if reply.status in REFUSED:
            return OwnAnswer(await self._refused(reply), None)
        if reply.status == 200:
            self.refusal = None
            return OwnAnswer(200, (await client.answer(reply, number, keeps_raw=False)).response)
        if media_type(reply.headers) != "application/json":
            reply.abort()
            return OwnAnswer(reply.status, None)
        # Modern upstreams say 404 to a method they do not know, and why in the body.
        body = decoded(await read_body(reply, client.read_timeout, client.limit), reply, client.limit)
        return OwnAnswer(reply.status, body if answers(body, number) else None)

    async def _refused(self, reply: UpstreamReply) -> int:
        """Keep what the upstream says to credentials that it does not take. Returns the status."""
        body = b""
        try:
            while len(body) < READ and (chunk := await reply.read(self._read_timeout)):
                body += chunk
        except AdapterError:
            # The status says enough.
            pass
        finally:
            reply.abort()
        text = shown(body[:READ].decode("utf-8", "replace").strip(), SHOWN)
        self.refusal = f"HTTP {reply.status}: {text}" if text else f"HTTP {reply.status}"
        self.asks_oauth = reply.status == 401 and Challenge(challenge_of(reply)).metadata is not None
        return reply.status

    def _client(self, version: str, patience: float | None = None) -> InnerClient:
        server = self._server
        like = UpstreamRequest("POST", server.rules.static, purpose=Purpose.PING)
        session = UpstreamSession(self._upstream_session, version)
        read_timeout = patience or self._read_timeout
        return InnerClient(server.upstream, like, session, read_timeout, server.rules.answer_limit)


def rpc_request(number: int, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
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
