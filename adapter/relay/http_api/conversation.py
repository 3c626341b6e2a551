"""A client of the relay's own: what a caller over HTTP asks becomes JSON-RPC, in a session or stateless.

It is a client like any other: everything goes through ``Relay.handle``, so gate, stages, files and limits are those
of MCP. What an upstream asks of its client on the way is refused at once, because a caller over HTTP cannot answer it;
only one that said that a person is there (``Who.answers``) is asked for input.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from adapter.errors import (
    AdapterError,
    CallTooLong,
    MessageTooLong,
    SessionMissing,
    SessionUnknown,
    UpstreamBroken,
    UpstreamSilent,
    UpstreamUnanswered,
)
from adapter.relay.background import BackgroundTasks, breathe, slices
from adapter.relay.call.dispatch import CLOSE_SECONDS
from adapter.relay.exchange import (
    LATEST_LEGACY,
    POST_FIELDS,
    ClientRequest,
    ClientResponse,
    Exchanges,
    Sender,
    forwardable,
    requests_of,
    silence_of,
)
from adapter.relay.http_api.callers import (
    INITIALIZED,
    KeptSession,
    Message,
    StreamEnd,
    ToolRefused,
    Who,
    awaited_response,
    object_of,
    pieces_of,
    refusal,
    refused_by_status,
    result_of,
    whole_body,
)
from adapter.relay.http_api.dialogue import CAPABILITIES, Dialogue, ReplyAddress, SharedListener
from adapter.relay.replies import EVENT_STREAM, RESUMPTIONS, is_encoded, media_type, too_large
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import (
    ACCEPT,
    INITIALIZE_PARAMS,
    LONGEST_RETRY,
    MODERN_VERSION,
    NO_CAPABILITIES,
    modern_meta,
    rpc_request,
)
from adapter.rules.access.access_rules import SHAPES
from adapter.rules.access.principals import Caller, party_of
from adapter.upstream.port import header, silent, until
from adapter.wire.envelope import METHOD_NOT_FOUND, dump, envelope_of
from adapter.wire.eras import Era, encode_mirror
from adapter.wire.sse import SseReader

Tell = Callable[[dict[str, Any]], Awaitable[None]]
"""Takes a call's progress: ``progress``, ``total`` and ``message``, of which only the first is always there."""

MOST_REPLIES = 16
"""Requests of the server that one conversation refuses at the same time. Its next message is read after one of these
refusals has been taken, so that a server gets no more out of this adapter than it takes in.
"""

LISTS = {shape.method: shape.key for shape in SHAPES.values()}
"""The methods that answer with lists, and where in their result those stand."""

SHORTEST_RETRY = 1000
"""Milliseconds before a stream that the server ended is opened again."""

_OWN_FIELDS = POST_FIELDS | {"mcp-method", "mcp-name"}
_UNANSWERED = "The upstream server ended its answer without a response."
_PROGRESS = ("progress", "total", "message")
_NEWS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


class _Awaited(NamedTuple):
    """The response that somebody waits for: ``listed`` is where in it there may be a long list."""

    who: Who
    number: int
    tell: Tell | None = None
    listed: str | None = None


class Conversation:
    """Speaks to ``server`` for one caller; ``era`` is the one it is thought to speak, None while that is not known.

    With ``answers`` it declares that a person can be asked. Its requests are counted from ``first_id``.

    ``session`` is its adapter session; None where the era knows none, or it is not open. For who holds it: ``used`` is
    when that was, ``busy`` counts who is using it, ``is_ready`` tells that other processes find it. ``tools`` are those
    that were ``listed`` last, in ``places`` by their names, with ``rights``: tokens of one principal may have different
    scopes.
    """

    def __init__(
        self,
        relay: Exchanges,
        server: Server,
        era: Era | None,
        background: BackgroundTasks,
        *,
        answers: bool = False,
        first_id: int = 1,
    ) -> None:
        self._relay = relay
        self._capabilities = CAPABILITIES if answers else NO_CAPABILITIES
        self._server = server
        self._background = background
        self._ids = itertools.count(first_id)
        self._replies = asyncio.Semaphore(MOST_REPLIES)
        self._has_streams = False
        self.era = era
        self.session: KeptSession | None = None
        self.is_open = self.is_ready = False
        self.opening = asyncio.Lock()
        self.listening = SharedListener(self.listen)
        self.busy = 0
        self.used = self.listed = float("-inf")
        self.tools: Sequence[dict[str, Any]] = ()
        self.places: Mapping[str, int] = {}
        self.rights: object = None

    def __repr__(self) -> str:
        era = self.era.value if self.era and self.is_open else "not open"
        return f"<Conversation with {self._server.id!r}: {era}>"

    def known(self, name: str) -> dict[str, Any] | None:
        """The tool of that name on the list that was read last."""
        place = self.places.get(name)
        return self.tools[place] if place is not None else None

    def adopt(self, session: KeptSession) -> None:
        """Go on in a session that is open."""
        self.session = session
        self.era, self.is_open = Era.LEGACY, True

    # --- its requests -----------------------------------------------------------------------------------------

    def _post(
        self, who: Who, era: Era, message: Message, mirrors: Iterable[tuple[str, str]] = ()
    ) -> ClientRequest:
        """A message; ``mirrors`` are further fields that a modern upstream wants of it. Raises BadRequest."""
        headers = [*self._passed(who), ("Content-Type", "application/json")]
        if era is Era.MODERN:
            headers += [*_mirrored(message), *mirrors]
        ask = self._ask(who, era, "POST", headers)
        ask.body = dump(message)
        ask.envelope = envelope_of(message, ask.body)
        return ask

    def _stream(self, who: Who, last_id: str) -> ClientRequest:
        """A legacy stream, taken up again behind that event; a new one without any. Raises BadRequest."""
        if not last_id:
            return self._ask(who, Era.LEGACY, "GET", self._passed(who))
        return self._ask(who, Era.LEGACY, "GET", [*self._passed(who), ("Last-Event-ID", last_id)], last_id)

    def _delete(self, session: KeptSession) -> ClientRequest:
        """The end of the legacy session, without a request of its caller."""
        return self._ask(
            Who(Caller(session.principal, "http")), Era.LEGACY, "DELETE", list(self._server.rules.static)
        )

    def _ask(
        self, who: Who, era: Era, method: str, headers: list[tuple[str, str]], last_id: str | None = None
    ) -> ClientRequest:
        session_id, version = None, None
        if era is Era.MODERN:
            version = MODERN_VERSION
        elif self.session is not None:
            _, session_id, version = self.session
        headers += [("Accept", ACCEPT), ("Accept-Encoding", "identity")]
        if version is not None:
            headers.append(("MCP-Protocol-Version", version))
        party = party_of(who.caller) if self._server.apart else ""
        sender = Sender(era, who.principal, session_id, version, last_id, who.caller, who.base, party)
        return ClientRequest(self._server, method, sender, headers)

    def _passed(self, who: Who) -> list[tuple[str, str]]:
        """The fields of the caller's own request that may go upstream. Raises BadRequest for one that has to."""
        passed = self._server.rules.passed(who.caller.fields.items(), who.caller.withheld)
        passed = forwardable(passed, drop=_OWN_FIELDS)
        return [each for each in passed if not each[0].lower().startswith("mcp-param-")]

    # --- opening and closing ----------------------------------------------------------------------------------

    async def open(self, who: Who, idle: float) -> None:
        """Open a session, where the server's era has any. It ends when nobody has used it for ``idle`` seconds. Raises
        AdapterError.
        """
        if self.era is not Era.MODERN and await self._initialize(who, idle):
            self.era = Era.LEGACY
        elif await self._discover(who):
            self.era = Era.MODERN
        else:
            raise UpstreamBroken("The upstream server does not support a known version of MCP.")
        self.is_open = True

    async def _initialize(self, who: Who, idle: float) -> bool:
        """Ask the server for a legacy session. Return whether it opened one."""
        number, self.session = next(self._ids), None
        message = rpc_request(number, "initialize", {**INITIALIZE_PARAMS, "capabilities": self._capabilities})
        ask = self._post(who, Era.LEGACY, message)
        ask.idle = idle
        answer = await self._relay.handle(ask)
        result = ((await self._read_response(answer, _Awaited(who, number))).response or {}).get("result")
        session_id = header(answer.headers, "mcp-session-id")
        if answer.status in (401, 403):
            raise refused_by_status(answer.status)
        if answer.status != 200 or session_id is None or not isinstance(result, dict):
            return False
        version = result.get("protocolVersion")
        version = version if isinstance(version, str) else LATEST_LEGACY
        self.session = KeptSession(who.principal, session_id, version)
        await (await self._relay.handle(self._post(who, Era.LEGACY, INITIALIZED))).close()
        return True

    async def _discover(self, who: Who) -> bool:
        """Tell whether the server speaks the modern era, which has no sessions."""
        try:
            await self.ask(who, "server/discover", {}, era=Era.MODERN)
        except (ToolRefused, UpstreamBroken):
            return False
        return True

    async def close(self, within: float = CLOSE_SECONDS) -> None:
        """End the session, if there is one; what the upstream does not close ``within`` seconds the cleanup does."""
        if self.session is None:
            return
        ask = self._delete(self.session)
        self.session, self.is_open = None, False
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
        era: Era | None = None,
    ) -> dict[str, Any]:
        """The result of one request. Cancelling the wait cancels the request.

        Of a long list of tools or resources it has a LongList. ``mirrors`` are header fields that a modern upstream
        wants of the request. ``era`` is that of the open session, unless it is to be found out. Raises ToolRefused,
        AdapterError, and what ``tell`` raises.
        """
        era, number = era or self.era, next(self._ids)
        assert era is not None, "it is open"
        meta: dict[str, Any] = modern_meta(self._capabilities) if era is Era.MODERN else {}
        if tell is not None:
            meta["progressToken"] = number
        message = rpc_request(number, method, {**params, "_meta": meta} if meta else params)
        try:
            ask = self._post(who, era, message, mirrors)
            response = await self._response(ask, _Awaited(who, number, tell, LISTS.get(method)))
        except AdapterError:
            raise
        except BaseException:
            # The caller has gone. A modern upstream reads that from the connection, which is closed by now.
            if era is Era.LEGACY:
                self._background.run(self._say_cancelled(who, number))
            raise
        return result_of(response)

    async def _response(self, ask: ClientRequest, awaited: _Awaited) -> dict[str, Any]:
        """The response, over as many streams as the upstream makes of it."""
        began = asyncio.get_running_loop().time()
        answer = await self._relay.handle(ask)
        try:
            end = await self._read_response(answer, awaited)
            if end.response is not None:
                return end.response
            if answer.status != 200:
                raise refused_by_status(answer.status)
            if ask.sender.era is Era.MODERN:
                raise UpstreamBroken(_UNANSWERED)
            is_call = requests_of(ask.envelope)[0].method == "tools/call"
            total = self._server.timeouts.total if is_call else None
            try:
                # In all, for each stream is a request of its own upstream.
                async with contextlib.nullcontext() if total is None else until(began + total, total):
                    return await self._followed(end, ask, awaited)
            except (UpstreamSilent, CallTooLong):
                why = "The adapter waited too long for an answer."
                self._background.run(self._say_cancelled(awaited.who, awaited.number, why))
                raise
        except (SessionMissing, SessionUnknown):
            # For an unknown session a caller opens another and repeats its request; but this one has left.
            if ask.repeatable():
                raise
            raise UpstreamUnanswered(
                "The session ended before the upstream server answered; the call may have run."
            ) from None

    async def _followed(self, end: StreamEnd, ask: ClientRequest, awaited: _Awaited) -> dict[str, Any]:
        """The response to ``ask`` on the streams with which the upstream goes on after the ``end`` of its answer.

        Raises SessionUnknown where the session ends meanwhile, and UpstreamBroken where no response can be had.
        """
        # Streams of a session have no limit; but here somebody waits for an answer.
        allowed = silence_of(ask, requests_of(ask.envelope))
        last_id = b""
        for _ in range(RESUMPTIONS):
            if end.last_id in (b"", last_id):
                raise UpstreamBroken(_UNANSWERED)
            last_id = end.last_id
            await asyncio.sleep(min((end.retry or 0) / 1000, LONGEST_RETRY))
            answer = await self._relay.handle(self._stream(awaited.who, last_id.decode("latin-1")))
            end = await self._read_response(answer, awaited, allowed)
            if end.response is not None:
                return end.response
            if answer.status != 200:
                raise refused_by_status(answer.status)
        raise UpstreamBroken(f"The upstream server deferred its answer on {RESUMPTIONS} streams in a row.")

    async def _read_response(
        self, answer: ClientResponse, awaited: _Awaited, allowed: float | None = None
    ) -> StreamEnd:
        """Read an answer up to the response, then close it. ``allowed`` are the seconds for which a stream may bring no
        message; None where that is seen to already, or nobody waits. Raises AdapterError.
        """
        limit, tell = self._server.rules.answer_limit, awaited.tell
        try:
            if is_encoded(answer.headers):
                raise UpstreamBroken(
                    "The upstream server compressed an answer although no compression was requested."
                )
            if media_type(answer.headers) != EVENT_STREAM:
                body = await whole_body(answer, limit)
                return StreamEnd(await awaited_response(body, awaited.number, awaited.listed))
            reader = SseReader(limit)
            async with asyncio.timeout(allowed) as silence:
                async for piece in pieces_of(answer):
                    for part in slices(piece):
                        events = reader.feed(part)
                        for event in events:
                            if not event.data:
                                continue
                            response = await awaited_response(event.data, awaited.number, awaited.listed)
                            if response is not None:
                                return StreamEnd(response)
                            await self._observe(event.data, awaited)
                            patience = tell.patience if isinstance(tell, Dialogue) else 0.0
                            if answer.wait_at_least is not None:
                                answer.wait_at_least(patience)
                            if allowed is not None:
                                now = asyncio.get_running_loop().time()
                                silence.reschedule(now + max(allowed, patience))
                        await breathe(len(events))
            return StreamEnd(None, reader.last_id, reader.retry)
        except TimeoutError:
            raise silent(allowed) from None
        except MessageTooLong:
            raise too_large(limit) from None
        finally:
            await answer.close()

    async def listen(self, who: Who, dialogue: Dialogue, opened: asyncio.Event) -> bool:
        """Pass on what the server says outside of answers, until it ends that; ``opened`` is set when it has begun.
        Returns whether the server has a stream for it.

        Raises AdapterError, ToolRefused.
        """
        if self.era is Era.MODERN:
            number = next(self._ids)
            meta = modern_meta(self._capabilities)
            message = rpc_request(number, "subscriptions/listen", {"notifications": _NEWS, "_meta": meta})
            answer = await self._relay.handle(self._post(who, Era.MODERN, message))
            opened.set()
            await self._read_response(answer, _Awaited(who, number, dialogue))
            return True
        last_id = b""
        for _ in range(RESUMPTIONS):
            ask = self._stream(who, last_id.decode("latin-1"))
            # Many servers say 404 where they have no such stream; the session that calls use is not given up for that.
            ask.renews = self._has_streams
            answer = await self._relay.handle(ask)
            opened.set()
            self._has_streams = answer.status == 200 and media_type(answer.headers) == EVENT_STREAM
            if not self._has_streams:
                await answer.close()
                return False
            # No request of this conversation has the id 0.
            end = await self._read_response(answer, _Awaited(who, 0, dialogue))
            if end.response is not None:
                return True
            last_id = end.last_id
            await asyncio.sleep(min(max(end.retry or 0, SHORTEST_RETRY) / 1000, LONGEST_RETRY))
        return True

    async def answer(self, who: Who, number: str | float, result: Mapping[str, Any]) -> None:
        """Answer a question of the server. Raises AdapterError."""
        message: Message = {"jsonrpc": "2.0", "id": number, "result": dict(result)}
        reply = await self._relay.handle(self._post(who, Era.LEGACY, message))
        await reply.close()
        if reply.status >= 400:
            raise refused_by_status(reply.status)

    # --- messages before the response --------------------------------------------------------------------------

    async def _observe(self, data: bytes, awaited: _Awaited) -> None:
        """Pass on progress, refuse a request of the server."""
        who, number, tell, _ = awaited
        message = object_of(data)
        params = message.get("params")
        if message.get("method") == "notifications/progress" and isinstance(params, dict):
            if tell is not None and params.get("progressToken") == number:
                await tell({name: params[name] for name in _PROGRESS if params.get(name) is not None})
        elif "method" in message and "id" in message:
            if isinstance(tell, Dialogue) and await self._is_asked(message, tell):
                return
            # In the background: the server may not read the refusal before its own message was read to the end.
            await self._replies.acquire()
            self._background.run(self._answer_server(who, message["id"], message["method"]))
        elif isinstance(tell, Dialogue):
            await tell.notice(message)

    async def _is_asked(self, message: Message, dialogue: Dialogue) -> bool:
        """Tell whether the caller was asked, so that the answer comes from it."""
        session = self.session
        if message["method"] == "ping" or session is None:
            return False
        address = ReplyAddress(session.version, session.id, message["id"])
        return await dialogue.question(message, address)

    async def _answer_server(self, who: Who, number: Any, method: Any) -> None:
        """Answer a ping of the server, refuse any other request; then another may be refused."""
        if method == "ping":
            message: Message = {"jsonrpc": "2.0", "id": number, "result": {}}
        else:
            message = refusal(number, METHOD_NOT_FOUND, "A caller over HTTP cannot answer requests.")
        try:
            await self._send_quietly(who, message)
        finally:
            self._replies.release()

    async def _say_cancelled(
        self, who: Who, number: int, reason: str = "The caller has disconnected."
    ) -> None:
        params = {"requestId": number, "reason": reason}
        await self._send_quietly(
            who, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        )

    async def _send_quietly(self, who: Who, message: Message) -> None:
        """Send a message that no caller waits for; failures are ignored."""
        if self.session is not None:
            with contextlib.suppress(AdapterError):
                await (await self._relay.handle(self._post(who, Era.LEGACY, message))).close()


def _mirrored(message: Message) -> list[tuple[str, str]]:
    """The headers of a modern request that repeat parts of its body."""
    method, params = message["method"], message["params"]
    name = params.get("uri") if method == "resources/read" else params.get("name")
    mirror = [] if name is None else [("Mcp-Name", encode_mirror(name))]
    return [("Mcp-Method", method), *mirror]
