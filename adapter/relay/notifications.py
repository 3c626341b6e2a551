"""Notifications of the adapter's own, on streams that clients hold open anyway, also on other replicas.

A server must not send one message on several streams (MCP 2025-11-25, streamable HTTP, "Multiple Connections"), and the
replicas are one server. A session that has got a notification on the replica that noticed is not told again, and of the
other replicas at which a session has streams the one that claims the message first sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import orjson

from adapter.errors import StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.rules.access.principals import Scope
from adapter.state.port import ABSENT, Conflict, Store, StoreListener, delete_overdue
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


# --- other replicas ---------------------------------------------------------------------------------------------


TABLE = "notices"

CLAIMED = 60.0
"""Seconds for which it is remembered that a session has got a message."""

MOST_UNDER_WAY = 256
"""Messages that wait for their claims at the same time; others are passed over, as when nobody had heard them."""


class MessageClaims:
    """The messages that sessions have got, by the ids of both. ``clock`` gives Unix time in seconds."""

    def __init__(self, store: Store, background: BackgroundTasks, clock: Callable[[], float]) -> None:
        self._store = store
        self._background = background
        self._clock = clock
        self._under_way = 0

    def __repr__(self) -> str:
        return f"{self._under_way} under way"

    def send_once(self, message: str, sends: Mapping[str, Callable[[], None]]) -> None:
        """Send a message to these sessions, but for those to which another replica sends it."""
        if self._under_way < MOST_UNDER_WAY:
            self._under_way += 1
            self._background.run(self._send(message, sends))

    async def _send(self, message: str, sends: Mapping[str, Callable[[], None]]) -> None:
        due = self._clock() + CLAIMED
        try:
            for session, send in sends.items():
                with contextlib.suppress(Conflict):
                    await self._store.put(TABLE, f"{session}/{message}", b"", expected=ABSENT, due=due)
                    send()
        except StoreUnavailable:
            # Nobody knows who sends it, so it is not sent twice.
            return
        finally:
            self._under_way -= 1

    async def tidy(self) -> None:
        """Forget claims after a while. Raises StoreUnavailable."""
        await delete_overdue(self._store, TABLE, self._clock())


TOPIC = "notify"

LARGEST = 48 << 10
"""Bytes of an announcement; a larger message stays on the replica that noticed it, as one does without a word."""


@dataclass(eq=False)
class SharedNotifications(StoreListener):
    """Tells other replicas of notifications, and hears of theirs. A StoreListener."""

    store: Store
    notifications: Notifications
    claims: MessageClaims

    def __post_init__(self) -> None:
        self.store.listeners.append(self)
        self.notifications.on_sent = self.announce

    def __repr__(self) -> str:
        return f"<SharedNotifications: {self.claims!r}>"

    def announce(self, scope: Scope, notice: Notice, taken: list[str]) -> None:
        """Tell the other replicas of a notice, unless the one session that it is for has got it here."""
        if taken and scope.session_key is not None:
            return
        said = {
            "id": secrets.token_hex(8),
            "scope": scope.id,
            "data": notice.data.decode(),
            "resources": notice.resources,
            "taken": [_digest(key) for key in taken],
        }
        body = orjson.dumps(said)
        if len(body) <= LARGEST:
            self.store.announce(TOPIC, body)

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic != TOPIC:
            return
        try:
            said: dict[str, Any] = orjson.loads(body)
            notice = Notice(said["data"].encode(), said["resources"] is True)
            message, scope, taken = str(said["id"]), str(said["scope"]), frozenset(said["taken"])
        except (ValueError, KeyError, TypeError, AttributeError):
            # Another version may say anything.
            return
        here = self.notifications
        here.tell_subscribed(scope, notice)
        sends = {
            key: partial(here.put, scope, key, notice)
            for key in here.listening(scope)
            if _digest(key) not in taken
        }
        if sends:
            self.claims.send_once(message, sends)


def _digest(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:16]
