"""The merged mounts that the settings ask for, each with a light server of its own before the relay."""

from __future__ import annotations

import time
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.app.core import Core
from adapter.relay.mounts.held_lists import HeldLists
from adapter.relay.mounts.lists import ListRules, MountLists
from adapter.relay.mounts.merged import MergedMount, MountCodeMode
from adapter.relay.mounts.reading import ListReader
from adapter.relay.mounts.sessions import MountSessions
from adapter.relay.server import Server
from adapter.rules.mounts.lists import sign_in_tool
from adapter.rules.mounts.names import NamingRules
from adapter.rules.text.expressions import NamePattern
from adapter.rules.tools.code_mode import CodeModeNames
from adapter.settings.mounts import MountSettings
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest
from adapter.version import VERSION


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


def build_mount(app: Core, mount: MountSettings, documents: frozenset[str]) -> MergedMount:
    """Build one mount of the settings. ``documents`` are the URIs of the adapter's own documents, which all servers
    have alike.
    """
    settings = app.settings
    servers = {entry.id: app.servers[entry.id] for entry in settings.members_of(mount)}
    light = Server(mount.id, mount.path, NoUpstream())
    # What decides how a request is read here, and what is known of its sender, is what any of the servers asks for.
    light.stages.guards = any(each.stages.guards for each in servers.values())
    light.stages.empty = all(each.stages.empty for each in servers.values())
    light.apart = any(each.apart for each in servers.values())
    sessions = MountSessions(app.relay, app.sessions, light, servers)
    serves_missing = settings.sessions.missing_id == "principal"
    info = {"name": mount.id, "version": VERSION}
    lists = _lists(app, mount, sessions, documents)
    merged = MergedMount(app.relay, light, servers, sessions, lists, info, serves_missing)
    if mount.code_mode_enabled:
        merged.code_mode = MountCodeMode(CodeModeNames(mount.id), lists)
    return merged


def _lists(app: Core, mount: MountSettings, sessions: MountSessions, documents: frozenset[str]) -> MountLists:
    logger, settings = app.log.bind(mount=mount.id), app.settings
    held, own_tools = [], {}
    for entry in settings.members_of(mount):
        server = app.servers[entry.id]
        has_files = entry.has_files and settings.artifacts.enabled
        reader = ListReader(app.relay, sessions, server)
        lists = HeldLists(reader, app.store, time.monotonic, has_files=has_files)
        lists.on_missing = partial(_tell_missing, logger, entry.id)
        held.append(lists)
        its = server.stages.named_tools - server.stages.upstream_tools
        own_tools[entry.id] = its | {sign_in_tool(entry.id)[0]}
    rules = ListRules(
        naming_of_tools(mount),
        NamingRules(mount.prefix != "none"),
        own_tools,
        documents,
        (settings.artifacts.uri_scheme, settings.uploads.uri_scheme),
        mount.list_timeout_seconds,
    )
    merged = MountLists(held, rules, app.store)
    merged.on_hidden = lambda name: logger.warning("a name is hidden at the mount", why=str(name))
    return merged


def _tell_missing(logger: FilteringBoundLogger, server: str, why: str) -> None:
    logger.warning("a server is missing at the mount", server=server, why=why)
