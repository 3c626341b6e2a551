"""Notifications of the adapter's own, on streams that clients hold open anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from adapter.rules.access.principals import Scope
from adapter.wire.envelope import dump
from adapter.wire.sse import encode

RESOURCES_CHANGED = encode(b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}')


MOST_WAITING = 256
"""Events that wait for one client to read; for one more, the one that waited longest is left out."""


class Inbox:
    """The events that wait to be sent on one stream. The same event put twice before it was taken is sent once."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, None] = {}
        self._arrived = asyncio.Event()

    def put(self, event: bytes) -> None:
        self._waiting[event] = None
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._arrived.set()

    async def take(self) -> bytes:
        """Wait for something to say; whole events."""
        await self._arrived.wait()
        self._arrived.clear()
        events = b"".join(self._waiting)
        self._waiting.clear()
        return events


class Notifications:
    """The inboxes of the open GET streams, by the id of the scope that their session's calls work in, and of those that
    subscribed.

    A scope may have several streams: each session gets one word, on the stream it opened last, and each subscription.
    """

    def __init__(self) -> None:
        self._streams: dict[str, dict[str, list[Inbox]]] = {}
        self._subscribed: dict[str, dict[Inbox, bytes]] = {}

    def __repr__(self) -> str:
        return f"<Notifications: {sum(len(each) for each in self._streams.values())} sessions listen>"

    def open(self, scope: Scope, session_key: str, *, resumed: bool = False) -> Inbox:
        """Open the inbox of a stream.

        A ``resumed`` stream may be the rest of a call's stream, which is for that call and not for news: it gets
        news only while there is no other stream.
        """
        inbox = Inbox()
        inboxes = self._streams.setdefault(scope.id, {}).setdefault(session_key, [])
        inboxes.insert(0 if resumed else len(inboxes), inbox)
        return inbox

    def close(self, scope: Scope, session_key: str, inbox: Inbox) -> None:
        """The stream is over. Harmless when said twice."""
        sessions = self._streams.get(scope.id, {})
        inboxes = sessions.get(session_key, [])
        if inbox in inboxes:
            inboxes.remove(inbox)
        if not inboxes:
            sessions.pop(session_key, None)
        if not sessions:
            self._streams.pop(scope.id, None)

    def resources_changed(self, scope: Scope) -> None:
        """The scope's artifacts are others than before."""
        self._put(scope, RESOURCES_CHANGED)
        for inbox, event in self._subscribed.get(scope.id, {}).items():
            inbox.put(event)

    def subscribe(self, scope: Scope, inbox: Inbox, event: bytes) -> None:
        """Put ``event`` into the inbox each time when the scope's artifacts change, and nothing else."""
        self._subscribed.setdefault(scope.id, {})[inbox] = event

    def unsubscribe(self, scope: Scope, inbox: Inbox) -> None:
        """Harmless for one that is not subscribed."""
        subscribed = self._subscribed.get(scope.id, {})
        subscribed.pop(inbox, None)
        if not subscribed:
            self._subscribed.pop(scope.id, None)

    def say(self, scope: Scope, method: str, params: Mapping[str, Any]) -> None:
        """A notification to every session of the scope that listens."""
        self._put(scope, encode(dump({"jsonrpc": "2.0", "method": method, "params": params})))

    def _put(self, scope: Scope, event: bytes) -> None:
        for inboxes in self._streams.get(scope.id, {}).values():
            inboxes[-1].put(event)
