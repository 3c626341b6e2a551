"""Replicas: this process among others that share its state store, and sessions that live in one of them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adapter.app.base import Base
from adapter.edge.replicas import replica_branch
from adapter.errors import StoreUnavailable, UpstreamUnreachable
from adapter.relay.files.scopes import kept_secret
from adapter.relay.notifications import MessageClaims
from adapter.relay.replicas.forwarding import ReplicaForwarder
from adapter.relay.replicas.home import Home, OwnedUpstream, SharedSessionMessages
from adapter.relay.replicas.registry import TERMS, Replicas, ReplicaTimes, replica_id
from adapter.relay.sessions.session_map import TABLE as SESSIONS
from adapter.rules.access.replicas import owner_of
from adapter.rules.access.sessions import decode, shared_record
from adapter.state.port import every_row
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.sessions import PortableSessions
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest
from adapter.version import VERSION

if TYPE_CHECKING:
    from adapter.edge.http.request import Branch


def bridged(server: str) -> str:
    """The name of the sessions that legacy clients of a modern server have here."""
    return f"{server}#legacy"


KEY = "replicas"
"""The name of the secret in the store by which replicas know each other."""

CONNECT_SECONDS = 2.0
"""Seconds that another replica may take to accept a connection. Its sessions are opened anew after that."""


class ReplicaService:
    """The parts by which this process serves the sessions of others, and they its own.

    ``join`` comes when the store is open and there is an address to be reached at. Unless this process is ``alone`` at
    the public port, its name and the port for other replicas are its own: those of the settings are of all together.

    ``place`` is where a listener for other replicas is to be bound (host, port), None for the public one.
    """

    def __init__(
        self,
        base: Base,
        terms: ReplicaTimes = TERMS,
        *,
        alone: bool = True,
    ) -> None:
        settings, store = base.settings, base.store
        chosen = settings.core.replica
        name = chosen.id or replica_id()
        self.place: tuple[str, int] | None = None
        self._address = chosen.address
        if not alone:
            name = f"{name[:47]}-{replica_id()}" if chosen.id else name
            self.place = settings.core.host, 0
            if settings.state_persistence.type == "disk":
                # All processes are on this machine.
                self.place, self._address = ("127.0.0.1", 0), None
        self._alone = alone
        self._base = base
        self._local: dict[str, LocalUpstream[Any]] = {}
        self.replicas = Replicas(store, name, VERSION, base.clock, base.log, terms)
        self.replicas.on_displaced.append(self._displaced)
        self._forwarding = ReplicaForwarder(self.replicas, self._connect, base.background)
        self.home = Home(self.replicas, self._local, base.background)
        self._words = SharedSessionMessages(self.replicas, MessageClaims(store, base.background, base.clock))
        self.branch: Branch = replica_branch(self.home)
        store.listeners.append(self.home)
        base.rereads.append(self.read_key)
        base.by_server.append(self._local)
        base.on_loss.append(self.store_lost)
        if self.place is None:
            base.branches.append(self.branch)

    def watch(self, forwarded: Callable[[str, str], None]) -> None:
        """Tell of the server of each request that was forwarded, and of the result."""
        self._forwarding.on_end = forwarded

    def owned(self, server: str, upstream: Upstream) -> Upstream:
        """The upstream with its sessions in all replicas, where they live in processes; any other as it is."""
        if not isinstance(upstream, LocalUpstream):
            return upstream
        self._local[server] = upstream
        sessions = upstream.server.sessions
        sessions.owner = self.replicas.id
        if isinstance(sessions, PortableSessions):
            sessions.words = self._words.of(server, sessions)
        return OwnedUpstream(server, upstream, self._forwarding, self.home.left)

    def forward_to(
        self, name: str, upstream: LocalUpstream[Any]
    ) -> Callable[[str, UpstreamRequest, float | None], Coroutine[Any, Any, UpstreamReply]]:
        """A function that sends requests to this upstream as it is in another replica, which has parked calls there."""
        self._local[name] = upstream

        async def forward(owner: str, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
            return await self._forwarding.send(owner, name, request, read_timeout, moves=False)

        return forward

    async def join(self, bound: tuple[str, int] | None) -> None:
        """Let the others know that they find this replica where it is bound. Raises StoreUnavailable.

        ``bound`` is None inside a host's application, whose address only the settings know.
        """
        await self.read_key()
        address = advertised(self._address, bound, alone=self._alone)
        if address is not None:
            await self.replicas.join(address)
        elif any(not isinstance(each.server.sessions, PortableSessions) for each in self._local.values()):
            self._base.log.warning(
                "sessions of processes cannot be used through other replicas: there is no "
                "address at which they find this one",
                setting="core.replica.address",
            )

    async def read_key(self) -> None:
        """Read from the store the key by which replicas know each other, also again. Raises StoreUnavailable."""
        self.replicas.key = await kept_secret(self._base.store, KEY, self.replicas.key or None)

    def store_lost(self) -> None:
        """Be found by the others again."""
        self._base.background.run(self._return())

    async def end_lost(self) -> None:
        """End the sessions of processes here to which no row leads any more, unless somebody uses them soon.

        Those of which a row is there may be anybody's: not all rows are lost where an older state of the store is back,
        or a part of it is. Raises StoreUnavailable.
        """
        alone = {
            (server, session.id)
            for server, upstream in self._local.items()
            for session in upstream.server.sessions.all()
            if owner_of(session.id) == self.replicas.id
        }
        if not alone:
            return
        async for row in every_row(self._base.store, SESSIONS):
            with contextlib.suppress(ValueError):  # another version wrote it
                record = decode(row.value)
                alone -= {
                    (name, record.upstream.id or "") for name in (record.server, bridged(record.server))
                }
        for server in self._local:
            async for row in every_row(self._base.store, f"shared:{server}"):
                with contextlib.suppress(ValueError):
                    alone.discard((server, shared_record(row.value).session))
        for server, upstream_session in alone:
            self.home.left.add(server, upstream_session)

    async def _return(self) -> None:
        # The next beat does it too.
        with contextlib.suppress(StoreUnavailable):
            await self.replicas.come_back()

    async def leave(self) -> None:
        """Take no more requests for the sessions that live here."""
        await self.replicas.leave()
        self.home.leave()

    async def close(self) -> None:
        """Be no replica any more. Nothing is under way between replicas then."""
        await self.replicas.close()
        await self._forwarding.close()

    def _connect(self, url: str) -> HttpUpstream:
        """Raises UpstreamUnreachable for what is no URL."""
        limits = self._base.settings.core.upstream
        try:
            return HttpUpstream(
                url,
                connect_timeout=CONNECT_SECONDS,
                max_connections=limits.max_connections,
                max_streams=limits.max_streams,
            )
        except ValueError as error:
            raise UpstreamUnreachable(str(error)) from None

    def _displaced(self) -> None:
        for upstream in self._local.values():
            upstream.server.sessions.displaced(self.replicas.id)


# --- addresses --------------------------------------------------------------------------------------------------


def advertised(address: str | None, bound: tuple[str, int] | None, *, alone: bool = True) -> str | None:
    """The URL at which others reach a listener: as ``core.replica.address`` says, with what is bound for the rest.

    None where neither tells. Unless this process is ``alone`` at that address, its port is the one that it has bound.
    """
    if address is not None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if bound is None or (alone and ("://" in address or parts.port is not None)):
            return f"{parts.scheme}://{parts.netloc}"
        return f"http://{_in_url(parts.hostname or '')}:{bound[1]}"
    if bound is None:
        return None
    host, port = bound
    return f"http://{_in_url(_outward(host) if _is_any(host) else host)}:{port}"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _outward(host: str) -> str:
    """The host's own address, by which it would send to others; of the same family as ``host``."""
    family, other = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: a datagram socket only chooses its way (RFC 5737, RFC 3849: addresses of nobody).
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "::1" if ":" in host else "127.0.0.1"
