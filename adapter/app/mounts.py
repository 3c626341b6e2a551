"""Merged mounts: several servers at one address, each a light server of its own before the relay."""

from __future__ import annotations

import time
from collections.abc import Sequence

from adapter.app.core import Core
from adapter.relay.mounts.lists import MemberLists
from adapter.relay.mounts.merged import MergedMount
from adapter.relay.mounts.sessions import MountSessions
from adapter.relay.server import Server
from adapter.rules.mounts.names import NamingRules
from adapter.rules.text.expressions import NamePattern
from adapter.settings.mounts import MountSettings
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest
from adapter.version import VERSION


class NoUpstream(Upstream):
    """The upstream of a mount, to which nothing is ever sent."""

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:  # noqa: ARG002 (a port)
        """See Upstream."""
        raise AssertionError("a mount has no upstream of its own")

    async def close(self) -> None:
        """See Upstream."""


def build_mounts(app: Core) -> Sequence[MergedMount]:
    """Build the merged mounts over the relay."""
    return [_built(app, mount) for mount in app.settings.mounts]


def _built(app: Core, settings: MountSettings) -> MergedMount:
    servers = {entry.id: app.servers[entry.id] for entry in app.settings.members_of(settings)}
    mount = Server(settings.id, settings.path, NoUpstream())
    # What decides how a request is read here, and what is known of its sender, is what any of the servers asks for.
    mount.stages.guards = any(each.stages.guards for each in servers.values())
    mount.stages.empty = all(each.stages.empty for each in servers.values())
    mount.apart = any(each.apart for each in servers.values())
    sessions = MountSessions(app.relay, app.sessions, mount, servers)
    prefixed = settings.prefix != "none"
    tools = NamingRules(
        prefixed, tuple(map(NamePattern, settings.tools.allow)), tuple(map(NamePattern, settings.tools.deny))
    )
    lists = MemberLists(
        app.relay,
        sessions,
        servers,
        tools,
        NamingRules(prefixed),
        settings.list_timeout_seconds,
        time.monotonic,
    )
    serves_missing = app.settings.sessions.missing_id == "principal"
    info = {"name": settings.id, "version": VERSION}
    return MergedMount(app.relay, mount, servers, sessions, lists, info, serves_missing)
