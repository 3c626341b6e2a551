"""Sessions of a hosted server, as MCP through 2025-11-25 knows them: in memory, for an adapter opens them anew."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.errors import SessionMissing, SessionUnknown
from adapter.hosted.calls import RunningCall
from adapter.hosted.streams import EventStream

RequestId = str | int | float

_STREAMS_AT_MOST = 8


@dataclass(slots=True)
class HostedSession:
    """One ``initialize`` and what runs for it. ``streams`` are its GET streams, the newest last."""

    id: str
    version: str
    capabilities: Mapping[str, Any]
    calls: dict[RequestId, RunningCall] = field(default_factory=dict)
    streams: list[EventStream] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return not (self.calls or self.streams)

    def say(self, message: bytes) -> None:
        """A message outside of calls, on one stream only (MCP 2025-11-25, "Multiple Connections")."""
        if self.streams and not self.streams[-1].offer(message):
            # Nobody reads there: its client comes back when it wants to know more.
            self.streams.pop().end()

    def listen(self) -> EventStream:
        """One more GET stream; of too many the oldest ends."""
        if len(self.streams) >= _STREAMS_AT_MOST:
            self.streams.pop(0).end()
        stream = EventStream(lambda: self.streams.remove(stream) if stream in self.streams else None)
        self.streams.append(stream)
        return stream

    def close(self) -> None:
        """Cancel its calls and end its streams."""
        for call in list(self.calls.values()):
            call.cancel()
        for stream in list(self.streams):
            stream.end()
        self.streams.clear()


class HostedSessions:
    """At most ``most`` of them: whoever opens one more costs the one that was unused for longest its life.

    That is no loss to a client: the adapter is answered 404 and initializes again behind its back.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: OrderedDict[str, HostedSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, version: str, capabilities: Mapping[str, Any]) -> HostedSession:
        """A new session with an id nobody can guess."""
        if len(self._sessions) >= self._most:
            self._drop_oldest()
        session = HostedSession(secrets.token_urlsafe(24), version, capabilities)
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str | None) -> HostedSession:
        """Raises SessionMissing for None, SessionUnknown for an id that was never given or has ended."""
        if session_id is None:
            raise SessionMissing()
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionUnknown()
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session: HostedSession) -> None:
        self._sessions.pop(session.id, None)
        session.close()

    def all(self) -> list[HostedSession]:
        return list(self._sessions.values())

    def _drop_oldest(self) -> None:
        # Where everything is in use, one in use has to go: a limit that gives way is none.
        oldest = next((session for session in self._sessions.values() if session.idle), None)
        self.end(oldest or next(iter(self._sessions.values())))
