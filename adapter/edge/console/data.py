"""The console's data: routes below ``{console.path}/-/`` that tell how the adapter is, and take an operator's word.

Nothing that a GET asks for changes anything. No answer holds a session id, a token or a path of the store.

The comparison of a server's tools with those that its sessions start from, tool by tool, for an operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from adapter.edge.console.activity import Activity, stream
from adapter.edge.console.status import ServerStatus, SessionsAndFiles, Viewer, Viewers, require_json
from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.request import Branch, Extra, Names, Request
from adapter.edge.http.response import send, wants_stream
from adapter.edge.mcp.ingress import Ingress
from adapter.errors import AdapterError, BadRequest, MessageTooLong, NotFound
from adapter.relay.http_api.callers import ToolRefused
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.tools.pins import PinStatus
from adapter.rules.access.browser_sessions import RoleRules
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, McpClient, ServerAddress, link_to, placeholder
from adapter.rules.text.canonical_json import ABSENT, canonical, differences
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.drift import Change, Drift, definition_of
from adapter.settings.pipeline import Console
from adapter.wire.envelope import dump, parse, value_at

if TYPE_CHECKING:
    from adapter.oauth.grants.grant_store import ListedGrant
    from adapter.oauth.grants.renewal import GrantCredentials


Look = Callable[[Request, str], Awaitable[object]]
"""Have the adapter list the tools of a server (id) for who makes this request. May raise AdapterError, ToolRefused."""

LOOK_PATIENCE = 5.0
"""Seconds that a server has to list its tools before what was seen last is taken for what it offers."""

TOPICS = ("me", "servers", "mounts", "sessions", "files", "exchanges", "activity", "config")
"""What is shown to everybody, beside grants."""

_READ = ("GET", "HEAD")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ConsoleFacts:
    """``settings`` are those of ``console``, and ``roles`` are for people who sign in.

    ``configuration`` is the effective one as YAML, without secrets and without paths of the store.
    """

    settings: Console
    version: str
    configuration: str
    roles: RoleRules | None = None


@dataclass(frozen=True, slots=True)
class Connections:
    """The entries that MCP clients need for the servers, as texts to copy: those of ``mcp-adapter install``.

    A text names the variable of the token or holds a placeholder for it, and never the token itself.

    ``mounts`` are paths by the ids of servers, behind the base that ``bases`` has for the reader. ``merged`` has the
    ids and paths of merged mounts by the ids of their servers. ``token`` is the variable with the token for the
    adapter, None where no such token is asked for. ``signs_in``: people may sign in at an issuer instead, and clients
    find out where.
    """

    mounts: Mapping[str, str]
    merged: Mapping[str, Sequence[tuple[str, str]]]
    bases: Bases
    token: str | None = None
    signs_in: bool = False

    def told(self, server: str, request: Request) -> dict[str, Any]:
        """The address of a server for who makes this request, and the entry of each client; the same of each merged
        mount with the server.
        """
        merged = [self._entries(mount, path, request) for mount, path in self.merged.get(server, ())]
        return {**self._entries(server, self.mounts[server], request), "merged": merged}

    def _entries(self, name: str, path: str, request: Request) -> dict[str, Any]:
        address = ServerAddress(name, f"{self.bases.of(request)}{path}", self.token)
        return {
            "id": name,
            "url": address.url,
            "token": self.token,
            "signs_in": self.signs_in,
            "clients": [_client(name, client, address) for name, client in CLIENTS.items()],
        }


MOST_GRANTS = 1000
"""Grants that are shown."""


class ConsoleGrants:
    """Tells of grants, and serves the route that revokes one."""

    def __init__(self, path: str, viewers: Viewers, servers: Mapping[str, GrantCredentials]) -> None:
        self._data = f"{path.rstrip('/')}/-"
        self._viewers = viewers
        self._servers = servers

    def branch(self) -> Branch:
        """The route."""
        return Branch(f"{self._data}/grants", 3, ("POST",), (), self._revoke)

    async def told(self, viewer: Viewer) -> list[dict[str, object]]:
        """The grants that a viewer may see. Raises StoreUnavailable."""
        found = [each for name, grants in self._servers.items() async for each in grants.grants.all(name)]
        return [each.as_data() for each in found if _may_see(viewer, each)][:MOST_GRANTS]

    async def _revoke(self, request: Request, names: Names, extra: Extra) -> None:
        server, grant_id, verb = names
        viewer = self._viewers.of(request.headers)
        require_json(request)
        grants = self._servers.get(server)
        listed = None if grants is None else await grants.grants.listed(server, grant_id)
        if grants is None or listed is None or verb != "revoke" or not _may_see(viewer, listed):
            raise NotFound("There is no such grant.")
        revoked = await grants.revoke(listed)
        send(request, HttpOutcome(200, dump({"revoked": revoked})), extra)


def _may_see(viewer: Viewer, listed: ListedGrant) -> bool:
    if viewer.operator:
        return True
    return listed.grant is not None and listed.grant.principal == viewer.principal


@dataclass(frozen=True, slots=True)
class ConsoleTopics:
    """The sources of what is shown. ``grants`` is None where nobody gives any."""

    servers: ServerStatus
    belongings: SessionsAndFiles
    recent: Recent
    activity: Activity
    connections: Connections
    grants: ConsoleGrants | None = None


class ConsoleData:
    """Serves the routes. A server's tools are shown as its clients saw them last.

    ``look`` reads them again before an operator's decision about them counts.
    """

    def __init__(self, facts: ConsoleFacts, guard: Guard, topics: ConsoleTopics, look: Look) -> None:
        self._facts = facts
        self._viewers = Viewers(guard, facts.settings.operators, facts.roles)
        self._topics = topics
        self._known = frozenset(server.id for server in topics.servers.health.servers)
        self._pin_review = topics.servers.health.pin_review
        self._look = look
        self._ingress = Ingress(facts.settings.max_body)

    def branches(self) -> Sequence[Branch]:
        """The branches, to be tried before those of the tools' API: no server has the id ``-``."""
        data = f"{self._facts.settings.path.rstrip('/')}/-"
        topics = TOPICS if self._topics.grants is None else (*TOPICS, "grants")
        return (
            *(Branch(f"{data}/{topic}", 0, _READ, (), partial(self._show, topic)) for topic in topics),
            Branch(f"{data}/pins", 1, _READ, (), self._show_pins),
            Branch(f"{data}/connect", 1, _READ, (), self._show_connections),
            Branch(f"{data}/pins", 2, ("POST",), (), self._accept_pins),
        )

    # --- what is shown ----------------------------------------------------------------------------------------

    async def _show(self, topic: str, request: Request, _names: Names, extra: Extra) -> None:
        viewer = self._viewers.of(request.headers)
        if topic == "exchanges" and request.method == "GET" and wants_stream(request):
            await stream(request, self._topics.recent, viewer, extra)
            return
        send(request, HttpOutcome(200, dump(await self._told(topic, viewer))), extra)

    async def _told(self, topic: str, viewer: Viewer) -> Any:
        topics = self._topics
        match topic:
            case "me":
                return self._me(viewer)
            case "servers":
                return await topics.servers.told(viewer)
            case "mounts":
                return await topics.servers.mounts(viewer)
            case "sessions":
                return await topics.belongings.sessions_for(viewer)
            case "files":
                return await topics.belongings.files_for(viewer)
            case "exchanges":
                return [exchange.shown(viewer.principal) for exchange in topics.recent.last(viewer.whose)]
            case "activity":
                return await topics.activity.told(viewer)
            case "config":
                changed = topics.servers.health.changed
                shown = {} if changed is None else {"changed": changed.as_data(viewer.operator)}
                return {"yaml": self._facts.configuration, **shown}
            case _:
                assert topic == "grants" and topics.grants is not None
                return await topics.grants.told(viewer)

    def _me(self, viewer: Viewer) -> dict[str, Any]:
        return {
            "principal": viewer.name,
            "operator": viewer.operator,
            "title": self._facts.settings.title,
            "allow_execute": self._facts.settings.allow_execute,
            "version": self._facts.version,
            "auth": viewer.authenticated,
            **({} if self._topics.grants is None else {"grants": True}),
        }

    async def _show_connections(self, request: Request, names: Names, extra: Extra) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        send(request, HttpOutcome(200, dump(self._topics.connections.told(server, request))), extra)

    # --- pins -------------------------------------------------------------------------------------------------

    async def _show_pins(self, request: Request, names: Names, extra: Extra) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        await _send_pin_status(request, await self._pin_review[server].status(), extra)

    async def _accept_pins(self, request: Request, names: Names, extra: Extra) -> None:
        server, verb = names
        viewer = self._viewers.of(request.headers)
        if verb != "accept":
            raise NotFound()
        viewer.require_operator()
        self._require(server)
        digest = await self._digest(request)
        await self._look_again(request, server)
        status = await self._pin_review[server].accept(digest, viewer.name)
        await _send_pin_status(request, status, extra)

    def _require(self, server: str) -> None:
        if server not in self._known:
            raise NotFound("No server with this id is served here.")

    async def _look_again(self, request: Request, server: str) -> None:
        """Read the server's tools again. If the server cannot be reached, the last list stays."""
        with contextlib.suppress(AdapterError, ToolRefused, TimeoutError):
            async with asyncio.timeout(LOOK_PATIENCE):
                await self._look(request, server)

    async def _digest(self, request: Request) -> str:
        """The digest that the body names. Raises UnsupportedMediaType, MessageTooLong, BadJson, BadRequest."""
        require_json(request)
        try:
            body, _ = self._ingress.plain(await self._ingress.read_body(request), request)
        except MessageTooLong:
            raise MessageTooLong(
                f"The body is larger than the {self._facts.settings.max_body} bytes that console.max_body allows."
            ) from None
        digest = value_at(parse(body), "digest")
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            raise BadRequest('The body must be {"digest": …} with the digest of the tools that were shown.')
        return digest


async def _send_pin_status(request: Request, status: PinStatus, extra: Extra) -> None:
    # In a thread: what thousands of tools were and are is compared value by value.
    send(request, HttpOutcome(200, dump(await asyncio.to_thread(as_data, status))), extra)


def _client(name: str, client: McpClient, address: ServerAddress) -> dict[str, Any]:
    command = (
        f"mcp-adapter install {name} --url {shlex.quote(address.url)} --name {shlex.quote(address.name)}"
    )
    if address.token is not None:
        command += f" --token-variable {shlex.quote(address.token)}"
    hidden = address.token is not None and not client.expands
    return {
        "id": name,
        "title": client.title,
        "file": client.file.shown,
        "folder": client.file.folder,
        "format": client.format,
        "text": entry_text(client.format, client.keys, address.name, client.entry(address)),
        "note": client.note,
        "command": command,
        "link": link_to(name, address),
        "placeholder": placeholder(address.token) if hidden and address.token is not None else None,
    }


MOST_TOOLS = 5000
"""Tools that are listed, those that changed first."""

MOST_CHANGES = 50
"""Changes of one tool that are listed."""

LONGEST_VALUE = 8000
"""Characters of one value; of a longer one the beginning is shown, as text."""

LARGEST = 4_000_000
"""Characters of all values together; what changed beyond them is named by its path."""

Pinned = Mapping[str, PinnedTool]


def as_data(status: PinStatus) -> dict[str, Any]:
    """The status as JSON, which takes a second for thousands of changed tools.

    ``accepted`` is when an operator accepted the baseline (Unix seconds), a text for a lock file, null if nobody did.
    ``remembered`` is the drift that sessions met, null if there is none. ``pinned`` and ``now`` of a tool are its
    fingerprints, null where it was or is not there; ``before`` or ``after`` of a change is null where there was or is
    no value.
    """
    before = status.baseline.tools if status.baseline is not None else {}
    now = status.now.tools if status.now is not None else {}
    tools = list(islice(_tools(status.drift, before, now), MOST_TOOLS))
    accepted = status.since if status.origin == "accepted" else None
    return {
        "mode": status.mode,
        "origin": status.origin,
        "digest": status.now.digest if status.now is not None else None,
        "accepted": "by a lock file" if status.origin == "lock" else accepted,
        "remembered": status.remembered.as_data() if status.remembered is not None else None,
        "drift": status.drifted,
        "tools": tools,
        "more": max(0, len(before.keys() | now.keys()) - len(tools)),
    }


def _tools(found: Drift | None, before: Pinned, now: Pinned) -> Iterator[dict[str, Any]]:
    room = _Room()
    if found is not None:
        yield from _drifted(found, before, now, room)
    concerned = _names(found) if found is not None else frozenset()
    for name in sorted(now.keys() - concerned):
        yield {"name": name, "pinned": _print(before, name), "now": _print(now, name), "changes": []}


def _drifted(found: Drift, before: Pinned, now: Pinned, room: _Room) -> Iterator[dict[str, Any]]:
    for change in found.changed:
        yield {
            "name": change.name,
            "pinned": _print(before, change.name),
            "now": _print(now, change.name),
            "changes": _changes(change, before, now, room),
            "unsafe": list(change.unsafe),
        }
    for old, new in found.renamed:
        renaming = [{"path": "name", "before": old, "after": new}]
        yield {"name": new, "pinned": _print(before, old), "now": _print(now, new), "changes": renaming}
    for name in found.added:
        whole = [room.change("", ABSENT, definition_of(now[name]))]
        yield {"name": name, "pinned": None, "now": _print(now, name), "changes": whole}
    for name in found.removed:
        whole = [room.change("", definition_of(before[name]), ABSENT)]
        yield {"name": name, "pinned": _print(before, name), "now": None, "changes": whole}


def _changes(change: Change, before: Pinned, now: Pinned, room: _Room) -> list[dict[str, Any]]:
    differing = differences(definition_of(before[change.name]), definition_of(now[change.name]))
    found = [room.change(each.path, each.old, each.new) for each in islice(differing, MOST_CHANGES)]
    if next(differing, None) is not None:
        found.append({"path": "…", "before": None, "after": None})
    if change.other_keys:
        # Of other members only a digest is kept.
        found.append({"path": "(other members)", "before": None, "after": None})
    return found


def _names(found: Drift) -> frozenset[str]:
    renamed = (rename.new for rename in found.renamed)
    return frozenset((*found.added, *found.removed, *renamed, *(change.name for change in found.changed)))


def _print(tools: Pinned, name: str) -> str | None:
    pin = tools.get(name)
    return pin.known if pin is not None else None


@dataclass(slots=True)
class _Room:
    """The number of characters of values that may still be shown."""

    left: int = field(default=LARGEST)

    def change(self, path: str, before: Any, after: Any) -> dict[str, Any]:
        shown = [self._value(value) for value in (before, after)]
        return {"path": path, "before": shown[0], "after": shown[1]}

    def _value(self, value: Any) -> Any:
        if value is ABSENT or self.left <= 0:
            return None
        text = value if isinstance(value, str) else canonical(value).decode("utf-8", "replace")
        self.left -= min(len(text), LONGEST_VALUE)
        return value if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
