"""The pin status of servers for operators: what their sessions start from, and what they offer now; and lock files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from adapter.app.access.tool_policies import earlier_forms, wrapped_tools
from adapter.app.state import kept_store
from adapter.commands.connections import own_session, tools_of
from adapter.commands.file_writing import replace_file
from adapter.errors import AdapterError
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.tools.pins import Pins
from adapter.rules.tools.catalogue import Catalogue, catalogue_of, of_pinned, read_as
from adapter.rules.tools.definitions import EarlierForms, PinnedTool
from adapter.rules.tools.drift import RememberedDrift, drift
from adapter.rules.tools.drift_report import as_data
from adapter.rules.tools.lock_file import LockError, read_lock, write_lock
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.wire.piecewise import at_once

NO_MEMORY = (
    "state_persistence.type is memory, so only the running adapter knows what sessions first saw. Use a "
    "lock file: mcp-adapter pins export, and servers[].tools_lock."
)


class Unreadable(Exception):
    """Something cannot be read; ``str(error)`` is a sentence for the operator."""


class Baseline(NamedTuple):
    """The tools that sessions start from. ``origin`` names their source in words.

    ``binding``: every session starts from them, by a lock file or because an operator accepted them.
    """

    origin: str
    catalogue: Catalogue
    binding: bool


@dataclass(frozen=True, slots=True)
class ServerPinStatus:
    """One server. ``baselines`` is one that is binding; or else the catalogue that anybody saw first, and then those
    that scopes saw first, the most frequent one first.

    ``first_seen`` counts scopes by the digest of what they first saw. ``remembered`` is the drift that was met and
    nobody has accepted, and ``met`` those of its catalogues that are known, by digest. What could not be read is an
    error in its place.
    """

    entry: ServerSettings
    now: Catalogue | Unreadable
    baselines: tuple[Baseline, ...] = ()
    first_seen: Mapping[str, int] = field(default_factory=dict)
    remembered: RememberedDrift | None = None
    met: Mapping[str, Catalogue] = field(default_factory=dict)
    baseline_trouble: Unreadable | None = None


async def read_statuses(
    settings: Settings, entries: Iterable[ServerSettings], *, seen: bool
) -> list[ServerPinStatus]:
    """The status of each of these servers; ``seen`` takes for now what the adapter saw last, and asks no server.

    Raises StoreUnavailable.
    """
    async with kept_store(settings) as store:
        pins = Pins(store, time.time)
        return list(await asyncio.gather(*(_status(settings, entry, pins, seen=seen) for entry in entries)))


async def _status(settings: Settings, entry: ServerSettings, pins: Pins, *, seen: bool) -> ServerPinStatus:
    baselines: tuple[Baseline, ...] = ()
    trouble: Unreadable | None = None
    now: Catalogue | Unreadable
    try:
        baselines = await _baselines(settings, entry, pins)
    except Unreadable as error:
        trouble = error
    earlier = earlier_forms(wrapped_tools(settings, entry), None)
    try:
        if seen:
            now = await _last_seen(settings, entry, pins)
        else:
            now, earlier = await _offered(settings, entry)
    except Unreadable as error:
        now = error
    first_seen = await pins.count(entry.id)
    remembered = await _remembered(settings, entry, baselines, pins)
    digests = [each.first.digest for each in remembered.met] if remembered is not None else []
    met = {digest: catalogue for digest in digests if (catalogue := await pins.catalogue(digest)) is not None}
    if isinstance(now, Catalogue):
        baselines = tuple(
            each._replace(catalogue=at_once(read_as(each.catalogue, now, earlier))) for each in baselines
        )
        met = {digest: at_once(read_as(catalogue, now, earlier)) for digest, catalogue in met.items()}
    return ServerPinStatus(entry, now, baselines, first_seen, remembered, met, trouble)


async def _remembered(
    settings: Settings, entry: ServerSettings, baselines: tuple[Baseline, ...], pins: Pins
) -> RememberedDrift | None:
    if not baselines or settings.pinning_for(entry).mode == "off":
        return None
    return await pins.drift.of(entry.id, baselines[0].catalogue.digest)


# --- baselines ------------------------------------------------------------------------------------------------


async def _baselines(settings: Settings, entry: ServerSettings, pins: Pins) -> tuple[Baseline, ...]:
    if entry.tools_lock is not None:
        locked = read_lock_file(entry.tools_lock).get(entry.id, {})
        return (Baseline(entry.tools_lock.name, of_pinned(locked), True),)
    accepted = await pins.accepted(entry.id)
    if accepted is not None:
        return (Baseline(f"accepted {dated(accepted.since)}", await _catalogue(pins, accepted.digest), True),)
    spread = await pins.count(entry.id)
    found = []
    first = await pins.first(entry.id)
    if first is not None:
        binding = settings.pinning_for(entry).baseline == "server"
        scopes = spread.pop(first.digest, 0)
        by = f" by {counted(scopes)}" if scopes else ""
        found.append(
            Baseline(f"first seen {dated(first.since)}{by}", await _catalogue(pins, first.digest), binding)
        )
    for digest, scopes in sorted(spread.items(), key=lambda item: (-item[1], item[0])):
        origin = f"first seen by {counted(scopes)}"
        found.append(Baseline(origin, await _catalogue(pins, digest), False))
    return tuple(found)


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


def dated(moment: float) -> str:
    """A moment (Unix seconds) as an operator reads it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def counted(scopes: int) -> str:
    """A number of scopes, in an operator's words."""
    return "1 session or principal" if scopes == 1 else f"{scopes} sessions or principals"


# --- now ------------------------------------------------------------------------------------------------------


async def _offered(settings: Settings, entry: ServerSettings) -> tuple[Catalogue, EarlierForms]:
    """The catalogue that the server offers at this moment, as clients would see it, and how earlier versions pinned
    such tools. Raises Unreadable.
    """
    patience = settings.core.upstream_request_timeout_seconds
    try:
        async with own_session(settings, entry, patience) as (visit, made), asyncio.timeout(patience):
            decorate = partial(made.planning.decorate, entry) if made.planning.concerns(entry) else None
            await _open(visit)
            tools = await tools_of(settings, entry, visit, decorate)
            if tools is None:
                raise Unreadable("The server did not answer with a complete list of its tools.")
            return catalogue_of(tools), earlier_forms(wrapped_tools(settings, entry), decorate)
    except TimeoutError:
        raise Unreadable(
            f"The server did not list its tools within core.upstream_request_timeout_seconds ({patience:g})."
        ) from None
    except AdapterError as error:
        raise Unreadable(str(error)) from None


async def _open(visit: OwnSession) -> None:
    status = await visit.open()
    if status in (401, 403):
        raise Unreadable(
            f"The server requires credentials (HTTP status {status}): set them in "
            "upstream.static_headers, or use --seen for the tools that the adapter saw last."
        )
    if not visit.is_open:
        raise Unreadable(f"The server does not answer as an MCP server (HTTP status {status}).")


# --- as data --------------------------------------------------------------------------------------------------


def pins_report(servers: Sequence[ServerPinStatus]) -> list[dict[str, Any]]:
    """One object for each server, in the order of the settings.

    ``now`` is null where the tools cannot be read, and ``error`` says why. ``baselines`` are what sessions start from;
    each has its ``drift`` from the tools of now, null if there is none or it is unknown. ``remembered`` is the drift
    that nobody has accepted yet, null if there is none.
    """
    return [_server(status) for status in servers]


def _server(status: ServerPinStatus) -> dict[str, Any]:
    now = None if isinstance(status.now, Unreadable) else status.now
    troubles = (status.baseline_trouble, status.now if isinstance(status.now, Unreadable) else None)
    errors = [str(trouble) for trouble in troubles if trouble is not None]
    return {
        "id": status.entry.id,
        "now": None if now is None else _of_catalogue(now),
        "error": " ".join(errors) or None,
        "baselines": [_baseline(baseline, now) for baseline in status.baselines],
        "first_seen": dict(status.first_seen),
        "remembered": None if status.remembered is None else status.remembered.as_data(),
    }


def _baseline(baseline: Baseline, now: Catalogue | None) -> dict[str, Any]:
    differs = now is not None and now.digest != baseline.catalogue.digest
    found = drift(baseline.catalogue.tools, now.tools) if now is not None and differs else None
    return {
        "origin": baseline.origin,
        "binding": baseline.binding,
        **_of_catalogue(baseline.catalogue),
        "drift": None if found is None else as_data(found),
    }


def _of_catalogue(catalogue: Catalogue) -> dict[str, Any]:
    return {"digest": catalogue.digest, "tools": len(catalogue.tools)}


# --- lock files -----------------------------------------------------------------------------------------------

STDOUT = Path("-")


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


def export(servers: Sequence[ServerPinStatus], output: Path | None, directory: Path, *, whole: bool) -> None:
    """Write what these servers offer: to ``output``, or to each one's own lock file, or one in ``directory``.

    ``whole``: the files get no other servers; otherwise their other servers stay as they are. Prints each path that
    is written. Raises Unreadable, before anything is written unless a disk fails.
    """
    files: dict[Path, dict[str, Mapping[str, PinnedTool]]] = {}
    for status in servers:
        if isinstance(status.now, Unreadable):
            raise Unreadable(f"{status.entry.id}: {status.now}")
        path = output or status.entry.tools_lock or directory / "tools.lock"
        files.setdefault(path, {})[status.entry.id] = status.now.tools
    if output == STDOUT:
        print(write_lock(files[output]), end="")
        return
    texts = {
        path: write_lock(contents if whole or not path.exists() else {**read_lock_file(path), **contents})
        for path, contents in files.items()
    }
    for path, text in texts.items():
        _write(path, text.encode())
    for status in servers:
        if status.entry.tools_lock is None and output is None:
            print(
                f"{status.entry.id} does not use this lock file yet: add tools_lock: tools.lock to this server"
            )


def _write(path: Path, text: bytes) -> None:
    try:
        if path.exists() and path.read_bytes() == text:
            print(f"{path} is unchanged")
            return
        # An adapter that starts meanwhile reads the old file or the new one, never a part.
        replace_file(path, text)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror or error}") from None
    print(f"{path} is written")
