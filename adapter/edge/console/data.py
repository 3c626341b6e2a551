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

from adapter.edge.console.activity import stream
from adapter.edge.console.status import ServerStatus, Viewer, Viewers, require_json
from adapter.edge.http.access import Bases
from adapter.edge.http.request import Branch, Names, Request
from adapter.edge.http.response import send, wants_stream
from adapter.edge.mcp.ingress import Ingress
from adapter.errors import AdapterError, BadRequest, MessageTooLong, NotFound
from adapter.relay.http_api.callers import ToolRefused
from adapter.relay.tools.pins import PinStatus
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import (
    CLIENTS,
    USUAL_VARIABLE,
    McpClient,
    ServerAddress,
    link_to,
    placeholder,
)
from adapter.rules.text.canonical_json import ABSENT, canonical, differences
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.drift import Change, Drift, definition_of
from adapter.settings.root import Settings
from adapter.wire.envelope import dump, parse, value_at

if TYPE_CHECKING:
    from adapter.oauth.grants.grant_store import ListedGrant
    from adapter.oauth.grants.renewal import GrantCredentials


Look = Callable[[Request, str], Awaitable[object]]
"""Have the adapter list the tools of a server (id) for who makes this request. May raise AdapterError, ToolRefused."""

LOOK_PATIENCE = 5.0
"""Seconds that a server has to list its tools before what was seen last is taken for what it offers."""

Topic = Callable[[Viewer], Awaitable[Any]]
"""What a viewer may see of a topic, as JSON. May raise StoreUnavailable."""

_READ = ("GET", "HEAD")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Connections:
    """The entries that MCP clients need for the servers, as texts to copy: those of ``mcp-adapter install``.

    A text names the variable of the token or holds a placeholder for it, and never the token itself.

    ``bases`` has the base of the addresses for the reader.
    """

    settings: Settings
    bases: Bases

    def told(self, server: str, request: Request) -> dict[str, Any]:
        """The address of a server for who makes this request, and the entry of each client; the same of each merged
        mount with the server.
        """
        settings = self.settings
        (entry,) = (each for each in settings.servers if each.id == server)
        mounts = (mount for mount in settings.mounts if entry in settings.members_of(mount))
        merged = [self._entries(mount.id, mount.path, request) for mount in mounts]
        return {**self._entries(server, entry.mount_path, request), "merged": merged}

    def _entries(self, name: str, path: str, request: Request) -> dict[str, Any]:
        auth = self.settings.core.auth
        token = USUAL_VARIABLE if auth.enabled and auth.has_static_tokens else None
        address = ServerAddress(name, f"{self.bases.of(request)}{path}", token)
        return {
            "id": name,
            "url": address.url,
            "token": token,
            # People may sign in at an issuer instead, and clients find out where.
            "signs_in": auth.enabled and auth.oauth is not None,
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

    async def _revoke(self, request: Request, names: Names) -> None:
        server, grant_id, verb = names
        viewer = self._viewers.of(request.headers)
        require_json(request)
        grants = self._servers.get(server)
        listed = None if grants is None else await grants.grants.listed(server, grant_id)
        if grants is None or listed is None or verb != "revoke" or not _may_see(viewer, listed):
            raise NotFound("There is no such grant.")
        revoked = await grants.revoke(listed)
        send(request, HttpOutcome(200, dump({"revoked": revoked})))


def _may_see(viewer: Viewer, listed: ListedGrant) -> bool:
    if viewer.operator:
        return True
    return listed.grant is not None and listed.grant.principal == viewer.principal


class ConsoleData:
    """Serves the routes. A server's tools are shown as its clients saw them last.

    ``topics`` are what is shown beside the viewer itself, servers, exchanges and settings; of these ``configuration``
    is the effective one as YAML, without secrets and without paths of the store. ``look`` reads the tools of a server
    again before an operator's decision about them counts.
    """

    def __init__(
        self,
        connections: Connections,
        configuration: str,
        version: str,
        viewers: Viewers,
        status: ServerStatus,
        topics: Mapping[str, Topic],
        look: Look,
    ) -> None:
        self._connections = connections
        self._console = connections.settings.console
        self._configuration, self._version = configuration, version
        self._viewers = viewers
        self._health, self._recent = status.health, status.recent
        own = {"me": self._me, "exchanges": self._exchanges, "config": self._config}
        told = {"servers": status.told, "mounts": status.mounts}
        self._topics: Mapping[str, Topic] = {**own, **told, **topics}
        self._known = frozenset(server.id for server in self._health.servers)
        self._pin_review = self._health.pin_review
        self._look = look
        self._ingress = Ingress(self._console.max_body)

    def branches(self) -> Sequence[Branch]:
        """The branches, to be tried before those of the tools' API: no server has the id ``-``."""
        data = f"{self._console.path.rstrip('/')}/-"
        return (
            *(Branch(f"{data}/{topic}", 0, _READ, (), partial(self._show, topic)) for topic in self._topics),
            Branch(f"{data}/pins", 1, _READ, (), self._show_pins),
            Branch(f"{data}/connect", 1, _READ, (), self._show_connections),
            Branch(f"{data}/pins", 2, ("POST",), (), self._accept_pins),
        )

    # --- what is shown ----------------------------------------------------------------------------------------

    async def _show(self, topic: str, request: Request, _names: Names) -> None:
        viewer = self._viewers.of(request.headers)
        if topic == "exchanges" and request.method == "GET" and wants_stream(request):
            await stream(request, self._recent, viewer)
            return
        send(request, HttpOutcome(200, dump(await self._topics[topic](viewer))))

    async def _me(self, viewer: Viewer) -> dict[str, Any]:
        return {
            "principal": viewer.name,
            "operator": viewer.operator,
            "title": self._console.title,
            "allow_execute": self._console.allow_execute,
            "version": self._version,
            "auth": viewer.authenticated,
            **({"grants": True} if "grants" in self._topics else {}),
        }

    async def _exchanges(self, viewer: Viewer) -> list[Any]:
        return [exchange.shown(viewer.principal) for exchange in self._recent.last(viewer.whose)]

    async def _config(self, viewer: Viewer) -> dict[str, Any]:
        changed = self._health.changed
        shown = {} if changed is None else {"changed": changed.as_data(viewer.operator)}
        return {"yaml": self._configuration, **shown}

    async def _show_connections(self, request: Request, names: Names) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        send(request, HttpOutcome(200, dump(self._connections.told(server, request))))

    # --- pins -------------------------------------------------------------------------------------------------

    async def _show_pins(self, request: Request, names: Names) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        await _send_pin_status(request, await self._pin_review[server].status())

    async def _accept_pins(self, request: Request, names: Names) -> None:
        server, verb = names
        viewer = self._viewers.of(request.headers)
        if verb != "accept":
            raise NotFound()
        viewer.require_operator()
        self._require(server)
        digest = await self._digest(request)
        await self._look_again(request, server)
        status = await self._pin_review[server].accept(digest, viewer.name)
        await _send_pin_status(request, status)

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
                f"The body is larger than the {self._console.max_body} bytes that console.max_body allows."
            ) from None
        digest = value_at(parse(body), "digest")
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            raise BadRequest('The body must be {"digest": …} with the digest of the tools that were shown.')
        return digest


async def _send_pin_status(request: Request, status: PinStatus) -> None:
    # In a thread: what thousands of tools were and are is compared value by value.
    send(request, HttpOutcome(200, dump(await asyncio.to_thread(as_data, status))))


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
