"""The merged mounts that the settings ask for, each with a light server of its own before the relay."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.relay.exchange import Exchanges
from adapter.relay.mounts.code_mode import MountCodeMode
from adapter.relay.mounts.held_lists import HeldLists
from adapter.relay.mounts.lists import ListRules, MountLists
from adapter.relay.mounts.merged import MergedMount
from adapter.relay.mounts.reading import ListReader
from adapter.relay.mounts.sessions import MountSessions
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.mounts.lists import sign_in_tool
from adapter.rules.mounts.names import NamingRules
from adapter.rules.text.expressions import NamePattern
from adapter.rules.tools.code_mode import CodeModeNames
from adapter.settings.mounts import MountSettings
from adapter.settings.root import Settings
from adapter.state.port import Store
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest


def naming_of_tools(mount: MountSettings) -> NamingRules:
    """How the mount names tools, and which of them it shows."""
    allow, deny = (tuple(map(NamePattern, each)) for each in (mount.tools.allow, mount.tools.deny))
    return NamingRules(mount.prefix != "none", allow, deny)


class NoUpstream(Upstream):
    """The upstream of a mount, to which nothing is ever sent."""

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:  # noqa: ARG002 (a port)
        """See Upstream."""
        raise AssertionError("a mount has no upstream of its own")

    async def close(self) -> None:
        """See Upstream."""


@dataclass(frozen=True, slots=True)
class MountBuilder:
    """Builds merged mounts over the ``relay`` and its ``servers``. ``documents`` are the URIs of the adapter's own
    documents, which all servers have alike; ``version`` is that of the adapter.
    """

    settings: Settings
    relay: Exchanges
    sessions: Sessions
    servers: Mapping[str, Server]
    log: FilteringBoundLogger
    documents: frozenset[str]
    version: str

    def mount(self, mount: MountSettings) -> MergedMount:
        """One mount of the settings."""
        servers = {entry.id: self.servers[entry.id] for entry in self.settings.members_of(mount)}
        light = Server(mount.id, mount.path, NoUpstream())
        # What decides how a request is read here, and what is known of its sender, is what any of the servers asks for.
        light.stages.guards = any(each.stages.guards for each in servers.values())
        light.stages.empty = all(each.stages.empty for each in servers.values())
        light.apart = any(each.apart for each in servers.values())
        sessions = MountSessions(self.relay, self.sessions, light, servers)
        serves_missing = self.settings.sessions.missing_id == "principal"
        info = {"name": mount.id, "version": self.version}
        merged = MergedMount(
            self.relay, light, servers, sessions, self._lists(mount, sessions), info, serves_missing
        )
        if mount.code_mode_enabled:
            merged.code_mode = MountCodeMode(CodeModeNames(mount.id), merged.lists)
        return merged

    def _lists(self, mount: MountSettings, sessions: MountSessions) -> MountLists:
        logger = self.log.bind(mount=mount.id)
        held = []
        for entry in self.settings.members_of(mount):
            reader = ListReader(self.relay, sessions, self.servers[entry.id])
            has_files = entry.has_files and self.settings.artifacts.enabled
            lists = HeldLists(reader, self._store, time.monotonic, has_files=has_files)
            lists.on_missing = partial(_tell_missing, logger, entry.id)
            held.append(lists)
        merged = MountLists(held, self._rules(mount), self._store)
        merged.on_hidden = lambda name: logger.warning("a name is hidden at the mount", why=str(name))
        return merged

    @property
    def _store(self) -> Store:
        return self.sessions.store

    def _rules(self, mount: MountSettings) -> ListRules:
        """The rules by which a mount joins the lists of its servers."""
        stages = {entry.id: self.servers[entry.id].stages for entry in self.settings.members_of(mount)}
        return ListRules(
            naming_of_tools(mount),
            NamingRules(mount.prefix != "none"),
            {
                server: (each.named_tools - each.upstream_tools) | {sign_in_tool(server)[0]}
                for server, each in stages.items()
            },
            self.documents,
            (self.settings.artifacts.uri_scheme, self.settings.uploads.uri_scheme),
            mount.list_timeout_seconds,
        )


def _tell_missing(logger: FilteringBoundLogger, server: str, why: str) -> None:
    logger.warning("a server is missing at the mount", server=server, why=why)
