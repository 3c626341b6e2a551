"""Recovery of answers that do not come to their end, and read exchanges whose answer comes on another stream.

A legacy upstream may end a POST's stream cleanly after an event id and deliver the response on a later GET with
``Last-Event-ID`` (MCP 2025-11-25, streamable HTTP, "Sending Messages"). The stages that began with the request
must see that response, also when the adapter was restarted in between, so what they need is written down.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from adapter.errors import AdapterError, UpstreamSilent
from adapter.relay.background import BackgroundTasks
from adapter.relay.exchange import ClientRequest, forwardable
from adapter.relay.replies import LIST, discard, is_response
from adapter.relay.sessions.own_session import Resumption
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, CallOrigin, Stages, StageTable, finish, walk_response
from adapter.rules.access.principals import Scope
from adapter.state.port import Store
from adapter.upstream.port import UpstreamReply, UpstreamRequest, always
from adapter.wire.envelope import Envelope, answers, dump, read_envelope

TABLE = "parked"

_CANCEL_SILENCE = 5.0
"""Seconds that an upstream may be silent about a cancellation."""


@dataclass(frozen=True, slots=True)
class Parked:
    call: Call
    stages: Stages


class DeferredAnswers:
    """Parked exchanges by session. ``tables`` has the stages of each server; ``clock`` gives Unix time in seconds,
    ``ttl`` is how long one is kept.
    """

    def __init__(
        self, store: Store, tables: Mapping[str, StageTable], *, ttl: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._tables = tables
        self._ttl = ttl
        self._clock = clock
        self._held: dict[str, dict[str, Parked]] = {}

    async def park(self, session: Session, call: Call, stages: Stages) -> None:
        key = _key(session, call.envelope)
        # First the row: by it alone ``expire`` finds what nobody came back for.
        await self._store.put(TABLE, key, _encode(call), due=self._clock() + self._ttl)
        self._held.setdefault(session.key, {})[key] = Parked(call, stages)

    async def load(self, session: Session) -> None:
        """Bring back what an earlier process parked for this session."""
        prefix = f"{session.key}:"
        rows = await self._store.scan(TABLE, after=prefix)
        held = self._held.setdefault(session.key, {})
        for row in rows:
            if row.key.startswith(prefix) and row.key not in held:
                call = _decode(row.value, session.key)
                held[row.key] = Parked(call, self._tables[call.origin.server].stages_for(call.envelope))
        if not held:
            del self._held[session.key]

    def waits(self, session: Session) -> bool:
        """Tell whether an answer to one of this session's exchanges is still to come."""
        return session.key in self._held

    async def claim(self, session: Session, data: bytes) -> bytes | None:
        """``data`` of an event on a GET stream as its stages want it; None if it answers no parked exchange."""
        held = self._held.get(session.key)
        if held is None:
            return None
        key = await _answered(held, data)
        parked = held.pop(key, None) if key is not None else None
        if key is None or parked is None:
            return None
        if not held:
            self._held.pop(session.key, None)
        try:
            return await walk_response(parked.stages, parked.call, data)
        finally:
            finish(parked.call)
            await self._store.delete(TABLE, key)

    async def expire(self) -> None:
        """Let go of what was not asked for again in time, also where its session has ended."""
        for row in await self._store.overdue(TABLE, self._clock()):
            held = self._held.get(row.key.partition(":")[0], {})
            parked = held.pop(row.key, None)
            if parked is not None:
                finish(parked.call)
            await self._store.delete(TABLE, row.key)
        self._held = {key: held for key, held in self._held.items() if held}


async def _answered(held: Mapping[str, Parked], data: bytes) -> str | None:
    """The key of the exchange that this is the response to."""
    for key, each in list(held.items()):
        envelope = each.call.envelope
        if envelope.method == LIST:
            found = await is_response(data, envelope.id)
        else:
            found = answers(data, envelope.id)
        if found:
            return key
    return None


def _key(session: Session, envelope: Envelope) -> str:
    return f"{session.key}:{dump(envelope.id).decode()}"


def _encode(call: Call) -> bytes:
    request, sent = (base64.b64encode(text).decode() for text in (call.envelope.body, call.request))
    return orjson.dumps(
        {
            "server": call.origin.server,
            "scope": [*call.scope],
            "asked": request,
            "sent": sent,
            "base": call.origin.base,
            "notes": call.notes,
        }
    )


def _decode(value: bytes, session: str) -> Call:
    read = orjson.loads(value)
    envelope = read_envelope(base64.b64decode(read["asked"]))
    assert isinstance(envelope, Envelope), "only single requests are parked"
    return Call(
        CallOrigin(read["server"], session=session, base=read["base"]),
        Scope(*read["scope"]),
        envelope,
        base64.b64decode(read["sent"]),
        notes=read["notes"],
    )


class ExchangeRecovery:
    """Resumes, parks and cancels for one exchange. ``reading`` is the call of a read exchange, which is finished once,
    or parked, and its stages.
    """

    def __init__(
        self,
        ask: ClientRequest,
        session: Session | None,
        requests: list[Envelope],
        deferred: DeferredAnswers,
        background: BackgroundTasks,
        reading: tuple[Call, Stages] | None = None,
    ) -> None:
        self._ask = ask
        self._session = session
        self._requests = requests
        self._deferred = deferred
        self._background = background
        self._reading = reading

    def finish(self) -> None:
        if self._reading is not None:
            (call, _), self._reading = self._reading, None
            finish(call)

    async def resume(self, last_event_id: bytes) -> UpstreamReply | None:
        ask = self._ask
        upstream_session = self._session.upstream.id if self._session else None
        resumption = Resumption(ask.server, ask.headers, upstream_session, ask.sender.version, ask.query)
        return await resumption.after(last_event_id, None)

    async def polled(self) -> None:
        if self._reading is not None and self._session is not None:
            await self._deferred.park(self._session, *self._reading)
            self._reading = None

    async def gave_up(self, error: AdapterError) -> None:
        self._ask.server.counters.failures += 1
        if isinstance(error, UpstreamSilent):
            self.cancel_upstream()

    def cancel_upstream(self) -> None:
        """Tell a legacy upstream that nobody waits any more; a modern one reads it from the closed connection."""
        session = self._session
        if session is None or session.upstream.id is None:
            return
        # The request may have been compressed; this is not.
        fields = forwardable(self._ask.headers, drop=frozenset({"content-encoding"}))
        headers = [*fields, ("Mcp-Session-Id", session.upstream.id)]
        for request in self._requests:
            body = (
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":'
                + request.id_bytes
                + b',"reason":"The adapter waited too long for an answer."}}'
            )
            notification = UpstreamRequest("POST", headers, body, query=self._ask.query, repeatable=always)
            self._background.run(self._send_quietly(notification))

    async def _send_quietly(self, request: UpstreamRequest) -> None:
        try:
            await discard(await self._ask.server.upstream.send(request, _CANCEL_SILENCE), _CANCEL_SILENCE)
        except AdapterError:
            # The upstream is silent or gone; then there is nothing to cancel.
            return
