"""The console: its page, its data and the HTTP API of tools, below ``console.path``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from adapter.app.edge import Door, Observation
from adapter.app.files import FileStages
from adapter.app.relay import RelayParts, Runtime
from adapter.app.tool_plans import Compiled
from adapter.app.user_code import Loading
from adapter.edge.api.auth_hook import AuthHook
from adapter.edge.api.server_routes import ServerApi, ServerRoutes, document
from adapter.edge.api.server_tools import Callers, Previews, ServerTools
from adapter.edge.api.tool_api import ApiOptions, ToolApi
from adapter.edge.console import operations as console_operations
from adapter.edge.console.data import ConsoleData, ConsoleFacts
from adapter.edge.console.page_files import PageFiles, pages
from adapter.edge.console.status import Belongings, ServerFacts, ServerStatus
from adapter.edge.http.request import Branch, Request
from adapter.edge.openapi import operations
from adapter.edge.router import ExchangeRecords
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.relay.http_api.sessions import HttpSessions
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.settings.reference_page import MASK, masked
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.version import installed_version
from adapter.wire.eras import Era


class ConsoleParts(NamedTuple):
    """The routes of the console, none where it is off, and the sessions of its callers by server."""

    branches: Sequence[Branch] = ()
    sessions: Mapping[str, HttpSessions] = {}

    async def tidy(self) -> None:
        """Close sessions that are idle for too long."""
        await asyncio.gather(*(sessions.tidy() for sessions in self.sessions.values()))

    async def close(self, within: float) -> None:
        """End the sessions of all callers, upstream as far as that takes no longer than ``within`` seconds."""
        await asyncio.gather(*(sessions.close(within) for sessions in self.sessions.values()))


def build_console(
    settings: Settings,
    runtime: Runtime,
    observation: Observation,
    compiled: Compiled,
    relay: RelayParts,
    files: FileStages,
    door: Door,
) -> ConsoleParts:
    """Build the console, where it is on. A hook that cannot be loaded is noted as a problem of ``compiled``."""
    recent = observation.recent
    if recent is None:
        return ConsoleParts()
    path = settings.console.path
    callers = Callers(door.guard, door.bases, frozenset({settings.core.auth.header_name.lower()}))
    sessions = _sessions(runtime, relay)
    apis = _apis(settings, runtime, compiled, sessions, callers)
    records = ExchangeRecords(door.guard, observation.calls, recent)
    routes = ServerRoutes(path, apis, _document(settings, files), records, observation.tracing)

    async def look(request: Request, server: str) -> None:
        await sessions[server].tools(callers.of(request))

    data = ConsoleData(
        _facts(settings),
        door.guard,
        ServerStatus(door.health, {entry.id: _server_facts(entry, files) for entry in settings.servers}),
        _belongings(settings, relay, files),
        recent,
        look,
    )
    shown = pages(path, relay.servers.by_id, PageFiles())
    return ConsoleParts((*data.branches(), *routes.branches(), *shown), sessions)


# --- the API of tools -------------------------------------------------------------------------------------------


def _sessions(runtime: Runtime, relay: RelayParts) -> dict[str, HttpSessions]:
    monitors = relay.servers.monitors
    return {
        server.id: HttpSessions(
            relay.relay, server, runtime.background, time.monotonic, era=_era_of(monitors.get(server.id))
        )
        for server in relay.servers.by_id.values()
    }


def _era_of(monitor: HealthMonitor | None) -> Callable[[], Era | None]:
    return (lambda: None) if monitor is None else (lambda: monitor.pulse.era)


def _apis(
    settings: Settings,
    runtime: Runtime,
    compiled: Compiled,
    sessions: Mapping[str, HttpSessions],
    callers: Callers,
) -> dict[str, ServerApi]:
    console = settings.console
    hook = _hook(console.auth_hook, compiled.loading, runtime)
    options = ApiOptions(
        title=console.title,
        allow_execute=console.allow_execute,
        discovery_auth=console.discovery_auth,
        invalid_json=console.invalid_json,
        max_body=console.max_body,
        expose=settings.core.errors.expose,
    )
    apis = {}
    for server, http_sessions in sessions.items():
        tools = ServerTools(server, http_sessions, callers)
        api = ToolApi(
            tools,
            options,
            runtime.log,
            authenticate=callers.authenticate,
            hook=hook,
            view=tools.view,
            checks=compiled.checks,
        )
        apis[server] = ServerApi(api, Previews(http_sessions, callers))
    return apis


def _hook(reference: str | None, loading: Loading, runtime: Runtime) -> AuthHook | None:
    if reference is None:
        return None
    with loading.judging("console.auth_hook", ScriptInvalid):
        return AuthHook(loading.function(reference, least=1, most=1).plain, runtime.log)
    return None


def _document(settings: Settings, files: FileStages) -> bytes:
    path = settings.console.path
    upload_path = settings.core.upload_path if files.parts.active else None
    others = operations(upload_path, downloads=settings.core.allow_artifacts_download)
    data = [each.below(path) for each in console_operations.OPERATIONS]
    return document(path, [*data, *others], version=installed_version())


# --- the console's data -----------------------------------------------------------------------------------------


def _facts(settings: Settings) -> ConsoleFacts:
    console = settings.console
    return ConsoleFacts(
        path=console.path,
        title=console.title,
        allow_execute=console.allow_execute,
        operators=console.operators,
        max_body=console.max_body,
        version=installed_version(),
        configuration=configuration(settings),
    )


def _server_facts(entry: ServerSettings, files: FileStages) -> ServerFacts:
    helper = next((str(tool["name"]) for tool in files.own_tools(entry)), None)
    return ServerFacts(entry.upstream.transport, helper)


def _belongings(settings: Settings, relay: RelayParts, files: FileStages) -> Belongings:
    return Belongings(
        relay.sessions.sessions,
        relay.sessions.scopes,
        files.parts.registry,
        settings.sessions.max_total_session_size,
        settings.uploads.uri_scheme,
        settings.artifacts.uri_scheme,
    )


def configuration(settings: Settings) -> str:
    """The effective settings as YAML, without secrets and without the places where the adapter keeps things."""
    shown = masked(settings)
    shown["storage"]["root"] = shown["state_persistence"]["disk"]["local_path"] = MASK
    places = {str(place.absolute()) for place in (settings.storage.root, settings.state_path)}
    return yaml.safe_dump(_without(shown, places), sort_keys=False, allow_unicode=True)


def _without(value: Any, places: set[str]) -> Any:
    """The value without texts that are one of these paths, or a path below one."""
    if isinstance(value, dict):
        return {key: _without(member, places) for key, member in value.items()}
    if isinstance(value, list):
        return [_without(item, places) for item in value]
    is_place = isinstance(value, str) and not places.isdisjoint((value, *map(str, Path(value).parents)))
    return MASK if is_place else value
