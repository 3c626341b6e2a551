"""Modern clients of servers that speak only earlier revisions of MCP: built when the first of them comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapter.app.base import Base
from adapter.relay.eras.legacy_sessions import LegacySessions, ServerBridge
from adapter.relay.eras.modern_clients import LegacyServer, ModernClients
from adapter.relay.eras.parked_calls import ParkedCalls
from adapter.relay.files.rounds import RoundLimits
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import InnerClient
from adapter.relay.sessions.shared_sessions import SharedSessions
from adapter.rules.access.sessions import UpstreamSession
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.local.replies import Deadlines
from adapter.upstream.port import Upstream, UpstreamRequest

if TYPE_CHECKING:
    from adapter.app.replicas import ReplicaService


@dataclass(eq=False, repr=False)
class BridgesForModernClients:
    """Makes them. ``shared`` are the upstreams that give one session to many requests, by their servers."""

    base: Base
    replicas: ReplicaService | None
    shared: dict[str, SharedSessions]

    def __post_init__(self) -> None:
        base, sessions = self.base, self.base.settings.sessions
        limits = RoundLimits(sessions.round_ttl_seconds, sessions.max_rounds)
        owner = "" if self.replicas is None else self.replicas.replicas.id
        self._parked = ParkedCalls(base.store, limits, base.clock, owner)

    def before(self, entry: ServerSettings, server: Server, upstream: Upstream) -> ModernClients:
        """The upstream as modern clients see it, where the server speaks the legacy era only."""
        base = self.base
        shares = base.settings.sessions.upstream == "principal"
        like = InnerClient(
            upstream,
            UpstreamRequest("POST", server.rules.static),
            UpstreamSession(None, ""),
            server.timeouts.request,
            server.rules.answer_limit,
        )
        shared = self.shared.get(entry.id)
        if shared is None:
            # For no client that has a session of its own.
            apart = Server(server.id, server.mount, upstream, rules=server.rules)
            shared = self.shared[server.id] = base.shared_sessions(apart)
        legacy = LegacySessions(upstream, shared, like, shares, base.log, Deadlines())
        bridge = ServerBridge(
            entry.id, legacy, self._parked, server.timeouts.total, not entry.upstream.kind.own_http
        )
        clients = ModernClients(LegacyServer(bridge))
        if self.replicas is not None:
            clients.forward = self.replicas.forward_to(f"{entry.id}#modern", clients)
        return clients
