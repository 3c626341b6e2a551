"""How an upstream is: pings in a session of their own, the breaker they feed, and what health tells of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamBroken, UpstreamUnreachable
from adapter.relay.answers import read_answer, read_body
from adapter.relay.mapping import (
    ACCEPT,
    INITIALIZED,
    LATEST_LEGACY,
    Resumption,
    initialize_result,
    negotiated_version,
)
from adapter.relay.server import Server
from adapter.rules.breaker import BreakerState
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.wire.eras import MODERN_VERSIONS, Era

MODERN_VERSION = MODERN_VERSIONS[-1]
_CLIENT = {"name": "mcp-file-adapter", "version": "1"}


@dataclass(frozen=True, slots=True)
class PingSettings:
    """Seconds, and how many failures in a row open the breaker."""

    interval: float = 15.0
    timeout: float = 5.0


@dataclass(slots=True)
class Pulse:
    """What the last ping found. ``latency`` in seconds; times are Unix seconds."""

    reached: bool = False
    era: Era | None = None
    latency: float | None = None
    error: str | None = None
    last_success: float | None = None
    last_attempt: float | None = None


class Probe:
    """Pings one upstream in a session that belongs to no client."""

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._session: tuple[str | None, str] | None = None
        self.era: Era | None = None

    async def ping(self) -> None:
        """Raises an AdapterError unless the upstream answered as an MCP server, in whichever era it speaks.

        A refusal for want of credentials is an answer too: they are the clients' to bring.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._ping()
        except TimeoutError:
            raise UpstreamUnreachable(f"No answer to a ping within {self._timeout:g} s.") from None

    async def _ping(self) -> None:
        if self.era is Era.MODERN:
            await self._discover()
        elif self._session is None:
            await self._open()
        else:
            await self._ping_session(*self._session)

    async def _open(self) -> None:
        params: dict[str, object] = {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {},
            "clientInfo": _CLIENT,
        }
        reply = await self._post(_request("initialize", params), [])
        if reply.status in (401, 403):
            reply.abort()
            return
        upstream_session = header(reply.headers, "mcp-session-id")
        if reply.status != 200:
            reply.abort()
            await self._discover()
            return
        resume = Resumption(self._server, self._headers([]), upstream_session, None).after
        answer = await read_answer(reply, 1, self._timeout, resume)
        result = initialize_result(answer.response)
        if result is None:
            await self._discover()
            return
        self.era = Era.LEGACY
        self._session = (upstream_session, negotiated_version(result))
        reply = await self._post(INITIALIZED, self._session_headers(*self._session))
        await read_body(reply, self._timeout)

    async def _ping_session(self, upstream_session: str | None, version: str) -> None:
        reply = await self._post(_request("ping", None), self._session_headers(upstream_session, version))
        if reply.status == 200:
            resume = Resumption(self._server, self._headers([]), upstream_session, version).after
            await read_answer(reply, 1, self._timeout, resume)
            return
        reply.abort()
        self._session = None
        await self._open()

    async def _discover(self) -> None:
        meta: dict[str, object] = {
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        fields = [("MCP-Protocol-Version", MODERN_VERSION), ("Mcp-Method", "server/discover")]
        reply = await self._post(_request("server/discover", {"_meta": meta}), fields)
        if reply.status >= 500:
            reply.abort()
            raise UpstreamBroken(f"A ping was answered with HTTP status {reply.status}.")
        await read_body(reply, self._timeout)
        self.era = Era.MODERN if reply.status == 200 else None

    async def close(self) -> None:
        """End the probe's own session upstream."""
        if self._session is None or self._session[0] is None:
            return
        headers = self._headers(self._session_headers(*self._session))
        self._session = None
        with contextlib.suppress(AdapterError):
            reply = await self._server.upstream.send(UpstreamRequest("DELETE", headers), self._timeout)
            reply.abort()

    async def _post(self, body: bytes, fields: list[tuple[str, str]]) -> UpstreamReply:
        return await self._server.upstream.send(
            UpstreamRequest("POST", self._headers(fields), body), self._timeout
        )

    def _headers(self, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        kind = [("Accept", ACCEPT), ("Content-Type", "application/json")]
        return [*self._server.static, *kind, *fields]

    def _session_headers(self, upstream_session: str | None, version: str) -> list[tuple[str, str]]:
        fields = [("MCP-Protocol-Version", version)]
        return [*fields, ("Mcp-Session-Id", upstream_session)] if upstream_session is not None else fields


def _request(method: str, params: dict[str, object] | None) -> bytes:
    message: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        message["params"] = params
    return orjson.dumps(message)


class Watch:
    """Pings one server on its interval and feeds its breaker. ``clock`` gives Unix time in seconds."""

    def __init__(
        self, server: Server, settings: PingSettings, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> None:
        self.server = server
        self.pulse = Pulse()
        self.first = asyncio.Event()
        self._settings = settings
        self._probe = Probe(server, settings.timeout)
        self._clock = clock
        self._log = log

    async def run(self) -> None:
        """Ping until cancelled; servers are watched apart, so that a slow one delays no other."""
        loop = asyncio.get_running_loop()
        while True:
            breaker = self.server.breaker
            if breaker is None or breaker.may_probe(loop.time()):
                await self.ping_once()
            await asyncio.sleep(self._pause(loop.time()))

    async def ping_once(self) -> None:
        loop = asyncio.get_running_loop()
        breaker, began = self.server.breaker, loop.time()
        before = breaker.state if breaker else BreakerState.CLOSED
        if breaker is not None:
            breaker.probe_started()
        self.pulse.last_attempt = self._clock()
        try:
            await self._ask()
        except AdapterError as error:
            self.pulse.reached, self.pulse.error = False, str(error)
            if breaker is not None:
                breaker.failed(loop.time())
        except asyncio.CancelledError:
            if breaker is not None:
                breaker.probe_abandoned()
            raise
        else:
            self.pulse.reached, self.pulse.error, self.pulse.era = True, None, self._probe.era
            self.pulse.latency = loop.time() - began
            self.pulse.last_success = self._clock()
            if breaker is not None:
                breaker.succeeded(loop.time())
        self.first.set()
        if breaker is not None and breaker.state is not before:
            self._log.warning(
                "breaker changed", server=self.server.id, state=breaker.state.value, why=self.pulse.error
            )

    async def _ask(self) -> None:
        try:
            await self._probe.ping()
        except AdapterError:
            raise
        except Exception as error:
            # A defect here must not end the watch: the breaker would stay as it is for good.
            self._log.exception("a ping failed unexpectedly", server=self.server.id)
            raise UpstreamBroken("A ping failed unexpectedly; the adapter's log has the details.") from error

    def _pause(self, now: float) -> float:
        """Until the next ping: sooner than the interval before the first success, and when the breaker opens."""
        if self.pulse.last_success is None:
            return min(1.0, self._settings.interval)
        breaker = self.server.breaker
        if breaker is not None and breaker.state is BreakerState.OPEN:
            return min(self._settings.interval, breaker.retry_after(now))
        return self._settings.interval

    async def close(self) -> None:
        await self._probe.close()
