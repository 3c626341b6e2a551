"""The relay between a host's pipe and a server over streamable HTTP, in both eras.

Sources of the rules: MCP 2025-11-25, "Transports" (sessions, streams, resumption), and 2026-07-28, "Streamable HTTP"
(headers that mirror the body, the end of a stream cancels) and "stdio".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from adapter.commands.connect.exchange import (
    LONGEST_ANSWER,
    HostExchange,
    StandingRequests,
    mirrored_in,
)
from adapter.commands.connect.files import METHODS, LocalUploads, ResultFolder
from adapter.commands.connect.folders import NotAllowed
from adapter.errors import (
    AdapterError,
    BadJson,
    BadRequest,
    SessionUnknown,
    UpstreamBroken,
    UpstreamUnreachable,
)
from adapter.relay.param_headers import ParamHeaders, mirrors
from adapter.relay.replies import EVENT_STREAM, discard, media_type
from adapter.relay.sessions.inner_client import (
    INITIALIZED,
    InnerClient,
    initialize_result,
    opened,
    read_result,
)
from adapter.rules.access.sessions import UpstreamSession
from adapter.upstream.client_refusals import ServerRefused
from adapter.upstream.port import STREAM, Upstream, UpstreamRequest, always, header
from adapter.wire.envelope import Batch, Envelope, dump, failure, parse, read_envelope, value_at
from adapter.wire.eras import MODERN, NAMED, classify, encode_mirror
from adapter.wire.line_messages import Line, LongLine
from adapter.wire.shared_ids import CANCELLED, with_id

MOST_REQUESTS = 1000
"""Requests of the host that are under way at a time."""

_NOTICE_PATIENCE = 30.0
"""Seconds in which a server takes a message that has no answer."""

LISTEN = "subscriptions/listen"

_END_PATIENCE = 2.0
_LEAST_PAUSE = 0.1
_ATTEMPTS = 3
_OWN = "mcp-adapter connect"
"""The id of a request of our own begins with it."""

_OF_CLIENT = tuple(
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities")
)
_CHANGING = ("tools", "prompts", "resources")


class StdioRelay:
    """Takes the lines of a host, and writes what the server says to it."""

    def __init__(
        self,
        server: Upstream,
        write: Callable[[bytes], Awaitable[None]],
        say: Callable[[str], None],
        uploads: LocalUploads | None = None,
        results: ResultFolder | None = None,
    ) -> None:
        self._server, self._write, self._say = server, write, say
        self._uploads, self._results = uploads, results
        self._numbers = itertools.count(1)
        self._session: UpstreamSession | None = None
        self._opening: bytes | None = None
        self._modern: str | None = None
        self._under_way: dict[asyncio.Task[None], HostExchange] = {}
        self._initializing: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self._mirrors = ParamHeaders()
        self._standing = StandingRequests()

    async def take(self, line: Line) -> None:
        """Take one line of the host. Messages without an answer are sent before the next line is taken."""
        try:
            if isinstance(line, LongLine):
                raise BadRequest(f"A message of {line.size} bytes is too long.")
            message = read_envelope(line)
        except AdapterError as error:
            spelled = error.id_bytes if isinstance(error, BadRequest) else None
            await self._write(failure(error, spelled or b"null"))
            return
        if self._initializing is not None:
            # What a host sends before it is answered, as a script does, belongs to the session.
            await asyncio.wait([self._initializing])
        exchange = HostExchange(message, self._deliver)
        if exchange.waiting and len(self._under_way) >= MOST_REQUESTS:
            await exchange.fail(BadRequest(f"{MOST_REQUESTS} requests are under way: wait for answers."))
        elif exchange.waiting:
            exchange.modern = classify(None, message) is MODERN
            task = asyncio.ensure_future(self._answered(exchange))
            self._under_way[task] = exchange
            task.add_done_callback(self._under_way.pop)
            self._initializing = task if exchange.method == "initialize" else None
        elif not self._cancels(message):
            await self._tell(message)

    async def settle(self) -> None:
        """Wait until all that has an end is answered."""
        if tasks := [task for task, each in self._under_way.items() if each.method != LISTEN]:
            await asyncio.wait(tasks)

    async def end(self) -> None:
        """End all that is under way, and the session at the server."""
        tasks = [*self._under_way, *([self._listener] if self._listener is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            with contextlib.suppress(AdapterError, TimeoutError):
                async with asyncio.timeout(_END_PATIENCE):
                    await self._client(self._session).close(_END_PATIENCE)

    async def _answered(self, exchange: HostExchange) -> None:
        try:
            if self._uploads is not None and exchange.method == "tools/call":
                await self._upload(self._uploads, exchange)
            await self._request(exchange)
        except AdapterError as error:
            await exchange.fail(error)
        except (NotAllowed, ServerRefused) as refused:
            await exchange.refuse(str(refused))

    async def _request(self, exchange: HostExchange) -> None:
        await (self._modern_request if exchange.modern else self._legacy_request)(exchange)

    async def _upload(self, uploads: LocalUploads, exchange: HostExchange) -> None:
        assert isinstance(exchange.message, Envelope), "a batch has no method"
        exchange.preparing = True
        ask = partial(self._ask, exchange)
        exchange.message, exchange.handles = await uploads.uploaded(exchange.message, ask)
        exchange.preparing = False

    async def _ask(self, beside: HostExchange, method: str, params: Mapping[str, Any]) -> Any:
        """The result of a request of our own, in the era of one of the host. Raises AdapterError, ServerRefused."""
        number = f"{_OWN}, {next(self._numbers)}"
        if beside.modern and isinstance(beside.message, Envelope):
            meta = parse(beside.message.body)["params"]["_meta"]
            params = {**params, "_meta": {key: each for key, each in meta.items() if key in _OF_CLIENT}}
        response: Mapping[str, Any] = {}

        async def deliver(data: bytes, own: HostExchange) -> None:
            nonlocal response
            message = parse(data)
            if isinstance(message, dict) and message.get("id") == number and "method" not in message:
                response = message
            else:
                await self._deliver(data, own)

        body = dump({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        own = HostExchange(read_envelope(body), deliver)
        own.modern = beside.modern
        await self._request(own)
        if isinstance(error := response.get("error"), dict):
            raise ServerRefused(str(error.get("message")), error.get("data"))
        return response.get("result")

    async def _deliver(self, data: bytes, exchange: HostExchange) -> None:
        if self._uploads is not None and exchange.handles:
            with contextlib.suppress(BadJson):
                self._uploads.keep(data, exchange.handles)
        if exchange.method == "initialize" and exchange.message is not None:
            # Before the host reads that it may use it.
            if (session := opened(exchange.session_id, data)) is not None:
                self._session, self._opening = session, exchange.message.body
        elif exchange.method == "tools/list":
            # What cannot be read passes: the host waits for an answer.
            with contextlib.suppress(BadJson):
                found = mirrored_in(data)
                self._mirrors.learn(found, found)
                data = data if self._uploads is None else self._uploads.learn(data)
        elif self._results is not None and exchange.method in METHODS:
            assert isinstance(exchange.message, Envelope), "a batch has no method"
            name = exchange.message.name or "result"
            data = await self._results.saved(data, name, partial(self._ask, exchange))
        await self._write(data)

    # --- messages without an answer -----------------------------------------------------------------------------

    def _cancels(self, message: Envelope | Batch) -> bool:
        """End the modern request that a notification cancels, since over HTTP its stream does that (MCP 2026-07-28),
        and one that was not sent yet.
        """
        has_own = self._modern is not None or self._uploads is not None
        if not has_own or isinstance(message, Batch) or message.method != CANCELLED:
            return False
        number = value_at(parse(message.body), "params", "requestId")
        number = number if isinstance(number, str | int | float) else None
        ended = False
        for task, exchange in self._under_way.items():
            if number in exchange.waiting and (exchange.modern or exchange.preparing):
                ended = task.cancel()
        return ended or self._session is None

    async def _tell(self, message: Envelope | Batch) -> None:
        session = self._session or UpstreamSession(None, self._modern or "")
        method = message.method if isinstance(message, Envelope) else ""
        client = self._client(session, _NOTICE_PATIENCE)
        fields = [] if self._session or not method else [("Mcp-Method", method)]
        repeatable = HostExchange(message, self._deliver).repeatable
        try:
            reply = await client.post(message.body, fields, repeatable)
            await discard(reply, _NOTICE_PATIENCE)
            if reply.status == 404 and session.id is not None:
                session = await self._renew(session)
                await self._client(session, _NOTICE_PATIENCE).tell(message.body)
        except AdapterError as error:
            self._say(f"A message was lost: {error}")
        if method == "notifications/initialized" and self._session is not None:
            self._listen(self._session)

    # --- requests without sessions ------------------------------------------------------------------------------

    async def _modern_request(self, exchange: HostExchange) -> None:
        message = exchange.message
        if not isinstance(message, Envelope):
            raise BadRequest("This revision of MCP has no batches.")
        self._modern = message.meta.version or self._modern
        fields = [("Mcp-Method", message.method)]
        if message.name is not None and message.method in NAMED:
            fields.append(("Mcp-Name", encode_mirror(message.name)))
        if message.method == "tools/call":
            arguments = value_at(parse(message.body), "params", "arguments")
            fields += mirrors(self._mirrors.of(message.name or ""), arguments)
        client = self._client(UpstreamSession(None, message.meta.version or ""))
        while exchange.waiting:
            try:
                await exchange.read(await client.post(message.body, fields, exchange.repeatable))
                if exchange.waiting:
                    raise UpstreamBroken
            except (UpstreamUnreachable, UpstreamBroken):
                # A subscription outlives the connections that it comes on.
                if exchange.method != LISTEN:
                    raise
                await asyncio.sleep(max(exchange.retry, _LEAST_PAUSE))

    # --- requests in sessions -----------------------------------------------------------------------------------

    async def _legacy_request(self, exchange: HostExchange) -> None:
        assert exchange.message is not None, "only streams have none"
        session = None if exchange.method == "initialize" else self._session
        for _ in range(_ATTEMPTS):
            client = self._client(session or UpstreamSession(None, ""))
            reply = await client.post(exchange.message.body, (), exchange.repeatable)
            if reply.status != 404 or session is None or session.id is None:
                break
            reply.abort()
            session = await self._renew(session)
        exchange.session_id = header(reply.headers, "mcp-session-id")
        await exchange.read(reply)
        while exchange.waiting:
            if not exchange.last_id:
                raise UpstreamBroken
            pause = int(1000 * max(exchange.retry, _LEAST_PAUSE))
            rest = await client.resume(exchange.last_id, pause)
            if rest is None:
                raise UpstreamBroken
            await exchange.read(rest)
        self._standing.note(exchange.message)

    def _client(self, session: UpstreamSession, read_timeout: float | None = None) -> InnerClient:
        return InnerClient(self._server, UpstreamRequest("POST", ()), session, read_timeout, LONGEST_ANSWER)

    async def _renew(self, lost: UpstreamSession, *, listens: bool = True) -> UpstreamSession:
        """Open another session in place of one that the server forgot; once for many callers.

        Raises SessionUnknown where it opens none like it.
        """
        async with self._renewing:
            if self._session is not lost or self._opening is None:
                return self._session or lost
            client = self._client(UpstreamSession(None, ""))
            reply = await client.post(with_id(self._opening, dump(_OWN)))
            answer = await client.answer(reply, _OWN, keeps_raw=False)
            session = opened(header(reply.headers, "mcp-session-id"), answer.response)
            if session is None or session.protocol_version != lost.protocol_version:
                raise SessionUnknown(
                    "The server has forgotten the session and opens no other: start the host again."
                )
            self._session = session
            await self._client(session).tell(INITIALIZED)
            await self._repeat_standing(self._client(session, _NOTICE_PATIENCE))
        self._say("The server had forgotten the session; another one is open.")
        if listens:
            self._listen(session)
        offered = read_result(initialize_result(answer.response) or b"{}").get("capabilities")
        for kind in _CHANGING:
            if isinstance(offered, dict) and kind in offered:
                await self._write(
                    b'{"jsonrpc":"2.0","method":"notifications/%s/list_changed"}' % kind.encode()
                )
        return session

    async def _repeat_standing(self, client: InnerClient) -> None:
        for number, body in enumerate(self._standing.bodies()):
            name = f"{_OWN}, again {number}"
            with contextlib.suppress(
                AdapterError
            ):  # of one that holds no longer the host hears nothing either
                reply = await client.post(with_id(body, dump(name)))
                await client.answer(reply, name, keeps_raw=False)

    # --- what the server says by itself -------------------------------------------------------------------------

    def _listen(self, session: UpstreamSession) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = asyncio.ensure_future(self._listening(session))

    async def _listening(self, session: UpstreamSession) -> None:
        """Follow the stream of a session as long as the server has one."""
        stream, was_open = HostExchange(None, self._deliver), False
        while True:
            fields = [("Accept", EVENT_STREAM), ("MCP-Protocol-Version", session.protocol_version)]
            fields += [("Mcp-Session-Id", session.id)] if session.id is not None else []
            fields += [("Last-Event-ID", stream.last_id.decode("latin-1"))] if stream.last_id else []
            try:
                request = UpstreamRequest("GET", fields, repeatable=always, purpose=STREAM)
                reply = await self._server.send(request, None)
                if reply.status == 404 and was_open:
                    reply.abort()
                    session = await self._renew(session, listens=False)
                    stream, was_open = HostExchange(None, self._deliver), False
                    continue
                if reply.status != 200 or media_type(reply.headers) != EVENT_STREAM:
                    reply.abort()
                    return
                was_open = True
                await stream.read(reply)
            except SessionUnknown:
                return
            except AdapterError:
                pass  # it is asked for again
            await asyncio.sleep(max(stream.retry, _LEAST_PAUSE))
