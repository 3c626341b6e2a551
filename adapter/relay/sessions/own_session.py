"""A session in which the adapter asks an upstream without any client, in the era that the upstream speaks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import LATEST_LEGACY
from adapter.relay.replies import decoded, media_type, read_body
from adapter.relay.server import READ, REFUSED, SHOWN, Server
from adapter.relay.sessions.inner_client import (
    ABANDON_SILENCE,
    INITIALIZED,
    LONGEST_AGREED,
    InnerClient,
    initialize_result,
    negotiated_version,
    read_result,
)
from adapter.rules.access.authorization_servers import Challenge
from adapter.rules.access.sessions import UpstreamSession
from adapter.rules.text.unicode import shown
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, challenge_of, header, never
from adapter.wire.envelope import answers, dump
from adapter.wire.eras import MODERN_VERSIONS, Era

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
