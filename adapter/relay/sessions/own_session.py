"""Requests of the adapter's own to an upstream, and a session in which it asks without any client.

The session speaks the era that the upstream speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import LATEST_LEGACY, POST_FIELDS, forwardable
from adapter.relay.replies import decoded, discard, media_type, read_answer, read_body
from adapter.relay.server import Server
from adapter.rules.access.authorization_servers import Challenge
from adapter.rules.access.principals import NOBODY, Caller
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

MODERN_VERSION = MODERN_VERSIONS[-1]

REFUSED = (401, 403)
"""Statuses that say: bring other credentials."""

REFUSAL_BYTES = 4096
"""Bytes of a refusal that are read."""

REFUSAL_SHOWN = 300
"""Characters of it that are kept, for people to see."""

CLIENT = {"name": "mcp-file-adapter", "version": "1"}

NO_CAPABILITIES: Mapping[str, Any] = {}

INITIALIZE_PARAMS = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": CLIENT}
"""Of the adapter's own ``initialize``: a client that can do nothing but ask."""


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
    version = _read(result).get("protocolVersion")
    return version if isinstance(version, str) else "2025-03-26"


def _read(result: bytes) -> Mapping[str, Any]:
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


async def close_session(
    upstream: Upstream, opened: UpstreamRequest, session: UpstreamSession, read_timeout: float
) -> int:
    """End a session upstream, as the request that ``opened`` it was sent. Returns the status of the answer.

    Raises what Upstream.send raises.
    """
    fields = forwardable(opened.headers, drop=POST_FIELDS)
    if session.protocol_version:
        fields.append(("MCP-Protocol-Version", session.protocol_version))
    if session.id is not None:
        fields.append(("Mcp-Session-Id", session.id))
    request = UpstreamRequest("DELETE", fields, b"", opened.caller, opened.query, always)
    reply = await upstream.send(request, read_timeout)
    await discard(reply, read_timeout)
    return reply.status


class Resumption:
    """GET with ``Last-Event-ID`` by the adapter itself (MCP 2025-11-25, "Resumability and Redelivery")."""

    def __init__(
        self,
        server: Server,
        headers: list[tuple[str, str]],
        upstream_session: str | None,
        version: str | None,
        query: str = "",
        caller: Caller = NOBODY,
    ) -> None:
        self._server = server
        self._headers = headers
        self._upstream_session = upstream_session
        self._version = version
        self._query = query
        self._caller = caller

    async def after(self, last_event_id: bytes, retry: int | None) -> UpstreamReply | None:
        """The stream after ``last_event_id``, asked for when ``retry`` milliseconds have passed; None if refused."""
        if retry:
            await asyncio.sleep(min(retry / 1000, LONGEST_RETRY))
        headers = [*forwardable(self._headers, drop=POST_FIELDS), ("Accept", "text/event-stream")]
        if self._version:
            headers.append(("MCP-Protocol-Version", self._version))
        if self._upstream_session is not None:
            headers.append(("Mcp-Session-Id", self._upstream_session))
        headers.append(("Last-Event-ID", last_event_id.decode("latin-1")))
        try:
            reply = await self._server.upstream.send(
                UpstreamRequest("GET", headers, b"", self._caller, self._query, always),
                self._server.timeouts.request,
            )
        except AdapterError:
            return None
        kind = (header(reply.headers, "content-type") or "").lower()
        if reply.status == 200 and kind.startswith("text/event-stream"):
            return reply
        reply.abort()
        return None


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
        read_timeout = patience or self._read_timeout
        number = next(self._ids)
        message = rpc_request(number, "initialize", INITIALIZE_PARAMS)
        request = self._request(dump(message), [], repeatable=False)
        reply = await self._server.upstream.send(request, read_timeout)
        if reply.status != 200:
            if reply.status in REFUSED:
                return await self._refused(reply)
            reply.abort()
            return await self.discover()
        # Known before the answer is read, so that whatever happens to that the session is closed.
        self._upstream_session = header(reply.headers, "mcp-session-id")
        result = initialize_result(await self._response(reply, number, read_timeout))
        if result is None:
            await self.close()
            return await self.discover()
        self.era, self._version, self.refusal = Era.LEGACY, negotiated_version(result), None
        self._introduced(result)
        self._server.issues_ids = self._upstream_session is not None
        initialized = self._request(INITIALIZED, self._session_fields())
        await discard(await self._server.upstream.send(initialized, self._read_timeout), self._read_timeout)
        return 200

    async def discover(self) -> int:
        """Find out whether the upstream speaks the modern era; otherwise as ``open``."""
        answer = await self._ask_modern("server/discover", {})
        if answer.status >= 500:
            raise UpstreamBroken(f"The upstream server answered with HTTP status {answer.status}.")
        self.era = Era.MODERN if answer.status == 200 else None
        self._introduced(initialize_result(answer.response) or b"null")
        return answer.status

    def _introduced(self, result: bytes) -> None:
        info = _read(result).get("serverInfo")
        self.server_info = info if isinstance(info, dict) and len(result) <= LONGEST_AGREED else {}

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, patience: float | None = None
    ) -> OwnAnswer:
        """Ask something that changes nothing in the open session. Its answer may take ``patience`` seconds (None: no
        longer than any other). Raises what the upstream raises.
        """
        if self.era is Era.MODERN:
            return await self._ask_modern(method, params or {}, patience)
        number = next(self._ids)
        message = rpc_request(number, method, params)
        return await self._send(message, self._session_fields(), number, patience)

    async def close(self) -> None:
        """End the session upstream, if there is one; an upstream that does not answer is left alone."""
        fields, had = self._session_fields(), self._upstream_session is not None
        self._version = self._upstream_session = None
        if not had:
            return
        read_timeout = min(self._read_timeout, ABANDON_SILENCE)
        request = UpstreamRequest("DELETE", self._headers(fields), repeatable=always, purpose=Purpose.PING)
        with contextlib.suppress(AdapterError):
            await discard(await self._server.upstream.send(request, read_timeout), read_timeout)

    async def _ask_modern(
        self, method: str, params: Mapping[str, Any], patience: float | None = None
    ) -> OwnAnswer:
        number = next(self._ids)
        fields = [("MCP-Protocol-Version", MODERN_VERSION), ("Mcp-Method", method)]
        message = rpc_request(number, method, {**params, "_meta": modern_meta()})
        return await self._send(message, fields, number, patience)

    async def _send(
        self,
        message: dict[str, Any],
        fields: list[tuple[str, str]],
        number: int,
        patience: float | None = None,
    ) -> OwnAnswer:
        read_timeout = patience or self._read_timeout
        reply = await self._server.upstream.send(self._request(dump(message), fields), read_timeout)
        if reply.status in REFUSED:
            return OwnAnswer(await self._refused(reply), None)
        if reply.status == 200:
            self.refusal = None
        return OwnAnswer(reply.status, await self._response(reply, number, read_timeout))

    async def _refused(self, reply: UpstreamReply) -> int:
        """Keep what the upstream says to credentials that it does not take. Returns the status."""
        body = b""
        try:
            while len(body) < REFUSAL_BYTES and (chunk := await reply.read(self._read_timeout)):
                body += chunk
        except AdapterError:
            # The status says enough.
            pass
        finally:
            reply.abort()
        text = shown(body[:REFUSAL_BYTES].decode("utf-8", "replace").strip(), REFUSAL_SHOWN)
        self.refusal = f"HTTP {reply.status}: {text}" if text else f"HTTP {reply.status}"
        self.asks_oauth = reply.status == 401 and Challenge(challenge_of(reply)).metadata is not None
        return reply.status

    async def _response(self, reply: UpstreamReply, number: int, read_timeout: float) -> bytes | None:
        limit = self._server.rules.answer_limit
        if reply.status == 200:
            resume = Resumption(self._server, self._headers([]), self._upstream_session, self._version).after
            answer = await read_answer(reply, number, read_timeout, resume, limit, keeps_raw=False)
            return answer.response
        if media_type(reply) != "application/json":
            reply.abort()
            return None
        # Modern upstreams say 404 to a method they do not know, and why in the body.
        body = decoded(await read_body(reply, read_timeout, limit), reply, limit)
        return body if answers(body, number) else None

    def _request(
        self, body: bytes, fields: list[tuple[str, str]], *, repeatable: bool = True
    ) -> UpstreamRequest:
        return UpstreamRequest(
            "POST",
            self._headers(fields),
            body,
            repeatable=always if repeatable else never,
            purpose=Purpose.PING,
        )

    def _headers(self, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        kind = [("Accept", ACCEPT), ("Content-Type", "application/json")]
        return [*self._server.rules.static, *kind, *fields]

    def _session_fields(self) -> list[tuple[str, str]]:
        fields = [("MCP-Protocol-Version", self._version or LATEST_LEGACY)]
        if self._upstream_session is not None:
            fields.append(("Mcp-Session-Id", self._upstream_session))
        return fields


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
