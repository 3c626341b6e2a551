"""Subscriptions to resources of a child that several sessions share (MCP 2025-11-25, "Resources", Subscriptions)."""

from __future__ import annotations

from adapter.errors import LimitReached
from adapter.upstream.local.sessions import LocalSession

MOST_SUBSCRIPTIONS = 10_000
"""Resources of one child of which sessions want to hear."""

MOST_OF_A_SESSION = 1000
"""Resources of which one session may want to hear, so that it takes nobody else's place."""

LONGEST_URI = 8192
"""Characters of the URI of such a resource."""


class SharedSubscriptions:
    """The sessions that want to hear of each resource. The child has one subscription for all of them."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[LocalSession]] = {}
        self._wanted: dict[LocalSession, set[str]] = {}

    def __repr__(self) -> str:
        return f"<SharedSubscriptions: {len(self._subscribers)} resources, {len(self._wanted)} sessions>"

    def of(self, uri: str) -> list[LocalSession]:
        """The sessions that want to hear of a resource."""
        return self._subscribers.get(uri, [])

    def add(self, uri: str, session: LocalSession) -> None:
        """Note that a session wants to hear of a resource. Raises LimitReached for one too many."""
        wanted = self._wanted.setdefault(session, set())
        if uri in wanted:
            return
        is_new = uri not in self._subscribers
        if (
            len(wanted) >= MOST_OF_A_SESSION
            or len(uri) > LONGEST_URI
            or (is_new and len(self._subscribers) >= MOST_SUBSCRIPTIONS)
        ):
            raise LimitReached(
                f"At most {MOST_OF_A_SESSION} resources of one session, and {MOST_SUBSCRIPTIONS} of one process can be "
                f"subscribed to, each with a URI of at most {LONGEST_URI} characters."
            )
        wanted.add(uri)
        self._subscribers.setdefault(uri, []).append(session)

    def remove(self, uri: str, session: LocalSession) -> bool:
        """Note that a session wants to hear of a resource no more. Returns True where others still do."""
        sessions = self._subscribers.get(uri, [])
        if session in sessions:
            sessions.remove(session)
            self._wanted.get(session, set()).discard(uri)
        if not sessions:
            self._subscribers.pop(uri, None)
        return bool(sessions)

    def leave(self, session: LocalSession) -> None:
        """Forget a session."""
        for uri in self._wanted.pop(session, ()):
            self.remove(uri, session)
