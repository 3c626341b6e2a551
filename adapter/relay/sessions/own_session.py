"""A session of the adapter's own at an upstream, in whichever era that speaks: no client has a part in it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import LATEST_LEGACY
from adapter.relay.replies import decoded, discard, media_type, read_answer, read_body
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import (
    ABANDON_SILENCE,
    ACCEPT,
    INITIALIZED,
    Resumption,
    initialize_result,
    negotiated_version,
)
from adapter.rules.text.unicode import shown
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, always, header, never
from adapter.wire.envelope import answers, dump
from adapter.wire.eras import MODERN_VERSIONS, Era

MODERN_VERSION = MODERN_VERSIONS[-1]

REFUSED = (401, 403)
"""Statuses that say: bring other credentials."""

REFUSAL_BYTES = 4096
"""Bytes of a refusal that are read."""

REFUSAL_SHOWN = 300
"""Characters of it that are kept, for people to see."""

_CLIENT = {"name": "mcp-file-adapter", "version": "1"}


class Told(NamedTuple):
    """The answer of an upstream: the HTTP status, and the JSON-RPC response, None if there was none."""

    status: int
    response: bytes | None


class OwnSession:
    """Speaks to one upstream under its static headers. ``read_timeout`` in seconds.

    ``era`` is the one that the upstream was last found to speak, None while that is not known. ``refusal`` is what it
    said when it last refused the adapter's credentials, None where it did not.
    """

    def __init__(self, server: Server, read_timeout: float) -> None:
        self._server = server
        self._read_timeout = read_timeout
        self._ids = itertools.count(1)
        self._upstream_session: str | None = None
        self._version: str | None = None
        self.era: Era | None = None
        self.refusal: str | None = None

    def __repr__(self) -> str:
        return f"<OwnSession at {self._server.id!r}: {self.era.value if self.era else 'not open'}>"

    @property
    def is_open(self) -> bool:
        """Tell whether requests can be asked: in a legacy session, or of an upstream whose era has no sessions."""
        return self.era is Era.MODERN or self._version is not None

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
        params = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        request = self._request(_request(number, "initialize", params), [], repeatable=False)
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
        self._server.issues_ids = self._upstream_session is not None
        await discard(await self._post(INITIALIZED, self._session_fields()), self._read_timeout)
        return 200

    async def discover(self) -> int:
        """Find out whether the upstream speaks the modern era; otherwise as ``open``."""
        told = await self._ask_modern("server/discover", {})
        if told.status >= 500:
            raise UpstreamBroken(f"The upstream server answered with HTTP status {told.status}.")
        self.era = Era.MODERN if told.status == 200 else None
        return told.status

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Told:
        """Ask something that changes nothing in the open session. Raises what the upstream raises."""
        if self.era is Era.MODERN:
            return await self._ask_modern(method, params or {})
        number = next(self._ids)
        return await self._told(_request(number, method, params), self._session_fields(), number)

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

    async def _ask_modern(self, method: str, params: Mapping[str, Any]) -> Told:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        number = next(self._ids)
        fields = [("MCP-Protocol-Version", MODERN_VERSION), ("Mcp-Method", method)]
        return await self._told(_request(number, method, {**params, "_meta": meta}), fields, number)

    async def _told(self, body: bytes, fields: list[tuple[str, str]], number: int) -> Told:
        reply = await self._post(body, fields)
        if reply.status in REFUSED:
            return Told(await self._refused(reply), None)
        if reply.status == 200:
            self.refusal = None
        return Told(reply.status, await self._response(reply, number, self._read_timeout))

    async def _refused(self, reply: UpstreamReply) -> int:
        """Keep what the upstream says to credentials that it does not take. Returns the status."""
        said = b""
        try:
            while len(said) < REFUSAL_BYTES and (chunk := await reply.read(self._read_timeout)):
                said += chunk
        except AdapterError:
            # The status says enough.
            pass
        finally:
            reply.abort()
        text = shown(said[:REFUSAL_BYTES].decode("utf-8", "replace").strip(), REFUSAL_SHOWN)
        self.refusal = f"HTTP {reply.status}: {text}" if text else f"HTTP {reply.status}"
        return reply.status

    async def _response(self, reply: UpstreamReply, number: int, read_timeout: float) -> bytes | None:
        limit = self._server.rules.answer_limit
        if reply.status == 200:
            resume = Resumption(self._server, self._headers([]), self._upstream_session, self._version).after
            return (await read_answer(reply, number, read_timeout, resume, limit)).response
        if media_type(reply) != "application/json":
            reply.abort()
            return None
        # Modern upstreams say 404 to a method they do not know, and why in the body.
        body = decoded(await read_body(reply, read_timeout, limit), reply, limit)
        return body if answers(body, number) else None

    async def _post(self, body: bytes, fields: list[tuple[str, str]]) -> UpstreamReply:
        return await self._server.upstream.send(self._request(body, fields), self._read_timeout)

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


def _request(number: int, method: str, params: Mapping[str, Any] | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
    if params is not None:
        message["params"] = params
    return dump(message)
