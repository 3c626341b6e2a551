"""Notifications of the adapter's own, on streams that clients hold open anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapter.rules.access.principals import Scope
from adapter.wire.envelope import dump
from adapter.wire.sse import encode


class Notice(NamedTuple):
    """A message of the adapter's own, as the text of its JSON.

    ``resources``: it tells that the list of resources changed, which subscriptions hear in a message of their own.
    """

    data: bytes
    resources: bool = False

    @property
    def event(self) -> bytes:
        """The message as an event of a stream."""
        return encode(self.data)


RESOURCES = Notice(b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}', resources=True)
RESOURCES_CHANGED = RESOURCES.event

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
        """Wait for events and take all of them."""
        await self._arrived.wait()
        self._arrived.clear()
        events = b"".join(self._waiting)
        self._waiting.clear()
        return events


class Notifications:
    """The inboxes of the open GET streams, by the id of the scope that their session's calls work in, and of those that
    subscribed.

    Of several streams of a session only the one that it opened last gets a notification, besides each subscription.
    ``on_sent`` is told of each notification, with the keys of the sessions that have got it.
    """

    def __init__(self) -> None:
        self.on_sent: Callable[[Scope, Notice, list[str]], None] | None = None
        self._streams: dict[str, dict[str, list[Inbox]]] = {}
        self._subscribed: dict[str, dict[Inbox, bytes]] = {}

    def __repr__(self) -> str:
        return f"<Notifications: {sum(len(each) for each in self._streams.values())} sessions listen>"

    def open(self, scope: Scope, session_key: str, *, resumed: bool = False) -> Inbox:
        """Open the inbox of a stream.

        A ``resumed`` stream may be the rest of a call's stream: it gets notifications only while there is no other.
        """
        inbox = Inbox()
        inboxes = self._streams.setdefault(scope.id, {}).setdefault(session_key, [])
        inboxes.insert(0 if resumed else len(inboxes), inbox)
        return inbox

    def close(self, scope: Scope, session_key: str, inbox: Inbox) -> None:
        """Remove the inbox of a stream that has ended. Idempotent."""
        sessions = self._streams.get(scope.id, {})
        inboxes = sessions.get(session_key, [])
        if inbox in inboxes:
            inboxes.remove(inbox)
        if not inboxes:
            sessions.pop(session_key, None)
        if not sessions:
            self._streams.pop(scope.id, None)

    def resources_changed(self, scope: Scope) -> None:
        """Send that the scope's artifacts have changed."""
        self._send(scope, RESOURCES)

    def subscribe(self, scope: Scope, inbox: Inbox, event: bytes) -> None:
        """Put ``event`` into the inbox each time when the scope's artifacts change, and nothing else."""
        self._subscribed.setdefault(scope.id, {})[inbox] = event

    def unsubscribe(self, scope: Scope, inbox: Inbox) -> None:
        """End a subscription. Idempotent."""
        subscribed = self._subscribed.get(scope.id, {})
        subscribed.pop(inbox, None)
        if not subscribed:
            self._subscribed.pop(scope.id, None)

    def say(self, scope: Scope, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification to every session of the scope that listens."""
        self._send(scope, Notice(dump({"jsonrpc": "2.0", "method": method, "params": params})))

    def _send(self, scope: Scope, notice: Notice) -> None:
        sessions = self.listening(scope.id)
        for session_key in sessions:
            self.put(scope.id, session_key, notice)
        self.tell_subscribed(scope.id, notice)
        if self.on_sent is not None:
            self.on_sent(scope, notice, sessions)

    # --- what was noticed here, or by another process ---------------------------------------------------------

    def concerns(self, scope_id: str) -> bool:
        """Tell whether anybody listens in that scope."""
        return scope_id in self._streams or scope_id in self._subscribed

    def listening(self, scope_id: str) -> list[str]:
        """The keys of the scope's sessions that listen."""
        return list(self._streams.get(scope_id, ()))

    def put(self, scope_id: str, session_key: str, notice: Notice) -> None:
        """Send to one session, if it still listens."""
        inboxes = self._streams.get(scope_id, {}).get(session_key)
        if inboxes:
            inboxes[-1].put(notice.event)

    def tell_subscribed(self, scope_id: str, notice: Notice) -> None:
        """Send to the scope's subscriptions what they want to hear."""
        if notice.resources:
            for inbox, event in self._subscribed.get(scope_id, {}).items():
                inbox.put(event)
