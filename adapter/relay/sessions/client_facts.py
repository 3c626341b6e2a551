"""Facts about clients by their own words: of a modern request in itself, else in what opened its session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from adapter.errors import AdapterError
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import Call
from adapter.rules.clients.hosts import IN_INITIALIZE, IN_REQUEST, client_info
from adapter.rules.last_used import LastUsed

F = TypeVar("F")

KEPT = 4096
"""Sessions of which a fact is remembered."""


@dataclass(eq=False, repr=False)
class ClientFact(Generic[F]):
    """One fact about the client of a call, as ``in_request`` or ``in_initialize`` reads it out of a message. It is
    ``unknown`` where the session cannot be read.
    """

    sessions: Sessions
    in_request: Callable[[bytes], F]
    in_initialize: Callable[[bytes], F]
    unknown: F
    _known: LastUsed[str, F] = field(default_factory=lambda: LastUsed(KEPT), init=False)

    async def of(self, call: Call) -> F:
        """The fact about this call's client."""
        if call.modern:
            return self.in_request(call.envelope.body)
        key = call.origin.session
        if key is None:
            return self.unknown
        fact = self._known.get(key)
        if fact is None:
            session = self.sessions.known(key)
            if session is None:
                return self.unknown
            try:
                _, record = await self.sessions.record(session)
            except AdapterError:
                return self.unknown
            fact = self.in_initialize(record.handshake.initialize)
            self._known.put(key, fact)
        return fact


def client_infos(sessions: Sessions) -> ClientFact[Mapping[str, str]]:
    """The names and versions by which clients introduced themselves."""
    return ClientFact(
        sessions, partial(client_info, place=IN_REQUEST), partial(client_info, place=IN_INITIALIZE), {}
    )
