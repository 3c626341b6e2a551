"""Read exchanges whose answer comes on another stream than their own, on any replica.

A legacy upstream may end a POST's stream cleanly after an event id and deliver the response on a later GET with
``Last-Event-ID`` (MCP 2025-11-25, streamable HTTP, "Sending Messages"). The stages that began with the request
must see that response, also when the adapter was restarted in between, or when another replica has that GET, so what
they need is written down.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

import orjson

from adapter.errors import StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.cleanup import Lease
from adapter.relay.replies import LIST, is_response
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, CallOrigin, Stages, StageTable, finish, walk_response
from adapter.rules.access.principals import Scope
from adapter.state.port import Store, StoreListener, delete_overdue
from adapter.wire.envelope import Envelope, answers, dump, read_envelope

TABLE = "parked"

CLAIM = 10.0
"""Seconds after which the answer of a replica that died while it edited it is another one's."""

MOST_OF_SESSION = 1000
"""Exchanges of one session that are brought back from the store."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A read exchange that waits for its answer, until ``due`` (Unix seconds)."""

    call: Call
    stages: Stages
    due: float


@dataclass(eq=False, repr=False)
class DeferredAnswers(StoreListener):
    """Parked exchanges by session; a StoreListener.

    ``tables`` has the stages of each server; ``clock`` gives Unix time in seconds, ``ttl`` is how long one is kept, and
    ``claim_seconds`` how long a replica may be silent that edits an answer.
    """

    store: Store
    tables: Mapping[str, StageTable]
    background: BackgroundTasks
    _: KW_ONLY
    ttl: float
    clock: Callable[[], float]
    claim_seconds: float = CLAIM
    _held: dict[str, dict[str, Parked]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.store.listeners.append(self)

    async def park(self, session: Session, call: Call, stages: Stages) -> None:
        """Keep an exchange until its answer comes. Raises StoreUnavailable."""
        key = _key(session, call.envelope)
        due = self.clock() + self.ttl
        # First the row: by it alone ``expire`` finds what nobody came back for.
        await self.store.put(TABLE, key, _encode(call), due=due)
        self._held.setdefault(session.key, {})[key] = Parked(call, stages, due)

    async def find(self, session: Session, *, resumed: bool) -> None:
        """Bring back what was parked for a session before a stream of it opens.

        What this process parked it knows; what an earlier one did is asked for on a ``resumed`` stream, and what other
        replicas do may be asked for on any. Raises StoreUnavailable.
        """
        if not (resumed or self.store.shared):
            return
        rows = await self.store.scan(TABLE, group=session.key, limit=MOST_OF_SESSION)
        held = self._held.setdefault(session.key, {})
        for row in rows:
            if row.key not in held:
                call = _decode(row.value, session.key)
                stages = self.tables[call.origin.server].stages_for(call.envelope)
                held[row.key] = Parked(call, stages, row.due or 0.0)
        self._drop_empty(session.key)

    def waits(self, session: Session) -> bool:
        """Tell whether an answer to one of this session's exchanges is still to come."""
        return session.key in self._held

    async def claim(self, session: Session, data: bytes) -> bytes | None:
        """``data`` of an event on a GET stream as its stages want it; None if it answers no parked exchange.

        Nothing is left of an answer that another replica has delivered. Raises StoreUnavailable.
        """
        if self.store.shared and _may_answer(data):
            # Another replica may have parked it while this stream was open.
            await self.find(session, resumed=False)
        held = self._held.get(session.key)
        if held is None:
            return None
        key = await _answered(held, data)
        parked = held.pop(key, None) if key is not None else None
        if key is None or parked is None:
            return None
        self._drop_empty(session.key)
        try:
            async with self._claimed(key) as mine:
                if not mine:
                    return b""
                try:
                    return await walk_response(parked.stages, parked.call, data)
                finally:
                    await self.store.delete(TABLE, key)
        finally:
            finish(parked.call)

    @contextlib.asynccontextmanager
    async def _claimed(self, key: str) -> AsyncIterator[bool]:
        """Be the one replica that edits an answer, while the block runs; False: another one has delivered it.

        The row stays until the answer is edited, so that it is not lost with a process that dies meanwhile.
        """
        if not self.store.shared:
            yield True
            return
        lease = Lease(self.store, f"parked/{hashlib.sha256(key.encode()).hexdigest()}", self.claim_seconds)
        while await self.store.get(TABLE, key) is not None:
            if await lease.take():
                async with lease.kept():
                    # The one that had the lease before may have delivered it.
                    yield await self.store.get(TABLE, key) is not None
                return
            await asyncio.sleep(self.claim_seconds / 20)
        yield False

    # --- letting go -------------------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Delete what was not asked for again in time, also where its session has ended. Raises StoreUnavailable."""
        await delete_overdue(self.store, TABLE, self.clock())

    async def forget_expired(self) -> None:
        """Let go of what this process holds, and what was not asked for again in time."""
        now = self.clock()
        for session_key, held in list(self._held.items()):
            for key in [key for key, parked in held.items() if parked.due <= now]:
                finish(held.pop(key).call)
            self._drop_empty(session_key)

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener: what another replica has delivered need not be held."""
        if table == TABLE and key in self._held.get(_session_of(key), ()):
            self.background.run(self._confirm(key))

    async def _confirm(self, key: str) -> None:
        with contextlib.suppress(StoreUnavailable):
            if await self.store.get(TABLE, key) is not None:
                return
            parked = self._held.get(_session_of(key), {}).pop(key, None)
            if parked is not None:
                self._drop_empty(_session_of(key))
                finish(parked.call)

    def _drop_empty(self, session_key: str) -> None:
        if not self._held.get(session_key, True):
            del self._held[session_key]


def _may_answer(data: bytes) -> bool:
    """False for a message that is no response in any spelling: most on a GET stream are notifications."""
    return b'"method"' not in data or b'"result"' in data or b'"error"' in data or b"\\" in data


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
    return f"{session.key}/{dump(envelope.id).decode()}"


def _session_of(key: str) -> str:
    return key.partition("/")[0]


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
