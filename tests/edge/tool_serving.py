"""The tool API of one server on a real socket, in front of hosted tools, and what its answers say."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.edge.api.routes import ServerRoutes
from adapter.edge.api.server_catalogue import NewsStreams, ServerCatalogue
from adapter.edge.api.server_tools import Callers, ServerTools
from adapter.edge.api.tool_api import ApiOptions, AuthHook, Hook, ToolApi
from adapter.edge.console.page_files import ServedPaths, document
from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Branch
from adapter.edge.mcp.endpoint import Endpoint
from adapter.edge.router import ExchangeRecords, Front
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.http_api.sessions import HttpSessions
from adapter.relay.server import Timeouts
from adapter.rules.access.principals import Principals
from adapter.settings.auth import Auth
from adapter.settings.core import Core
from adapter.upstream.port import Upstream
from tests.edge.raw import Head, RawClient
from tests.hosted.serving import LOG
from tests.pipeline.walking import CHECKS
from tests.relay.relaying import Relaying

PATH = "/explorer"


def guard_of(tokens: dict[str, str] | None = None) -> Guard:
    """A guard of loopback, which asks for one of ``tokens`` (by name) where there are any."""
    digests = [(name, hashlib.sha256(token.encode()).digest()) for name, token in (tokens or {}).items()]
    auth = Auth(header_name="X-Adapter-Token")
    return Guard(Core(auth=auth), Principals(digests) if digests else None)


@dataclass
class Served:
    """The API of the server ``one``, being served."""

    port: int
    relaying: Relaying
    sessions: HttpSessions
    recent: Recent
    lines: list[dict[str, object]] = field(default_factory=list)

    def client(self) -> RawClient:
        return RawClient(self.port)

    async def get(self, path: str, **fields: str) -> tuple[Head, Any]:
        """What ``GET {PATH}{path}`` answers, read as JSON."""
        async with self.client() as client:
            head, body = await client.request("GET", b"", PATH + path, **fields)
            return head, orjson.loads(body)

    async def post(self, path: str, body: bytes = b"{}", /, **fields: str) -> tuple[Head, Any]:
        """What ``POST {PATH}/one{path}`` answers, read as JSON, to who takes no events."""
        async with self.client() as client:
            asked = {"accept": "*/*"} | fields
            head, said = await client.request("POST", body, f"{PATH}/one{path}", **asked)
            return head, orjson.loads(said)


class Lines:
    """A log of calls that keeps them."""

    def __init__(self, lines: list[dict[str, object]]) -> None:
        self._lines = lines

    def write(self, record: dict[str, object]) -> None:
        self._lines.append(record)


@contextlib.asynccontextmanager
async def serving(
    upstream: Upstream,
    *,
    tokens: dict[str, str] | None = None,
    hook: Hook | None = None,
    patience: float = 5.0,
    **options: Any,
) -> AsyncIterator[Served]:
    """Execution is on unless ``options``, those of ApiOptions, say otherwise."""
    relaying = Relaying(upstream)
    relaying.server.timeouts = Timeouts(10, 10)
    guard, recent = guard_of(tokens), Recent()
    bases = Bases(None, guard)
    callers = Callers(guard, bases, frozenset({"x-adapter-token"}), "one")
    sessions = HttpSessions(relaying.relay, relaying.sessions, relaying.server, relaying.background)
    provider = ServerTools("one", sessions, callers)
    api = ToolApi(
        provider,
        ApiOptions(**{"allow_execute": True, **options}),
        LOG,
        authenticate=callers.authenticate,
        hook=AuthHook(hook, LOG, patience) if hook is not None else None,
        view=provider.view,
        checks=CHECKS,
    )
    lines: list[dict[str, object]] = []
    news = NewsStreams()
    recent.on_close.append(news.close)
    apis = {"one": ServerCatalogue(api, sessions, callers, news)}
    records = ExchangeRecords(guard, Lines(lines), recent)
    routes = ServerRoutes(PATH, apis, document(ServedPaths(PATH), "1"), records)
    async with listening(routes.branches(), guard, relaying) as port:
        try:
            yield Served(port, relaying, sessions, recent, lines)
        finally:
            await sessions.close(within=5)
            await relaying.background.close()
            await upstream.close()


@contextlib.asynccontextmanager
async def listening(branches: Sequence[Branch], guard: Guard, relaying: Relaying) -> AsyncIterator[int]:
    """A front with these branches on a port."""
    endpoint = Endpoint(relaying.relay, guard, Core(max_request_bytes=1 << 20), LOG, Bases(None, guard))
    front = Front(endpoint, {}, {}, guard, LOG, branches)
    listener = await Listener.open(front, "127.0.0.1", 0)
    try:
        yield listener.address[1]
    finally:
        listener.close()
        await listener.drop()
