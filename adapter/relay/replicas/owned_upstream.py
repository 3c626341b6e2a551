"""Upstreams whose sessions live in one replica each."""

from __future__ import annotations

from adapter.relay.replicas.forwarding import Forwarding
from adapter.relay.replicas.home import LeftSessions
from adapter.relay.replicas.registry import Replicas
from adapter.rules.access.replicas import owner_of
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest, header


class OwnedUpstream:
    """An Upstream whose sessions live in the replica that opened them: ``home`` has those that live in this one."""

    def __init__(
        self, server: str, home: Upstream, replicas: Replicas, forwarding: Forwarding, left: LeftSessions
    ) -> None:
        self.home = home
        self._server = server
        self._replicas = replicas
        self._forwarding = forwarding
        self._left = left

    def __repr__(self) -> str:
        return f"<OwnedUpstream {self.home!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Also raises StoreUnavailable."""
        session = header(request.headers, "mcp-session-id")
        owner = owner_of(session)
        if owner is None or owner == self._replicas.id:
            if self._left:
                self._left.used(self._server, session)
            return await self.home.send(request, read_timeout)
        return await self._forwarding.send(owner, self._server, request, read_timeout)

    async def close(self) -> None:
        """See Upstream."""
        await self.home.close()
