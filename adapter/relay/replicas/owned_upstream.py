"""Upstreams in the processes of replicas: those whose sessions live in one of them, and those that all serve."""

from __future__ import annotations

from adapter.relay.replicas.forwarding import Forwarding
from adapter.relay.replicas.home import LeftSessions
from adapter.relay.replicas.registry import Replicas
from adapter.rules.access.replicas import owner_of, replica_tag
from adapter.upstream.port import STREAM, Upstream, UpstreamReply, UpstreamRequest, header


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


class PortableUpstream:
    """An Upstream whose sessions any replica serves: nothing is forwarded but a stream that broke off elsewhere.

    Its events are kept in the replica that sent them, whose name their ids begin with. ``owned`` has the sessions that
    live in one replica nevertheless.
    """

    def __init__(self, server: str, owned: OwnedUpstream, replicas: Replicas, forwarding: Forwarding) -> None:
        self.home = owned.home
        self._server = server
        self._owned = owned
        self._replicas = replicas
        self._forwarding = forwarding

    def __repr__(self) -> str:
        return f"<PortableUpstream {self.home!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. A stream that cannot be resumed where it was is opened anew, here."""
        if owner_of(header(request.headers, "mcp-session-id")) is not None:
            return await self._owned.send(request, read_timeout)
        if request.purpose is STREAM and (keeper := self._keeper(request)) is not None:
            reply = await self._forwarding.send(keeper, self._server, request, read_timeout, moves=False)
            if reply.status != 404:
                return reply
            reply.abort()
        return await self.home.send(request, read_timeout)

    def _keeper(self, request: UpstreamRequest) -> str | None:
        """The other replica that keeps the events behind the one that the request names."""
        last = header(request.headers, "last-event-id")
        tag, dot, _ = (last or "").partition(".")
        if not dot or tag == replica_tag(self._replicas.id):
            return None
        return next((other.id for other in self._replicas.others() if replica_tag(other.id) == tag), None)

    async def close(self) -> None:
        """See Upstream."""
        await self._owned.close()
