"""How servers stand: what their sessions start from, and what they offer now. For operators who ask."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from adapter import log
from adapter.app import parts
from adapter.app.pipeline import Planning
from adapter.app.tool_plans import compiled
from adapter.app.tools import limits_of, policies_of, shape_of
from adapter.errors import AdapterError
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.stages import Plan
from adapter.relay.tools.catalogue_reader import all_tools
from adapter.relay.tools.pins import Pin, Pins
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.tools.catalogue import Catalogue, catalogue_of, of_pinned
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.lock_file import LockError, read_lock
from adapter.rules.tools.remembered_drift import RememberedDrift
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.state.memory import MemoryStore
from adapter.wire.eras import Era

NO_MEMORY = (
    "state_persistence.type is memory, so only the running adapter knows what sessions first saw. Use a "
    "lock file: mcp-adapter pins export, and servers[].tools_lock."
)


class Unreadable(Exception):
    """Something cannot be read; ``str(error)`` is a sentence for the operator."""


class Baseline(NamedTuple):
    """The tools that sessions start from. ``origin`` says where that comes from.

    ``binding``: it holds for every session, by a lock file or an operator's word.
    """

    origin: str
    catalogue: Catalogue
    binding: bool


@dataclass(frozen=True, slots=True)
class ServerPinStatus:
    """One server. ``baselines`` is one that is binding, or else what anybody first saw, and then what scopes did, the
    most frequent first.

    ``first_seen`` counts scopes by the digest of what they first saw. ``now`` is None where it could not be read.
    ``remembered`` is what was met that nobody has accepted, with those of its catalogues that are known, by digest.
    The troubles are sentences that say why something could not.
    """

    entry: ServerSettings
    baselines: tuple[Baseline, ...] = ()
    first_seen: Mapping[str, int] = field(default_factory=dict)
    now: Catalogue | None = None
    remembered: RememberedDrift | None = None
    met: Mapping[str, Catalogue] = field(default_factory=dict)
    baseline_trouble: str | None = None
    now_trouble: str | None = None


async def standings(
    settings: Settings, entries: Iterable[ServerSettings], *, seen: bool
) -> list[ServerPinStatus]:
    """Return how each of these servers stands; ``seen`` takes for now what the adapter saw last, and asks no server.

    Raises StoreUnavailable.
    """
    async with pins_of(settings) as pins:
        return list(await asyncio.gather(*(_standing(settings, entry, pins, seen=seen) for entry in entries)))


@contextlib.asynccontextmanager
async def pins_of(settings: Settings, *, making: bool = False) -> AsyncIterator[Pins]:
    """The pins that the adapter keeps, running or not. ``making``: where there are none yet, their file is made.

    Raises StoreUnavailable.
    """
    on_disk = settings.state_persistence.type == "disk"
    # Whoever only looks, in CI say, leaves no database behind.
    store = parts.store(settings) if making or (on_disk and settings.state_path.exists()) else MemoryStore()
    await store.open()
    try:
        yield Pins(store, time.time)
    finally:
        await store.close()


async def _standing(settings: Settings, entry: ServerSettings, pins: Pins, *, seen: bool) -> ServerPinStatus:
    baselines: tuple[Baseline, ...] = ()
    now: Catalogue | None = None
    baseline_trouble = now_trouble = None
    try:
        baselines = await _baselines(settings, entry, pins)
    except Unreadable as error:
        baseline_trouble = str(error)
    try:
        now = await _last_seen(settings, entry, pins) if seen else await _offered(settings, entry)
    except Unreadable as error:
        now_trouble = str(error)
    first_seen = await pins.spread(entry.id)
    remembered = await _remembered(settings, entry, baselines, pins)
    met = {each.digest: await pins.catalogue(each.digest) for each in remembered.met} if remembered else {}
    known = {digest: catalogue for digest, catalogue in met.items() if catalogue is not None}
    return ServerPinStatus(
        entry, baselines, first_seen, now, remembered, known, baseline_trouble, now_trouble
    )


async def _remembered(
    settings: Settings, entry: ServerSettings, baselines: tuple[Baseline, ...], pins: Pins
) -> RememberedDrift | None:
    if not baselines or settings.pinning_for(entry).mode == "off":
        return None
    return await pins.memory.of(entry.id, baselines[0].catalogue.digest)


# --- baselines ------------------------------------------------------------------------------------------------


async def _baselines(settings: Settings, entry: ServerSettings, pins: Pins) -> tuple[Baseline, ...]:
    if entry.tools_lock is not None:
        locked = read_lock_file(entry.tools_lock).get(entry.id, {})
        return (Baseline(entry.tools_lock.name, of_pinned(locked), True),)
    accepted = await pins.look_up(entry.id)
    if accepted is not None:
        return (Baseline(f"accepted {_date(accepted)}", await _catalogue(pins, accepted.digest), True),)
    spread = await pins.spread(entry.id)
    found = []
    first = await pins.first(entry.id)
    if first is not None:
        binding = settings.pinning_for(entry).baseline == "server"
        scopes = spread.pop(first.digest, 0)
        said = f" by {counted(scopes)}" if scopes else ""
        found.append(
            Baseline(f"first seen {_date(first)}{said}", await _catalogue(pins, first.digest), binding)
        )
    for digest, scopes in sorted(spread.items(), key=lambda item: (-item[1], item[0])):
        origin = f"first seen by {counted(scopes)}"
        found.append(Baseline(origin, await _catalogue(pins, digest), False))
    return tuple(found)


def read_lock_file(path: Path) -> dict[str, dict[str, PinnedTool]]:
    """The pinned tools of each server. Raises Unreadable."""
    try:
        return read_lock(path.read_text(encoding="utf-8"))
    except LockError as error:
        raise Unreadable(f"{path}: {error}") from None
    except FileNotFoundError:
        raise Unreadable(f"{path} does not exist: create it with mcp-adapter pins export.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from None


async def _last_seen(settings: Settings, entry: ServerSettings, pins: Pins) -> Catalogue:
    if settings.state_persistence.type == "memory":
        raise Unreadable(NO_MEMORY)
    pin = await pins.last_seen(entry.id)
    if pin is None:
        raise Unreadable("The adapter has not seen this server's tools yet.")
    return await _catalogue(pins, pin.digest)


async def _catalogue(pins: Pins, digest: str) -> Catalogue:
    found = await pins.catalogue(digest)
    if found is None:
        raise Unreadable(f"The catalogue {digest[:12]} was stored by another version of the adapter.")
    return found


def _date(pin: Pin) -> str:
    return dated(pin.since)


def dated(moment: float) -> str:
    """A moment (Unix seconds) as an operator reads it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def counted(scopes: int) -> str:
    """How many scopes, in words of whoever operates them."""
    return "1 session or principal" if scopes == 1 else f"{scopes} sessions or principals"


# --- now ------------------------------------------------------------------------------------------------------


async def _offered(settings: Settings, entry: ServerSettings) -> Catalogue:
    """Return what the server offers at this moment, as clients would see it. Raises Unreadable."""
    patience = settings.core.upstream_request_timeout_seconds
    # Only what this entry names is made: the scripts of other servers are none of its affair.
    made = compiled(settings.model_copy(update={"servers": [entry]}), log.get_logger(__name__))
    server = parts.server(settings, entry, Plan(), made.hosting)
    visit = OwnSession(server, patience)
    try:
        async with asyncio.timeout(patience):
            return await _read(visit, _lists(settings, entry, made.planning))
    except TimeoutError:
        raise Unreadable(
            f"The server did not list its tools within core.upstream_request_timeout_seconds ({patience:g})."
        ) from None
    except AdapterError as error:
        raise Unreadable(str(error)) from None
    finally:
        await visit.close()
        await server.upstream.close()
        made.loading.close()


async def _read(visit: OwnSession, lists: ToolLists) -> Catalogue:
    status = await visit.open()
    if status in (401, 403):
        raise Unreadable(
            f"The server requires credentials (HTTP status {status}): set them in "
            "upstream.static_headers, or use --seen for the tools that the adapter saw last."
        )
    if not visit.is_open:
        raise Unreadable(f"The server does not answer as an MCP server (HTTP status {status}).")

    async def fetch(method: str, params: dict[str, Any]) -> bytes | None:
        return (await visit.ask(method, params)).response

    tools = await all_tools(lists, fetch, modern=visit.era is Era.MODERN)
    if tools is None:
        raise Unreadable("The server did not answer with a complete list of its tools.")
    return catalogue_of(tools)


def _lists(settings: Settings, entry: ServerSettings, planning: Planning) -> ToolLists:
    decorate = partial(planning.decorate, entry) if planning.concerns(entry) else None
    shape = shape_of(policies_of(settings, entry), decorate)
    return ToolLists(entry.id, shape, (), ParamHeaders(), log.get_logger(__name__), limits_of(settings))
