"""The names by which clients introduced themselves: of a modern request in itself, else in what opened its session."""

from __future__ import annotations

from adapter.errors import AdapterError
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import Call
from adapter.rules.clients.hosts import IN_INITIALIZE, IN_REQUEST, client_name
from adapter.rules.last_used import LastUsed

KEPT = 4096
"""Sessions whose client's name is remembered."""


class ClientNames:
    """Finds the name of a call's client."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: LastUsed[str, str] = LastUsed(KEPT)

    async def of(self, call: Call) -> str:
        """The name; "" where the client gave none, and where its session cannot be read."""
        if call.modern:
            return client_name(call.envelope.body, IN_REQUEST)
        key = call.origin.session
        if key is None:
            return ""
        name = self._known.get(key)
        if name is None:
            session = self._sessions.known(key)
            if session is None:
                return ""
            try:
                _, record = await self._sessions.record(session)
            except AdapterError:
                return ""
            name = client_name(record.handshake.initialize, IN_INITIALIZE)
            self._known.put(key, name)
        return name
