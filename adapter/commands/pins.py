"""``mcp-adapter pins``: compare servers' tools with those that sessions start from, and accept them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapter import log
from adapter.app.state import kept_store
from adapter.commands.command_parser import failed, load_settings, servers_named
from adapter.commands.pin_status import (
    NO_MEMORY,
    Baseline,
    ServerPinStatus,
    Unreadable,
    counted,
    dated,
    export,
    pins_report,
    read_statuses,
)
from adapter.commands.progress_bar import count_of
from adapter.errors import StoreUnavailable
from adapter.relay.tools.pins import Pins
from adapter.rules.text.unicode import shown
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import Drift, MetDrift, drift
from adapter.rules.tools.drift_report import counts, render
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings

AGREES, DRIFTED, UNREADABLE = 0, 1, 2
"""Exit statuses. That of several servers is the highest of theirs."""


def run(options: argparse.Namespace) -> int:
    """Run a topic and print its result, as text or as JSON.

    Return the exit status: 0, 1 for drift, 2 for what cannot be read. Raises SettingsError.
    """
    settings = load_settings(options)
    # The running adapter logs what policies do to tools.
    log.configure("warning")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Definitions may hold characters that the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    entries = servers_named(settings, options.server)
    try:
        servers = asyncio.run(read_statuses(settings, entries, seen=options.seen))
        show = _as_json if options.json else _as_text
        exit_code = show(servers, settings, options)
        sys.stdout.flush()
        return exit_code
    except (StoreUnavailable, Unreadable) as error:
        return failed(shown(str(error), 500), UNREADABLE)
    except BrokenPipeError:
        # The reader closed the pipe. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DRIFTED


def _as_text(servers: Sequence[ServerPinStatus], settings: Settings, options: argparse.Namespace) -> int:
    return _COMMANDS[options.topic](servers, settings, options)


def _as_json(servers: Sequence[ServerPinStatus], settings: Settings, options: argparse.Namespace) -> int:
    # The text is made for its verdict only, so that both forms always agree.
    with contextlib.redirect_stdout(io.StringIO()):
        exit_code = _as_text(servers, settings, options)
    print(json.dumps(pins_report(servers), indent=2))
    return exit_code


# --- list, diff, check ----------------------------------------------------------------------------------------


def _list(servers: Sequence[ServerPinStatus], settings: Settings, _: argparse.Namespace) -> int:
    for status in servers:
        baseline = status.baselines[0] if status.baselines else None
        print(status.entry.id)
        print(f"  baseline     {_start(status, baseline, settings)}")
        for digest, scopes in sorted(status.first_seen.items(), key=lambda item: (-item[1], item[0])):
            print(f"  first seen   {digest[:12]} by {counted(scopes)}")
        for met in status.remembered.met if status.remembered is not None else ():
            print(f"  drift seen   {_met(met)}")
        if isinstance(status.now, Unreadable):
            print(f"  now          unknown: {_safe(status.now)}")
            continue
        drifted = _drift(baseline, status.now) if baseline is not None else None
        print(f"  now          {_size(status.now)}{f': {_counted(counts(drifted))}' if drifted else ''}")
    return AGREES


def _start(status: ServerPinStatus, baseline: Baseline | None, settings: Settings) -> str:
    if status.baseline_trouble is not None:
        return f"unknown: {_safe(status.baseline_trouble)}"
    if baseline is not None and baseline.binding:
        return f"{baseline.origin}: {_size(baseline.catalogue)}"
    if settings.pinning_for(status.entry).mode == "off":
        return "none: tool_definition_pinning.mode is off"
    return "what each session sees first"


def _diff(servers: Sequence[ServerPinStatus], settings: Settings, options: argparse.Namespace) -> int:
    return max(_compare(status, settings, options) for status in servers)


def _check(servers: Sequence[ServerPinStatus], settings: Settings, options: argparse.Namespace) -> int:
    """Do as ``diff``, but compare only with baselines that bind every session."""
    exit_code = AGREES
    checked = 0
    for status in servers:
        if status.baseline_trouble is None and not any(each.binding for each in status.baselines):
            print(f"mcp-adapter: {status.entry.id} has no baseline, so it was not checked", file=sys.stderr)
            continue
        exit_code = max(exit_code, _compare(status, settings, options))
        checked += 1
    if not checked:
        return failed(
            "there is no baseline to compare with: set servers[].tools_lock, or use pins accept", UNREADABLE
        )
    return exit_code


def _compare(status: ServerPinStatus, settings: Settings, options: argparse.Namespace) -> int:
    server = status.entry.id
    if status.baseline_trouble is not None:
        return failed(f"{server}: {_safe(status.baseline_trouble)}", UNREADABLE)
    if isinstance(status.now, Unreadable):
        return failed(f"{server}: {_safe(status.now)}", UNREADABLE)
    if not status.baselines and settings.state_persistence.type == "memory":
        return failed(f"{server}: {NO_MEMORY}", UNREADABLE)
    if not status.baselines:
        print(f"{server}: nothing is pinned yet; now {_size(status.now)}")
    exit_code = max((_show(server, each, status.now, options) for each in status.baselines), default=AGREES)
    return max(exit_code, _recall(status, status.now))


def _recall(status: ServerPinStatus, now: Catalogue) -> int:
    """Print the catalogues that were met, are not offered now, and nobody has accepted."""
    if status.remembered is None:
        return AGREES
    server, baseline = status.entry.id, status.baselines[0]
    for met in status.remembered.met:
        catalogue = status.met.get(met.first.digest)
        if now.digest in (met.first.digest, catalogue and catalogue.digest):
            continue
        print(f"{server}: not accepted yet: {_met(met)}")
        found = _drift(baseline, catalogue) if catalogue is not None else None
        if catalogue is not None and found is not None:
            print(f"--- {baseline.origin}: {_size(baseline.catalogue)}")
            print(f"+++ seen {dated(met.first.at)}: {_size(catalogue)}\n")
            print(render(found, baseline.catalogue.tools, catalogue.tools), end="")
        else:
            print(shown(met.first.summary.sentence, 500))
    if status.remembered.more:
        print(f"{server}: {status.remembered.more} more catalogues were seen")
    return DRIFTED


def _show(server: str, baseline: Baseline, now: Catalogue, options: argparse.Namespace) -> int:
    """Print how the tools of now differ from a baseline."""
    found = _drift(baseline, now)
    if found is None:
        print(f"{server}: no change from {baseline.origin}: {_size(now)}")
        return AGREES
    print(f"{server}: {_counted(counts(found))}")
    print(f"--- {baseline.origin}: {_size(baseline.catalogue)}")
    print(f"+++ {'last seen' if options.seen else 'now'}: {_size(now)}\n")
    print(render(found, baseline.catalogue.tools, now.tools), end="")
    if found.is_of_other_keys_only:
        print("Nothing that a model sees has changed, so sessions continue.")
        return AGREES
    return DRIFTED


# --- accept ---------------------------------------------------------------------------------------------------


def _accept(servers: Sequence[ServerPinStatus], settings: Settings, options: argparse.Namespace) -> int:
    if settings.state_persistence.type == "memory":
        return failed(NO_MEMORY, UNREADABLE)
    if not options.yes and not sys.stdin.isatty():
        return failed("there is no terminal for the question; use --yes to accept without asking", UNREADABLE)
    exit_code = AGREES
    accepted: list[tuple[ServerSettings, Catalogue]] = []
    for status in servers:
        server, now = status.entry.id, status.now
        if _is_settled_by_lock(status) and not isinstance(now, Unreadable):
            accepted.append((status.entry, now))
        elif status.entry.tools_lock is not None:
            print(f"mcp-adapter: {server} has a lock file: use pins export", file=sys.stderr)
            exit_code = max(exit_code, UNREADABLE if options.server else AGREES)
        elif isinstance(now, Unreadable):
            exit_code = failed(f"{server}: {_safe(now)}", UNREADABLE)
        elif status.remembered is None and any(
            each.binding and each.catalogue.digest == now.digest for each in status.baselines
        ):
            print(f"{server}: nothing to accept, no change from {status.baselines[0].origin}: {_size(now)}")
        elif _agreed(status, now, options):
            accepted.append((status.entry, now))
        else:
            print(f"{server}: nothing was accepted")
            exit_code = max(exit_code, DRIFTED)
    asyncio.run(_keep(settings, accepted))
    for entry, now in accepted:
        if entry.tools_lock is not None:
            print(f"{entry.id}: same as its lock file again; the stored drift was cleared")
        else:
            print(f"{entry.id}: the baseline of every session is now {_size(now)}")
    return exit_code


def _is_settled_by_lock(status: ServerPinStatus) -> bool:
    """Tell whether drift from the server's lock file was met, and the server offers the tools of the file again."""
    if status.entry.tools_lock is None or isinstance(status.now, Unreadable) or status.remembered is None:
        return False
    return status.baselines[0].catalogue.digest == status.now.digest


def _agreed(status: ServerPinStatus, now: Catalogue, options: argparse.Namespace) -> bool:
    """Show the tools that would be accepted, and ask the operator."""
    for baseline in status.baselines:
        _show(status.entry.id, baseline, now, options)
    if not status.baselines:
        print(f"{status.entry.id}: {_size(now)}, no baseline yet")
        for name in sorted(now.tools):
            print(f"  {shown(name, 128)}")
    if options.yes:
        return True
    try:
        answer = input(f"Make these {_size(now)} the baseline of every session of {status.entry.id}? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


async def _keep(settings: Settings, accepted: Sequence[tuple[ServerSettings, Catalogue]]) -> None:
    if not accepted:
        return
    async with kept_store(settings, making=True) as store:
        pins = Pins(store, time.time)
        for entry, now in accepted:
            if entry.tools_lock is not None:
                await pins.drift.forget(entry.id)
            else:
                await pins.accept(entry.id, now)


def _export(servers: Sequence[ServerPinStatus], _: Settings, options: argparse.Namespace) -> int:
    directory = options.config.parent if options.config else Path()
    export(servers, options.output, directory, whole=options.server is None)
    return AGREES


# --- words ----------------------------------------------------------------------------------------------------


def _met(met: MetDrift) -> str:
    by = f"first by {shown(met.first.by, 64)}, {dated(met.first.at)}"
    return f"{met.first.digest[:12]} seen by {counted(met.count)}, {by}: {_counted(met.first.summary.counts)}"


def _drift(baseline: Baseline, now: Catalogue) -> Drift | None:
    return None if baseline.catalogue.digest == now.digest else drift(baseline.catalogue.tools, now.tools)


def _size(catalogue: Catalogue) -> str:
    return f"{count_of(len(catalogue.tools), 'tool')} ({catalogue.digest[:12]})"


def _counted(found: Mapping[str, int]) -> str:
    """The result of ``drift_report.counts`` in words."""
    words = ("changed", "added", "renamed", "removed")
    parts = [f"{found[word]} {word}" for word in words if found.get(word)]
    less_safe = found.get("less_safe")
    return ", ".join(parts) + (f"; {less_safe} less safe" if less_safe else "")


def _safe(trouble: Unreadable) -> str:
    """The sentence of an error, which may quote what a stranger sent."""
    return shown(str(trouble), 500)


_COMMANDS = {"list": _list, "diff": _diff, "check": _check, "accept": _accept, "export": _export}
