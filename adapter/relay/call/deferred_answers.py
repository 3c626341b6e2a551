"""Read exchanges whose answer is still to come on another stream.

A legacy upstream may end a POST's stream cleanly after an event id and deliver the response on a later GET with
``Last-Event-ID`` (MCP 2025-11-25, streamable HTTP, "Sending Messages"). The stages that began with the request
must see that response, also when the adapter was restarted in between, so what they need is written down.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from adapter.relay.replies import LIST, is_response
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, Plan, Stages, finish, walk_response
from adapter.rules.access.principals import Scope
from adapter.state.port import Store
from adapter.wire.envelope import Envelope, answers, dump, read_envelope

TABLE = "parked"


@dataclass(frozen=True, slots=True)
class Parked:
    call: Call
    stages: Stages


class DeferredAnswers:
    """Parked exchanges by session. ``clock`` gives Unix time in seconds, ``ttl`` is how long one is kept."""

    def __init__(
        self, store: Store, plans: Mapping[str, Plan], *, ttl: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._plans = plans
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
                call = _decode(row.value)
                call.session = session.key
                held[row.key] = Parked(call, self._plans[call.server].stages_for(call.envelope))
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
            "server": call.server,
            "scope": [*call.scope],
            "asked": request,
            "sent": sent,
            "base": call.base,
            "notes": call.notes,
        }
    )


def _decode(value: bytes) -> Call:
    read = orjson.loads(value)
    envelope = read_envelope(base64.b64decode(read["asked"]))
    assert isinstance(envelope, Envelope), "only single requests are parked"
    return Call(
        server=read["server"],
        scope=Scope(*read["scope"]),
        envelope=envelope,
        request=base64.b64decode(read["sent"]),
        base=read["base"],
        notes=read["notes"],
    )
