"""The console's data: routes below ``{console.path}/-/`` that tell how the adapter is, and take an operator's word.

Nothing that a GET asks for changes anything. No answer holds a session id, a token or a path of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapter.edge.console import pins as console_pins
from adapter.edge.console.activity import Activity
from adapter.edge.console.connect import Connections
from adapter.edge.console.status import Belongings, ServerStatus, Viewer, Viewers
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch, Names, Request
from adapter.edge.http.response import EVENT_STREAM, begin_stream, send
from adapter.edge.mcp.ingress import Ingress
from adapter.errors import AdapterError, BadRequest, MessageTooLong, NotFound, UnsupportedMediaType
from adapter.relay.http_api.callers import ToolRefused
from adapter.relay.http_api.recent_exchanges import News, Recent
from adapter.relay.tools.pins import PinStatus
from adapter.rules.access.browser_sessions import RoleTerms
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.settings.console import Console
from adapter.wire.envelope import dump, parse

if TYPE_CHECKING:
    # Few adapters have any.
    from adapter.edge.console.grants import ConsoleGrants

Look = Callable[[Request, str], Awaitable[object]]
"""Have the adapter list the tools of a server (id) for who makes this request. May raise AdapterError, ToolRefused."""

LOOK_PATIENCE = 5.0
"""Seconds that a server has to list its tools before what was seen last is taken for what it offers."""

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
    roles: RoleTerms | None = None


@dataclass(frozen=True, slots=True)
class ConsoleTopics:
    """The sources of what is shown. ``grants`` is None where nobody gives any."""

    servers: ServerStatus
    belongings: Belongings
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
        return (
            Branch(data, 1, _READ, (), self._show),
            Branch(f"{data}/pins", 1, _READ, (), self._show_pins),
            Branch(f"{data}/connect", 1, _READ, (), self._show_connections),
            Branch(f"{data}/pins", 2, ("POST",), (), self._accept_pins),
        )

    # --- what is shown ----------------------------------------------------------------------------------------

    async def _show(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        (topic,) = names
        viewer = self._viewers.of(request.headers)
        if topic == "exchanges" and wants_stream(request):
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
            case "sessions":
                return await topics.belongings.sessions_for(viewer)
            case "files":
                return await topics.belongings.files_for(viewer)
            case "exchanges":
                return [exchange.shown(viewer.principal) for exchange in topics.recent.last(viewer.whose)]
            case "activity":
                return await topics.activity.told(viewer)
            case "config":
                return {"yaml": self._facts.configuration}
            case "grants" if topics.grants is not None:
                return await topics.grants.told(viewer)
            case _:
                raise NotFound()

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

    async def _show_connections(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        send(request, HttpOutcome(200, dump(self._topics.connections.told(server, request))), extra)

    # --- pins -------------------------------------------------------------------------------------------------

    async def _show_pins(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        await _send_pin_status(request, await self._pin_review[server].status(), extra)

    async def _accept_pins(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
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
        headers = request.headers
        media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # A page of another origin may send forms without asking first, but no JSON.
        if media_type != "application/json" and headers.get("Origin") is not None:
            raise UnsupportedMediaType("Send the body as application/json.")
        try:
            body, _ = self._ingress.plain(await self._ingress.read_body(request), request)
        except MessageTooLong:
            raise MessageTooLong(
                f"The body is larger than the {self._facts.settings.max_body} bytes that console.max_body allows."
            ) from None
        message = parse(body)
        digest = message.get("digest") if isinstance(message, dict) else None
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            raise BadRequest('The body must be {"digest": …} with the digest of the tools that were shown.')
        return digest


async def _send_pin_status(request: Request, status: PinStatus, extra: list[tuple[str, str]]) -> None:
    # In a thread: what thousands of tools were and are is compared value by value.
    send(request, HttpOutcome(200, dump(await asyncio.to_thread(console_pins.as_data, status))), extra)


# --- the stream of exchanges ------------------------------------------------------------------------------------

HEARTBEAT = 15.0
"""Seconds after which a stream without news says that it is still there."""

PACE = 0.05
"""Seconds between two pieces of a stream, so that many exchanges wake nobody for each of them."""


def wants_stream(request: Request) -> bool:
    """Tell whether the request asks for events, and not for an answer that ends."""
    accept = request.headers.get("Accept", "").lower()
    return request.method == "GET" and EVENT_STREAM in accept and "application/json" not in accept


async def stream(
    request: Request,
    recent: Recent,
    viewer: Viewer,
    extra: list[tuple[str, str]],
    heartbeat: float = HEARTBEAT,
) -> None:
    """Send exchanges as they end, until the client goes or the adapter stops. Raises LimitReached, ClientGone.

    Events are ``exchange`` with one exchange as data, and ``lost`` with the number that a slow client missed. The
    stream of a viewer whose access token expires ends at the next event or heartbeat.
    """
    watcher = recent.subscribe(viewer.whose)
    try:
        begin_stream(request, extra)
        await request.reply.write(b": exchanges\n\n")
        while (news := await watcher.next_news(heartbeat)) is not None:
            if viewer.expires is not None and viewer.expires <= time.time():
                break
            await request.reply.write(_events(news, viewer.principal))
            if news.exchanges:
                await asyncio.sleep(PACE)
        request.reply.end()
    finally:
        recent.unsubscribe(watcher)


def _events(news: News, reader: str) -> bytes:
    events = [b'event: lost\ndata: {"count":%d}\n\n' % news.lost] if news.lost else []
    events += [b"event: exchange\ndata: %s\n\n" % dump(each.shown(reader)) for each in news.exchanges]
    return b"".join(events) or b": still here\n\n"
