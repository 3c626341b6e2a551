"""The sessions of clients, and what belongs to each of them."""

from __future__ import annotations

from typing import NamedTuple

from adapter.app.base import Base
from adapter.relay.files.scopes import Scopes
from adapter.relay.notifications import MessageClaims, Notifications, SharedNotifications
from adapter.relay.sessions.idle_sessions import LastSeen
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import Renewal
from adapter.relay.sessions.session_map import SessionLimits, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions


class SessionStack(NamedTuple):
    """The sessions of clients, the scopes that own files and pins, and the sessions with upstreams.

    ``shared_notifications`` is None where no other process uses the store.
    """

    sessions: Sessions
    scopes: Scopes
    notifications: Notifications
    upstream: UpstreamSessions
    last_seen: LastSeen
    shared_notifications: SharedNotifications | None


def build_sessions(base: Base) -> SessionStack:
    """Build the parts that know about sessions."""
    store, limits = base.store, base.settings.sessions
    sessions = Sessions(
        store,
        SessionLimits(
            max_active=limits.max_active,
            max_in_flight=limits.max_in_flight_per_session,
            idle_ttl=limits.idle_ttl_seconds,
            allow_revival=limits.allow_revival,
            tombstone_ttl=limits.tombstone_ttl_seconds,
        ),
        base.clock,
    )
    notifications = Notifications()
    shared = None
    if store.shared:
        shared = SharedNotifications(store, notifications, MessageClaims(store, base.background, base.clock))
    scopes = Scopes(store, per_principal=limits.scope == "principal", clock=base.clock)
    base.on_loss.append(scopes.store_lost)
    return SessionStack(
        sessions,
        scopes,
        notifications,
        UpstreamSessions(
            sessions,
            PrincipalSessions(sessions, serves=limits.missing_id == "principal"),
            Renewal(sessions, base.background, base.log),
            limits.upstream_session_termination_retries,
        ),
        LastSeen(sessions),
        shared,
    )
