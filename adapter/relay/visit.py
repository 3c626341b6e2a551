"""A session of the adapter's own at an upstream, in whichever era that speaks: no client has a part in it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.answers import decoded, media_type, read_answer, read_body
from adapter.relay.mapping import (
    ABANDON_SILENCE,
    ACCEPT,
    INITIALIZED,
    LATEST_LEGACY,
    Resumption,
    initialize_result,
    negotiated_version,
)
from adapter.relay.server import Server
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.wire.envelope import answers, dump
from adapter.wire.eras import MODERN_VERSIONS, Era

MODERN_VERSION = MODERN_VERSIONS[-1]
REQUEST_ID = 1
"""The id of every request here: no two are under way at once."""

_CLIENT = {"name": "mcp-file-adapter", "version": "1"}


class Told(NamedTuple):
    """What an upstream answered: the HTTP status, and the JSON-RPC response, None where there was none."""

    status: int
    response: bytes | None


class Visit:
    """Speaks to one upstream under its static headers. ``silence`` in seconds.

    ``era`` is the one that the upstream was last found to speak, None while that is not known.
    """

    def __init__(self, server: Server, silence: float) -> None:
        self._server = server
        self._silence = silence
        self._upstream_session: str | None = None
        self._version: str | None = None
        self.era: Era | None = None

    def __repr__(self) -> str:
        return f"<Visit to {self._server.id!r}: {self.era.value if self.era else 'not open'}>"

    @property
    def is_open(self) -> bool:
        """Whether requests can be asked: in a legacy session, or of an upstream whose era knows none."""
        return self.era is Era.MODERN or self._version is not None

    async def open(self) -> int:
        """Open a session, where the era has any. Returns the HTTP status of the upstream's last word.

        A 401 or 403 ends the attempt: without credentials there is no telling the era. Raises what the upstream
        raises, and UpstreamBroken for a status from 500 on.
        """
        self._version = self._upstream_session = None
        params = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        reply = await self._post(_request("initialize", params), [])
        if reply.status != 200:
            reply.abort()
            return reply.status if reply.status in (401, 403) else await self.discover()
        self._upstream_session = header(reply.headers, "mcp-session-id")
        result = initialize_result(await self._response(reply))
        if result is None:
            self._upstream_session = None
            return await self.discover()
        self.era, self._version = Era.LEGACY, negotiated_version(result)
        reply = await self._post(INITIALIZED, self._session_fields())
        await read_body(reply, self._silence)
        return 200

    async def discover(self) -> int:
        """Find out whether the upstream speaks the modern era; otherwise as ``open``."""
        told = await self._ask_modern("server/discover", {})
        if told.status >= 500:
            raise UpstreamBroken(f"The upstream server answered with HTTP status {told.status}.")
        self.era = Era.MODERN if told.status == 200 else None
        return told.status

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Told:
        """One request in the open session; raises what the upstream raises."""
        if self.era is Era.LEGACY:
            reply = await self._post(_request(method, params), self._session_fields())
            return Told(reply.status, await self._response(reply))
        return await self._ask_modern(method, params or {})

    async def close(self) -> None:
        """End the session upstream, if there is one; an upstream that does not answer is left alone."""
        if self._upstream_session is None:
            return
        request = UpstreamRequest("DELETE", self._headers(self._session_fields()))
        self._version = self._upstream_session = None
        with contextlib.suppress(AdapterError):
            silence = min(self._silence, ABANDON_SILENCE)
            (await self._server.upstream.send(request, silence)).abort()

    async def _ask_modern(self, method: str, params: Mapping[str, Any]) -> Told:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        fields = [("MCP-Protocol-Version", MODERN_VERSION), ("Mcp-Method", method)]
        reply = await self._post(_request(method, {**params, "_meta": meta}), fields)
        return Told(reply.status, await self._response(reply))

    async def _response(self, reply: UpstreamReply) -> bytes | None:
        if reply.status == 200:
            resume = Resumption(self._server, self._headers([]), self._upstream_session, self._version).after
            return (await read_answer(reply, REQUEST_ID, self._silence, resume)).response
        if media_type(reply) != "application/json":
            reply.abort()
            return None
        # Modern upstreams say 404 to a method they do not know, and why in the body.
        body = decoded(await read_body(reply, self._silence), reply)
        return body if answers(body, REQUEST_ID) else None

    async def _post(self, body: bytes, fields: list[tuple[str, str]]) -> UpstreamReply:
        request = UpstreamRequest("POST", self._headers(fields), body)
        return await self._server.upstream.send(request, self._silence)

    def _headers(self, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        kind = [("Accept", ACCEPT), ("Content-Type", "application/json")]
        return [*self._server.static, *kind, *fields]

    def _session_fields(self) -> list[tuple[str, str]]:
        fields = [("MCP-Protocol-Version", self._version or LATEST_LEGACY)]
        if self._upstream_session is not None:
            fields.append(("Mcp-Session-Id", self._upstream_session))
        return fields


def _request(method: str, params: Mapping[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": REQUEST_ID, "method": method}
    if params is not None:
        message["params"] = params
    return dump(message)
