"""The console's data: routes below ``{console.path}/-/`` that tell how the adapter is, and take an operator's word.

Nothing that a GET asks for changes anything. No answer holds a session id, a token or a path of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.edge.console import pins as console_pins
from adapter.edge.console.access import Viewer, Viewers
from adapter.edge.console.exchanges import stream, wants_stream
from adapter.edge.console.status import Belongings, ServerStatus
from adapter.edge.http.access import Guard
from adapter.edge.http.branches import Branch, Names
from adapter.edge.http.request import Request
from adapter.edge.mcp.ingress import Ingress
from adapter.errors import AdapterError, BadRequest, MessageTooLong, NotFound, UnsupportedMediaType
from adapter.relay.http_api.callers import ToolRefused
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.tools.pin_review import PinReview, PinStatus
from adapter.wire.envelope import dump, parse

Look = Callable[[Request, str], Awaitable[object]]
"""Have the adapter list the tools of a server (id) for who makes this request. May raise AdapterError, ToolRefused."""

LOOK_PATIENCE = 5.0
"""Seconds that a server has to list its tools before what was seen last is taken for what it offers."""

_READ = ("GET", "HEAD")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ConsoleFacts:
    """``path``, ``title``, ``allow_execute``, ``operators`` and ``max_body`` (bytes) are those of ``console``.

    ``configuration`` is the effective one as YAML, without secrets and without paths of the store.
    """

    path: str
    title: str
    allow_execute: bool
    operators: Collection[str]
    max_body: int
    version: str
    configuration: str


class ConsoleData:
    """Serves the routes.

    What is shown of a server's tools is what its clients saw last. ``look`` has them read anew before a word on them
    counts.
    """

    def __init__(
        self,
        facts: ConsoleFacts,
        guard: Guard,
        servers: ServerStatus,
        belongings: Belongings,
        pin_review: PinReview,
        recent: Recent,
        look: Look,
    ) -> None:
        self._facts = facts
        self._viewers = Viewers(guard, facts.operators)
        self._servers = servers
        self._known = frozenset(server.id for server in servers.servers)
        self._belongings = belongings
        self._pin_review = pin_review
        self._recent = recent
        self._look = look
        self._ingress = Ingress(facts.max_body)

    def branches(self) -> Sequence[Branch]:
        """To be asked before those of the tools' API: no server is called ``-``."""
        data = f"{self._facts.path.rstrip('/')}/-"
        return (
            Branch(data, 1, _READ, (), self._show),
            Branch(f"{data}/pins", 1, _READ, (), self._show_pins),
            Branch(f"{data}/pins", 2, ("POST",), (), self._accept_pins),
        )

    # --- what is shown ----------------------------------------------------------------------------------------

    async def _show(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        (topic,) = names
        viewer = self._viewers.of(request.headers)
        if topic == "exchanges" and wants_stream(request):
            await stream(request, self._recent, viewer, extra)
            return
        _send(request, await self._told(topic, viewer), extra)

    async def _told(self, topic: str, viewer: Viewer) -> Any:
        match topic:
            case "me":
                return self._me(viewer)
            case "servers":
                return await self._servers.told()
            case "sessions":
                return self._belongings.sessions_for(viewer)
            case "files":
                return self._belongings.files_for(viewer)
            case "exchanges":
                return [exchange.told() for exchange in self._recent.last(viewer.whose)]
            case "config":
                return {"yaml": self._facts.configuration}
            case _:
                raise NotFound()

    def _me(self, viewer: Viewer) -> dict[str, Any]:
        return {
            "principal": viewer.name,
            "operator": viewer.operator,
            "title": self._facts.title,
            "allow_execute": self._facts.allow_execute,
            "version": self._facts.version,
            "auth": viewer.authenticated,
        }

    # --- pins -------------------------------------------------------------------------------------------------

    async def _show_pins(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        (server,) = names
        self._viewers.of(request.headers)
        self._require(server)
        await _send_standing(request, await self._pin_review.standing(server), extra)

    async def _accept_pins(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        server, verb = names
        viewer = self._viewers.of(request.headers)
        if verb != "accept":
            raise NotFound()
        viewer.require_operator()
        self._require(server)
        digest = await self._digest(request)
        await self._look_again(request, server)
        standing = await self._pin_review.accept(server, digest, viewer.name)
        await _send_standing(request, standing, extra)

    def _require(self, server: str) -> None:
        if server not in self._known:
            raise NotFound("No server with this id is served here.")

    async def _look_again(self, request: Request, server: str) -> None:
        """Let what was seen last be what is offered now. A server that is away stays as it was seen."""
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
                f"The body is larger than the {self._facts.max_body} bytes that console.max_body allows."
            ) from None
        said = parse(body)
        digest = said.get("digest") if isinstance(said, dict) else None
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            raise BadRequest('The body must be {"digest": …} with the digest of the tools that were shown.')
        return digest


async def _send_standing(request: Request, standing: PinStatus, extra: list[tuple[str, str]]) -> None:
    # In a thread: what thousands of tools were and are is compared value by value.
    _send(request, await asyncio.to_thread(console_pins.told, standing), extra)


def _send(request: Request, value: Any, extra: list[tuple[str, str]]) -> None:
    fields = [
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        *extra,
    ]
    request.reply.send(200, fields, dump(value))
