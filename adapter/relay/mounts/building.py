"""The merged mounts that the settings ask for, each with a light server of its own before the relay."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from adapter.relay.exchange import Exchanges
from adapter.relay.mounts.lists import MemberLists
from adapter.relay.mounts.merged import MergedMount
from adapter.relay.mounts.sessions import MountSessions
from adapter.relay.server import Server, Servers
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.mounts.names import NamingRules
from adapter.rules.text.expressions import NamePattern
from adapter.settings.mounts import MountSettings
from adapter.settings.root import Settings
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest


class NoUpstream(Upstream):
    """The upstream of a mount, to which nothing is ever sent."""

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:  # noqa: ARG002 (a port)
        """See Upstream."""
        raise AssertionError("a mount has no upstream of its own")

    async def close(self) -> None:
        """See Upstream."""


def build_mounts(
    settings: Settings, relay: Exchanges, sessions: Sessions, servers: Servers, version: str
) -> Sequence[MergedMount]:
    """Build the merged mounts over the relay and its servers. ``version`` is that of the adapter."""
    serves_missing = settings.sessions.missing_id == "principal"
    built = []
    for mount in settings.mounts:
        members = {entry.id: servers[entry.id] for entry in settings.members_of(mount)}
        info = {"name": mount.id, "version": version}
        built.append(_built(mount, relay, sessions, members, info, serves_missing))
    return built


def _built(
    settings: MountSettings,
    relay: Exchanges,
    sessions: Sessions,
    servers: Servers,
    info: Mapping[str, str],
    serves_missing: bool,
) -> MergedMount:
    mount = Server(settings.id, settings.path, NoUpstream())
    # What decides how a request is read here, and what is known of its sender, is what any of the servers asks for.
    mount.stages.guards = any(each.stages.guards for each in servers.values())
    mount.stages.empty = all(each.stages.empty for each in servers.values())
    mount.apart = any(each.apart for each in servers.values())
    mount_sessions = MountSessions(relay, sessions, mount, servers)
    prefixed = settings.prefix != "none"
    tools = NamingRules(
        prefixed, tuple(map(NamePattern, settings.tools.allow)), tuple(map(NamePattern, settings.tools.deny))
    )
    lists = MemberLists(
        relay,
        mount_sessions,
        servers,
        tools,
        NamingRules(prefixed),
        settings.list_timeout_seconds,
        time.monotonic,
    )
    return MergedMount(relay, mount, servers, mount_sessions, lists, info, serves_missing)
