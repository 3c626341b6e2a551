"""A client of the relay's own: what a caller over HTTP asks becomes JSON-RPC, in a session or stateless.

It is a client like any other: everything goes through ``Relay.handle``, so gate, stages, files and limits are those
of MCP. What an upstream asks of its client on the way is refused at once, for nobody here could answer it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from adapter.errors import (
    AdapterError,
    MessageTooLong,
    SessionMissing,
    SessionUnknown,
    UpstreamBroken,
    UpstreamUnanswered,
)
from adapter.relay.background import BackgroundTasks
from adapter.relay.exchange import LATEST_LEGACY, ClientRequest, ClientResponse
from adapter.relay.http_api.callers import (
    CLIENT,
    INITIALIZED,
    METHOD_NOT_FOUND,
    Asks,
    Message,
    ToolRefused,
    Who,
    modern_meta,
    object_of,
    refusal,
    request,
    result_of,
)
from adapter.relay.relay import CLOSE_SECONDS, Relay
from adapter.relay.replies import LARGE, RESUMPTIONS, too_large
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LONGEST_RETRY
from adapter.relay.turns import breathe, in_turns, slices
from adapter.rules.access.sessions import session_key
from adapter.rules.tools.lists import long_response
from adapter.upstream.port import header
from adapter.wire.envelope import response_in
from adapter.wire.eras import Era
from adapter.wire.sse import SseReader

Tell = Callable[[dict[str, Any]], Awaitable[None]]
"""Told of a call's progress, as ``progress``, ``total`` and ``message`` of which only the first is always there."""

MOST_REPLIES = 16
"""Requests of the server that one conversation refuses at the same time. Its next message is read after one of these
refusals has been taken, so that a server gets no more out of this adapter than it takes in.
"""

LISTS = {"tools/list": "tools", "resources/list": "resources"}
"""The methods that answer with lists, and where in their result those stand."""

_PROGRESS = ("progress", "total", "message")


class _Heard(NamedTuple):
    """The response that a stream brought, or the event id to resume it from after ``retry`` milliseconds."""

    response: dict[str, Any] | None
    last_id: bytes = b""
    retry: int | None = None


class Conversation:
    """Speaks to ``server`` for one caller; ``era`` is the one it is thought to speak, None while nobody knows."""

    def __init__(self, relay: Relay, server: Server, era: Era | None, background: BackgroundTasks) -> None:
        self._relay = relay
        self._asks = Asks(server)
        self._background = background
        self._ids = itertools.count(1)
        self._replies = asyncio.Semaphore(MOST_REPLIES)
        self.era = era
        self.is_open = False

    def __repr__(self) -> str:
        era = self.era.value if self.era and self.is_open else "not open"
        return f"<Conversation with {self._asks.server.id!r}: {era}>"

    @property
    def session_key(self) -> str | None:
        """The key of its adapter session; None where the era knows none, or it is not open."""
        session_id = self._asks.session_id
        return None if session_id is None else session_key(session_id)

    # --- opening and closing ----------------------------------------------------------------------------------

    async def open(self, who: Who) -> None:
        """Open a session, where the server's era has any. Raises AdapterError."""
        if self.era is not Era.MODERN and await self._initialize(who):
            self.era = Era.LEGACY
        elif await self._discover(who):
            self.era = Era.MODERN
        else:
            raise UpstreamBroken("The upstream server does not support a known version of MCP.")
        self.is_open = True

    async def _initialize(self, who: Who) -> bool:
        """Ask the server for a legacy session. Return whether it opened one."""
        asks, number = self._asks, next(self._ids)
        asks.session_id = asks.version = None
        params = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        answer = await self._relay.handle(asks.post(who, Era.LEGACY, request(number, "initialize", params)))
        result = ((await self._heard(answer, who, number)).response or {}).get("result")
        session_id = header(answer.headers, "mcp-session-id")
        if answer.status in (401, 403):
            raise _refused_by_status(answer.status)
        if answer.status != 200 or session_id is None or not isinstance(result, dict):
            return False
        version = result.get("protocolVersion")
        asks.session_id = session_id
        asks.version = version if isinstance(version, str) else LATEST_LEGACY
        await (await self._relay.handle(asks.post(who, Era.LEGACY, INITIALIZED))).close()
        return True

    async def _discover(self, who: Who) -> bool:
        """Tell whether the server speaks the modern era, which has no sessions."""
        try:
            await self._exchange(who, "server/discover", {}, Era.MODERN)
        except (ToolRefused, UpstreamBroken):
            return False
        return True

    async def close(self, principal: str, within: float = CLOSE_SECONDS) -> None:
        """End the session, if there is one; what the upstream does not close ``within`` seconds the janitor does."""
        if self._asks.session_id is None:
            return
        ask = self._asks.end(principal)
        self._asks.session_id, self.is_open = None, False
        with contextlib.suppress(AdapterError):
            await (await self._relay.end(ask, within)).close()

    # --- asking -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        who: Who,
        method: str,
        params: dict[str, Any],
        *,
        tell: Tell | None = None,
        mirrors: Iterable[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        """The result of one request. Whoever cancels the wait cancels the request.

        Of a long list of tools or resources it has a LongList. ``mirrors`` are header fields that a modern upstream
        wants of the request. Raises ToolRefused, AdapterError, and what ``tell`` raises.
        """
        assert self.era is not None, "it is open"
        return await self._exchange(who, method, params, self.era, tell, mirrors)

    async def _exchange(
        self,
        who: Who,
        method: str,
        params: dict[str, Any],
        era: Era,
        tell: Tell | None = None,
        mirrors: Iterable[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        number = next(self._ids)
        meta: dict[str, Any] = modern_meta() if era is Era.MODERN else {}
        if tell is not None:
            meta["progressToken"] = number
        message = request(number, method, {**params, "_meta": meta} if meta else params)
        try:
            ask = self._asks.post(who, era, message, mirrors)
            response = await self._response(ask, who, number, tell, LISTS.get(method))
        except AdapterError:
            raise
        except BaseException:
            # Whoever waited has gone. A modern upstream reads that from the connection, which is closed by now.
            if era is Era.LEGACY:
                self._background.run(self._say_cancelled(who, number))
            raise
        return result_of(response)

    async def _response(
        self, ask: ClientRequest, who: Who, number: int, tell: Tell | None, listed: str | None
    ) -> dict[str, Any]:
        """The response, over as many streams as the upstream makes of it. ``listed`` is where it may have a list."""
        answer = await self._relay.handle(ask)
        try:
            return await self._followed(answer, ask, who, number, tell, listed)
        except (SessionMissing, SessionUnknown):
            # Whoever hears of an unknown session opens another and asks anew; but this request has left.
            if ask.repeatable():
                raise
            raise UpstreamUnanswered(
                "The session ended before the upstream server answered; the call may have run."
            ) from None

    async def _followed(
        self,
        answer: ClientResponse,
        ask: ClientRequest,
        who: Who,
        number: int,
        tell: Tell | None,
        listed: str | None,
    ) -> dict[str, Any]:
        """The response to ``ask``, in its answer or on the streams with which the upstream goes on.

        Raises SessionUnknown where the session ends meanwhile, and UpstreamBroken where no response can be had.
        """
        last_id = b""
        for _ in range(RESUMPTIONS):
            heard = await self._heard(answer, who, number, tell, listed)
            if heard.response is not None:
                return heard.response
            if answer.status != 200:
                raise _refused_by_status(answer.status)
            if ask.era is Era.MODERN or heard.last_id in (b"", last_id):
                raise UpstreamBroken("The upstream server ended its answer without a response.")
            last_id = heard.last_id
            await asyncio.sleep(min((heard.retry or 0) / 1000, LONGEST_RETRY))
            answer = await self._relay.handle(self._asks.listen(who, last_id.decode("latin-1")))
        await answer.close()
        raise UpstreamBroken(f"The upstream server deferred its answer on {RESUMPTIONS} streams in a row.")

    async def _heard(
        self,
        answer: ClientResponse,
        who: Who,
        number: int,
        tell: Tell | None = None,
        listed: str | None = None,
    ) -> _Heard:
        """Read an answer up to the response, then close it. Raises AdapterError."""
        limit = self._asks.server.answer_limit
        try:
            if (header(answer.headers, "content-encoding") or "identity").strip().lower() != "identity":
                raise UpstreamBroken(
                    "The upstream server compressed an answer although no compression was requested."
                )
            kind = (header(answer.headers, "content-type") or "").partition(";")[0].strip().lower()
            if kind != "text/event-stream":
                body = await _whole(answer, limit)
                return _Heard(await _response_in(body, number, listed))
            reader = SseReader(limit)
            async for piece in _pieces(answer):
                for part in slices(piece):
                    events = reader.feed(part)
                    for event in events:
                        if not event.data:
                            continue
                        response = await _response_in(event.data, number, listed)
                        if response is not None:
                            return _Heard(response)
                        await self._observe(event.data, who, number, tell)
                    await breathe(len(events))
            return _Heard(None, reader.last_id, reader.retry)
        except MessageTooLong:
            raise too_large(limit) from None
        finally:
            await answer.close()

    # --- what is said on the way ------------------------------------------------------------------------------

    async def _observe(self, data: bytes, who: Who, number: int, tell: Tell | None) -> None:
        """A message before the response: progress is told, a request of the server's refused."""
        message = object_of(data)
        params = message.get("params")
        if message.get("method") == "notifications/progress" and isinstance(params, dict):
            if tell is not None and params.get("progressToken") == number:
                await tell({name: params[name] for name in _PROGRESS if params.get(name) is not None})
        elif "method" in message and "id" in message:
            # Apart, for the server may not read it before it has been heard out here.
            await self._replies.acquire()
            self._background.run(self._answer_server(who, message["id"], message["method"]))

    async def _answer_server(self, who: Who, number: Any, method: Any) -> None:
        """Refuse a request of the server's, but for a ping; then another may be refused."""
        if method == "ping":
            message: Message = {"jsonrpc": "2.0", "id": number, "result": {}}
        else:
            message = refusal(number, METHOD_NOT_FOUND, "A caller over HTTP cannot answer requests.")
        try:
            await self._send_quietly(who, message)
        finally:
            self._replies.release()

    async def _say_cancelled(self, who: Who, number: int) -> None:
        params = {"requestId": number, "reason": "The caller has disconnected."}
        await self._send_quietly(
            who, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        )

    async def _send_quietly(self, who: Who, message: Message) -> None:
        """A message that nobody waits for; an upstream that does not take it has had its chance."""
        if self._asks.session_id is not None:
            with contextlib.suppress(AdapterError):
                await (await self._relay.handle(self._asks.post(who, Era.LEGACY, message))).close()


async def _response_in(data: bytes, number: int, listed: str | None) -> dict[str, Any] | None:
    """As ``envelope.response_in``; a long list is read in turns."""
    if listed is None or len(data) <= LARGE:
        return response_in(data, number)
    return await in_turns(long_response(data, number, listed))


async def _pieces(answer: ClientResponse) -> AsyncIterator[bytes]:
    if isinstance(answer.body, bytes):
        yield answer.body
        return
    async for piece in answer.body:
        yield piece


async def _whole(answer: ClientResponse, limit: int) -> bytes:
    if isinstance(answer.body, bytes) and len(answer.body) <= limit:
        return answer.body
    pieces: list[bytes] = []
    size = 0
    async for piece in _pieces(answer):
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def _refused_by_status(status: int) -> UpstreamBroken:
    if status in (401, 403):
        return UpstreamBroken(f"The upstream server refused the caller's credentials (HTTP status {status}).")
    return UpstreamBroken(f"The upstream server answered with HTTP status {status}.")
