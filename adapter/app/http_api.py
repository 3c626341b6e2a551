"""The page, the HTTP API of tools and the console's data, below ``console.path``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from structlog.typing import FilteringBoundLogger

from adapter.app.console import console_data
from adapter.app.files import Filing
from adapter.app.user_code import Loading
from adapter.edge.api.auth_hook import AuthHook
from adapter.edge.api.operations import operations
from adapter.edge.api.server_routes import ServerApi, ServerRoutes, document
from adapter.edge.api.server_tools import Callers, Previews, ServerTools
from adapter.edge.api.tool_api import ApiOptions, ToolApi
from adapter.edge.console import operations as console_operations
from adapter.edge.console.page_files import PageFiles, pages
from adapter.edge.health import Health
from adapter.edge.http.access import Guard
from adapter.edge.http.branches import Branch
from adapter.edge.http.public_urls import Bases
from adapter.edge.http.request import Request
from adapter.edge.router import AccessLog
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.pipeline.schema_checks import SchemaChecks
from adapter.pipeline.tracing import Tracing
from adapter.relay.background import BackgroundTasks
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.http_api.sessions import HttpSessions
from adapter.relay.relay import Relay
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.tools.pin_review import PinReview
from adapter.settings.root import Settings
from adapter.wire.eras import Era

try:
    VERSION = version("mcp-file-adapter")
except PackageNotFoundError:
    VERSION = "0"


@dataclass(slots=True)
class Exploring:
    """``branches`` are the routes, none where the console is off; ``sessions`` those of its callers, by server.

    ``recent`` keeps the last exchanges, None where nobody looks at them.
    """

    branches: Sequence[Branch] = ()
    sessions: dict[str, HttpSessions] = field(default_factory=dict)
    recent: Recent | None = None

    async def tidy(self) -> None:
        """One round of the janitor."""
        await asyncio.gather(*(sessions.tidy() for sessions in self.sessions.values()))

    async def close(self, within: float) -> None:
        """End the sessions of all callers, upstream as far as that takes no longer than ``within`` seconds."""
        await asyncio.gather(*(sessions.close(within) for sessions in self.sessions.values()))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The other parts of the adapter, as far as the console shows them or works through them."""

    relay: Relay
    servers: Mapping[str, Server]
    monitors: Mapping[str, HealthMonitor]
    health: Health
    sessions: Sessions
    filing: Filing
    pin_review: PinReview
    guard: Guard
    bases: Bases
    background: BackgroundTasks
    loading: Loading
    checks: SchemaChecks
    log: FilteringBoundLogger
    calls: AccessLog | None = None
    tracing: Tracing | None = None


def exploring(settings: Settings, around: Surroundings, recent: Recent | None) -> Exploring:
    """The console, where it is on; ``recent`` is None where it is off. A hook that cannot be loaded is noted."""
    console = settings.console
    if recent is None:
        return Exploring()
    credentials = frozenset({settings.core.auth.header_name.lower()})
    callers = Callers(around.guard, around.bases, credentials)
    sessions = {
        server.id: HttpSessions(
            around.relay,
            server,
            around.background,
            time.monotonic,
            era=_era_of(around.monitors.get(server.id)),
        )
        for server in around.servers.values()
    }
    hook = _hook(settings, around)
    options = ApiOptions(
        title=console.title,
        allow_execute=console.allow_execute,
        discovery_auth=console.discovery_auth,
        invalid_json=console.invalid_json,
        max_body=console.max_body,
        expose=settings.core.errors.expose,
    )
    apis = {}
    for server, held in sessions.items():
        tools = ServerTools(server, held, callers)
        api = ToolApi(
            tools,
            options,
            around.log,
            authenticate=callers.authenticate,
            hook=hook,
            view=tools.view,
            checks=around.checks,
        )
        apis[server] = ServerApi(api, Previews(held, callers))
    routes = ServerRoutes(
        console.path,
        apis,
        _document(settings, around),
        around.guard,
        calls=around.calls,
        recent=recent,
        tracing=around.tracing,
    )

    async def look(request: Request, server: str) -> None:
        await sessions[server].tools(callers.of(request))

    data = console_data(
        settings,
        guard=around.guard,
        health=around.health,
        sessions=around.sessions,
        filing=around.filing,
        pin_review=around.pin_review,
        recent=recent,
        version=VERSION,
        look=look,
    )
    shown = pages(console.path, around.servers, PageFiles())
    return Exploring((*data.branches(), *routes.branches(), *shown), sessions, recent)


def _era_of(watch: HealthMonitor | None) -> Callable[[], Era | None]:
    return (lambda: None) if watch is None else (lambda: watch.pulse.era)


def _hook(settings: Settings, around: Surroundings) -> AuthHook | None:
    reference = settings.console.auth_hook
    if reference is None:
        return None
    with around.loading.judging("console.auth_hook", ScriptInvalid):
        return AuthHook(around.loading.function(reference, least=1, most=1).plain, around.log)
    return None


def _document(settings: Settings, around: Surroundings) -> bytes:
    path = settings.console.path
    files = settings.core.upload_path if around.filing.active else None
    others = operations(files, downloads=settings.core.allow_artifacts_download)
    data = [each.below(path) for each in console_operations.OPERATIONS]
    return document(path, [*data, *others], version=VERSION)
