"""Notifications of the adapter's own for clients whose stream is on another replica.

A session that has got a notification on the replica that noticed is not told again, and of the other replicas at which
a session has streams the one that claims the message first sends it (see message_claims).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from adapter.errors import StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.message_claims import MessageClaims
from adapter.relay.notifications import Notice, Notifications
from adapter.rules.access.principals import Scope
from adapter.state.port import Store, StoreListener

TOPIC = "notify"

LARGEST = 48 << 10
"""Bytes of an announcement; a larger message stays on the replica that noticed it, as one does without a word."""

MOST_UNDER_WAY = 256
"""Announcements that are worked on at the same time; others are passed over, as when nobody had heard them."""


class Announcement(NamedTuple):
    """A notice for the sessions of a scope, but for those ``taken``: digests of the keys of their rows."""

    id: str
    scope: str
    notice: Notice
    taken: frozenset[str]


class SharedNotifications(StoreListener):
    """Tells other replicas of notifications, and hears of theirs. A StoreListener; ``clock`` gives Unix seconds."""

    def __init__(
        self,
        store: Store,
        notifications: Notifications,
        background: BackgroundTasks,
        clock: Callable[[], float],
    ) -> None:
        self.claims = MessageClaims(store, clock)
        self._store = store
        self._notifications = notifications
        self._background = background
        self._under_way = 0
        store.listeners.append(self)
        notifications.on_sent = self.announce

    def __repr__(self) -> str:
        return f"<SharedNotifications: {self._under_way} under way>"

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
            self._store.announce(TOPIC, body)

    # --- what others say --------------------------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic != TOPIC or self._under_way >= MOST_UNDER_WAY:
            return
        announcement = _read(body)
        if announcement is not None and self._notifications.concerns(announcement.scope):
            self._under_way += 1
            self._background.run(self._send(announcement))

    async def _send(self, announcement: Announcement) -> None:
        scope, notice = announcement.scope, announcement.notice
        try:
            self._notifications.tell_subscribed(scope, notice)
            for session_key in self._notifications.listening(scope):
                if _digest(session_key) not in announcement.taken and await self.claims.claim(
                    session_key, announcement.id
                ):
                    self._notifications.put(scope, session_key, notice)
        except StoreUnavailable:
            # Nobody knows who sends it, so it is not sent twice.
            return
        finally:
            self._under_way -= 1


def _read(body: bytes) -> Announcement | None:
    """None for what another version may have said."""
    try:
        said: dict[str, Any] = orjson.loads(body)
        notice = Notice(said["data"].encode(), said["resources"] is True)
        return Announcement(str(said["id"]), str(said["scope"]), notice, frozenset(said["taken"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:16]
