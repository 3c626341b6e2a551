"""The routes of the console: its page, its data and the HTTP API of tools, below ``console.path``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.app.console import BuiltConsole
from adapter.app.core import Core
from adapter.app.file_keeping import build_registry, build_shelf, takes_uploads
from adapter.app.files import FileSecrets
from adapter.app.state import sealed_rows
from adapter.edge.api.routes import ServerRoutes
from adapter.edge.api.server_catalogue import NewsStreams, ServerCatalogue
from adapter.edge.api.server_tools import Callers, ServerTools
from adapter.edge.api.tool_api import ApiOptions, AuthHook, ToolApi
from adapter.edge.console.activity import Activity
from adapter.edge.console.data import Connections, ConsoleData, ConsoleGrants, Topic
from adapter.edge.console.page_files import PageFiles, ServedPaths, document, pages
from adapter.edge.console.status import OpenSessions, ServerFacts, ServerStatus, SessionsAndFiles, Viewers
from adapter.edge.http.request import Request
from adapter.edge.router import ExchangeRecords
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.relay.http_api.sessions import HttpSessions, SessionBounds
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.rules.access.resources import CONSOLE
from adapter.settings.reference_page import MASK, masked
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.version import VERSION
from adapter.wire.eras import Era

SECRET = "http sessions"  # noqa: S105 (the name of a secret)


def build_branches(app: Core, known: dict[str, HttpSessions]) -> BuiltConsole:
    """Build the console. ``known`` are the sessions of callers, by server. A hook that cannot be loaded is noted as a
    problem of the plans.
    """
    settings, recent, files = app.settings, app.recent, app.files
    if recent is None:
        return BuiltConsole()
    path, sign_in = settings.console.path, app.sign_in
    guard, roles = (app.guard, None) if sign_in is None else (sign_in.guard, sign_in.roles)
    viewers = Viewers(guard, settings.console.operators, roles)
    credentials = frozenset({settings.core.auth.header_name.lower()})
    own = Callers(guard, app.bases, credentials, CONSOLE)
    callers = {server: Callers(guard, app.bases, credentials, server) for server in [*app.servers]}
    sessions = _sessions(app, known)
    belongings = _belongings(app)
    news = NewsStreams()
    apis = _apis(app, sessions, callers, belongings, news)
    records = ExchangeRecords(guard, app.calls, recent)
    uploads = settings.core.upload_path if files.active else None
    downloads = settings.core.allow_artifacts_download
    grants = None if app.grants is None else ConsoleGrants(path, viewers, app.grants.servers)
    described = document(ServedPaths(path, uploads, downloads, grants is not None), VERSION)
    routes = ServerRoutes(path, apis, described, records, app.server_spans())

    async def look(request: Request, server: str) -> None:
        await sessions[server].tools(own.of(request))

    facts = {entry.id: _server_facts(entry, files) for entry in settings.servers}
    status = ServerStatus(app.health, facts, recent)
    topics: dict[str, Topic] = {
        "sessions": belongings.sessions_for,
        "files": belongings.files_for,
        "activity": Activity(recent, app.shared_exchanges, app.health.replicas).told,
        **({} if grants is None else {"grants": grants.told}),
    }
    connections = Connections(settings, app.bases)
    data = ConsoleData(connections, configuration(settings), VERSION, viewers, status, topics, look)
    revoking = () if grants is None else (grants.branch(),)
    shown = pages(path, app.servers, PageFiles())
    signing_in = () if sign_in is None else sign_in.routes.branches()
    return BuiltConsole((*signing_in, *revoking, *data.branches(), *routes.branches(), *shown), news.close)


# --- the API of tools -------------------------------------------------------------------------------------------


def _sessions(app: Core, known: dict[str, HttpSessions]) -> Mapping[str, HttpSessions]:
    """The sessions of callers by server; those that are ``known`` stay."""
    settings, monitors = app.settings, app.server_parts.monitors
    # The rows by which processes share the sessions of callers.
    rows = sealed_rows(settings, app.store, SECRET) if app.store.shared else None
    bounds = SessionBounds(streams=settings.core.upstream.max_streams // 2)
    for server in [*app.servers.values()]:
        if server.id not in known or known[server.id].server is not server:
            known[server.id] = HttpSessions(
                app.relay,
                app.session_parts.sessions,
                server,
                app.background,
                era=_era_of(monitors.get(server.id)),
                rows=rows,
                bounds=bounds,
            )
    return {server: known[server] for server in app.servers if server in known}


def _era_of(monitor: HealthMonitor | None) -> Callable[[], Era | None]:
    return (lambda: None) if monitor is None else (lambda: monitor.pulse.era)


def _apis(
    app: Core,
    sessions: Mapping[str, HttpSessions],
    callers: Mapping[str, Callers],
    belongings: SessionsAndFiles,
    news: NewsStreams,
) -> dict[str, ServerCatalogue]:
    settings, console = app.settings, app.settings.console
    hook = _hook(console.auth_hook, app)
    options = ApiOptions(
        title=console.title,
        allow_execute=console.allow_execute,
        discovery_auth=console.discovery_auth,
        invalid_json=console.invalid_json,
        max_body=console.max_body,
        expose=settings.core.errors.expose,
    )
    takers = {entry.id for entry in settings.servers if takes_uploads(settings, entry)}
    apis = {}
    for server, http_sessions in sessions.items():
        tools = ServerTools(server, http_sessions, callers[server])
        api = ToolApi(
            tools,
            options,
            app.log,
            authenticate=callers[server].authenticate,
            hook=hook,
            view=tools.view,
            checks=app.checks.checks,
        )
        own_files = belongings.files_of if server in takers else None
        apis[server] = ServerCatalogue(api, http_sessions, callers[server], news, own_files)
    return apis


def _hook(reference: str | None, app: Core) -> AuthHook | None:
    if reference is None:
        return None
    assert app.plans is not None, "the user's own code asks for plans"
    loading = app.plans.loading
    with loading.judging("console.auth_hook", ScriptInvalid):
        return AuthHook(loading.function(reference, least=1, most=1).plain, app.log)
    return None


# --- the console's data -----------------------------------------------------------------------------------------


def _server_facts(entry: ServerSettings, files: FileSecrets) -> ServerFacts:
    helper = f"{entry.id}_get_upload_url" if takes_uploads(files.settings, entry) else None
    return ServerFacts(entry.upstream.transport, helper, len(files.of(entry).own_tools))


def _belongings(app: Core) -> SessionsAndFiles:
    settings, sessions = app.settings, app.session_parts
    registry = app.files.registry if app.files.active else build_registry(app, build_shelf(settings))
    return SessionsAndFiles(
        OpenSessions(app.store, sessions.sessions),
        sessions.scopes,
        registry,
        settings,
    )


def configuration(settings: Settings) -> str:
    """The effective settings as YAML, without secrets and without the places where the adapter keeps things."""
    shown = masked(settings)
    shown["storage"]["root"] = shown["state_persistence"]["disk"]["local_path"] = MASK
    kept = (settings.storage.root, settings.state_path, settings.snapshot_path)
    places = {str(place.absolute()) for place in kept if place is not None}
    return yaml.safe_dump(_without(shown, places), sort_keys=False, allow_unicode=True)


def _without(value: Any, places: set[str]) -> Any:
    """The value without texts that are one of these paths, or a path below one."""
    if isinstance(value, dict):
        return {key: _without(member, places) for key, member in value.items()}
    if isinstance(value, list):
        return [_without(item, places) for item in value]
    is_place = isinstance(value, str) and not places.isdisjoint((value, *map(str, Path(value).parents)))
    return MASK if is_place else value
