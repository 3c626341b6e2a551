"""The adapter's own sessions at an upstream, which nobody else is in, and the look for the eras that it speaks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.exchange import LATEST_LEGACY
from adapter.relay.replies import LARGE, decoded, media_type, read_body
from adapter.relay.server import READ, REFUSED, SHOWN, Server
from adapter.relay.sessions.inner_client import (
    ABANDON_SILENCE,
    INITIALIZE_PARAMS,
    LONGEST_AGREED,
    MODERN_VERSION,
    NO_LEGACY,
    InnerClient,
    initialize_result,
    modern_meta,
    read_result,
    rpc_request,
)
from adapter.rules.access.authorization_servers import Challenge
from adapter.rules.access.sessions import UpstreamSession
from adapter.rules.text.unicode import shown
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, challenge_of, never
from adapter.wire.envelope import answers, dump
from adapter.wire.eras import LEGACY, MODERN, Era, is_modern
from adapter.wire.spans import find

_BOTH = frozenset(Era)

_UNKNOWN = (-32600, -32601, -32602, -32022)
"""Codes of errors that mean what the statuses of NO_LEGACY do; with any other one the request may succeed the next
time.
"""


class OwnAnswer(NamedTuple):
    """The answer of an upstream: the HTTP status, and the JSON-RPC response, None if there was none."""

    status: int
    response: bytes | None


class OwnSession:
    """Speaks to one upstream under its static headers, or in the name of a client as the request ``like``.
    ``read_timeout`` in seconds.

    ``era`` is the one that the upstream was last found to speak, None while that is not known. ``refusal`` is what it
    answered when it last refused the adapter's credentials, None if it accepted them; ``asks_oauth`` tells whether it
    then named where people sign in. ``server_info`` is how it calls itself, empty of one that did not say.
    """

    def __init__(self, server: Server, read_timeout: float, like: UpstreamRequest | None = None) -> None:
        self._server = server
        self._like = like
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
    def eras(self) -> frozenset[Era]:
        """The eras that the upstream is known to speak, that of this session among them."""
        return self._server.eras | (frozenset() if self.era is None else {self.era})

    @property
    def version(self) -> str:
        """The revision of MCP that is spoken in the open session."""
        return self._version or MODERN_VERSION

    @property
    def needs_session(self) -> bool:
        """Tell whether the upstream was found to keep sessions, and to speak no era without them."""
        return self._server.eras == {LEGACY} and self._server.issues_ids is True

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
            return await self._modern_only(decides=reply.status in NO_LEGACY)
        client, answer = await self._client("", patience).begun(reply, number)
        if client is None:
            return await self._modern_only(decides=_error_code(answer.response) in _UNKNOWN)
        self._upstream_session, self._version = client.session.id, client.session.protocol_version
        self.era, self.refusal = Era.LEGACY, None
        self._introduced(initialize_result(answer.response) or b"null")
        self._server.issues_ids = self._upstream_session is not None
        if self._server.bridge is not None:
            self._found(LEGACY, other=await self._speaks_modern())
        return 200

    def _found(self, era: Era, *, other: bool | None) -> None:
        """Note that the upstream speaks an era, and whether it speaks the ``other`` one; None where that did not become
        clear: then what was known of that goes on, and nothing is found where nothing was.
        """
        bridge, known = self._server.bridge, self._server.eras
        if bridge is None or (other is None and not known):
            return
        bridge.found(_BOTH if other else frozenset((era,)) if other is not None else known | {era})

    async def _modern_only(self, *, decides: bool) -> int:
        """Try the modern era after a refused ``initialize``. ``decides``: it was refused as what does not exist."""
        status = await self.discover()
        if self.era is MODERN:
            self._found(MODERN, other=False if decides else None)
        return status

    async def _speaks_modern(self) -> bool | None:
        """Tell whether the upstream of an open legacy session speaks the modern era as well; None where its answer does
        not say that, as one that fails.
        """
        try:
            # In that session: without an id some servers open one for every request, and forget it.
            answer = await self._ask(MODERN, "server/discover", {}, None)
        except AdapterError:
            return None
        finally:
            self.refusal = None
        if answer.status == 200 and _is_modern(answer.response):
            return True
        # A server may say in plain text why a request is a bad one.
        is_clear = answer.status == 400 or _error_code(answer.response) in _UNKNOWN
        return False if is_clear or initialize_result(answer.response) is not None else None

    async def discover(self) -> int:
        """Find out whether the upstream speaks the modern era; otherwise as ``open``."""
        answer = await self._ask(Era.MODERN, "server/discover", {}, None)
        if answer.status >= 500:
            raise UpstreamBroken(f"The upstream server answered with HTTP status {answer.status}.")
        self.era = MODERN if answer.status == 200 and _is_modern(answer.response) else None
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
        if method == "server/discover":
            # It is read whole, at once.
            client = client._replace(limit=min(client.limit, LARGE))
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
        like = self._like or UpstreamRequest("POST", server.rules.static, purpose=Purpose.PING)
        session = UpstreamSession(self._upstream_session, version)
        read_timeout = patience or self._read_timeout
        return InnerClient(server.upstream, like, session, read_timeout, server.rules.answer_limit)


def _error_code(response: bytes | None) -> object:
    """The code of an error response; None for anything else."""
    span = None if response is None else find(response, ("error", "code"))
    return None if response is None or span is None else orjson.loads(response[slice(*span)])


def _is_modern(response: bytes | None) -> bool:
    """Tell whether a response is the result of ``server/discover``, with a version of the modern era if it names any.

    A legacy server may answer what it does not know with an error under the status 200.
    """
    result = initialize_result(response)
    versions = None if result is None else read_result(result).get("supportedVersions")
    if not isinstance(versions, list):
        return result is not None
    return any(isinstance(each, str) and is_modern(each) for each in versions)
