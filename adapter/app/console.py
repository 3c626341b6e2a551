"""The parts of the console's data, and what of the settings they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from adapter.app.files import Filing
from adapter.edge.console.data import ConsoleData, ConsoleFacts, Look
from adapter.edge.console.status import Belongings, ServerFacts, ServerStatus
from adapter.edge.health import Health
from adapter.edge.http.access import Guard
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.tools.pin_review import PinReview
from adapter.settings.reference_page import MASK, masked
from adapter.settings.root import Settings


def console_data(
    settings: Settings,
    *,
    guard: Guard,
    health: Health,
    sessions: Sessions,
    filing: Filing,
    pin_review: PinReview,
    recent: Recent,
    version: str,
    look: Look,
) -> ConsoleData:
    """The routes of the console's data. ``look`` is as ConsoleData has it, and ``recent`` what the front keeps
    exchanges in.
    """
    facts = {}
    for entry in settings.servers:
        helper = next((str(tool["name"]) for tool in filing.own_tools(entry)), None)
        facts[entry.id] = ServerFacts(entry.upstream.transport, helper)
    return ConsoleData(
        ConsoleFacts(
            path=settings.console.path,
            title=settings.console.title,
            allow_execute=settings.console.allow_execute,
            operators=settings.console.operators,
            max_body=settings.console.max_body,
            version=version,
            configuration=configuration(settings),
        ),
        guard,
        ServerStatus(health.servers, health.monitors, facts, health.status_of, pin_review),
        Belongings(
            sessions,
            filing.scopes,
            filing.registry,
            settings.sessions.max_total_session_size,
            settings.uploads.uri_scheme,
            settings.artifacts.uri_scheme,
        ),
        pin_review,
        recent,
        look,
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
