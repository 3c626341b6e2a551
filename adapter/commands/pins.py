"""``mcp-adapter pins``: how servers' tools stand to what sessions start from, and an operator's word on it."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adapter import log
from adapter.commands.lock_file import export
from adapter.commands.pin_status import (
    NO_MEMORY,
    Baseline,
    ServerPinStatus,
    Unreadable,
    counted,
    dated,
    pins_of,
    standings,
)
from adapter.errors import StoreUnavailable
from adapter.rules.text.unicode import shown
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import Drift, counts, drift
from adapter.rules.tools.drift_columns import render
from adapter.rules.tools.remembered_drift import MetDrift
from adapter.settings.root import Settings

Command = Literal["list", "diff", "accept", "check", "export"]

AGREES, DRIFTED, UNREADABLE = 0, 1, 2
"""Exit statuses, also of all servers together: the highest of theirs."""

WIDTH = 120
"""Columns where there is no terminal to ask, as in a log of CI."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of the command line. ``server`` None means all.

    ``seen``: look at what the adapter saw last. ``yes``: accept without asking. ``output`` is the file that
    ``export`` writes, ``-`` standard output; None: each server's own lock file, or one in ``directory``.
    """

    command: Command
    server: str | None = None
    seen: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    yes: bool = False
    output: Path | None = None
    directory: Path = Path()


def run(settings: Settings, asked: Asked) -> int:
    """Do it and print what there is to say. The exit status: 0, 1 for drift, 2 when something cannot be read."""
    # What policies do to tools is told where it happens, in the log of the running adapter.
    log.configure("warning")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Definitions hold any character, terminals do not know all.
        sys.stdout.reconfigure(errors="backslashreplace")
    entries = [entry for entry in settings.servers if asked.server in (None, entry.id)]
    if not entries:
        known = ", ".join(entry.id for entry in settings.servers)
        return _failed(
            f"there is no server {shown(asked.server or '', 64)}; the configured servers are: {known}"
        )
    try:
        found = asyncio.run(standings(settings, entries, seen=asked.seen))
        status = _COMMANDS[asked.command](found, settings, asked)
        sys.stdout.flush()
        return status
    except (StoreUnavailable, Unreadable) as error:
        return _failed(shown(str(error), 500))
    except BrokenPipeError:
        # Whoever read along has seen enough. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DRIFTED


# --- list, diff, check ----------------------------------------------------------------------------------------


def _list(found: Sequence[ServerPinStatus], settings: Settings, _: Asked) -> int:
    for standing in found:
        baseline = standing.baselines[0] if standing.baselines else None
        print(standing.entry.id)
        print(f"  baseline     {_start(standing, baseline, settings)}")
        for digest, scopes in sorted(standing.first_seen.items(), key=lambda item: (-item[1], item[0])):
            print(f"  first seen   {digest[:12]} by {counted(scopes)}")
        for met in standing.remembered.met if standing.remembered is not None else ():
            print(f"  drift seen   {_met(met)}")
        if standing.now is None:
            print(f"  now          unknown: {_safe(standing.now_trouble)}")
            continue
        drifted = _drift(baseline, standing.now) if baseline is not None else None
        print(f"  now          {_size(standing.now)}{f': {_told(counts(drifted))}' if drifted else ''}")
    return AGREES


def _start(standing: ServerPinStatus, baseline: Baseline | None, settings: Settings) -> str:
    if standing.baseline_trouble is not None:
        return f"unknown: {_safe(standing.baseline_trouble)}"
    if baseline is not None and baseline.binding:
        return f"{baseline.origin}: {_size(baseline.catalogue)}"
    if settings.pinning_for(standing.entry).mode == "off":
        return "none: tool_definition_pinning.mode is off"
    return "what each session sees first"


def _diff(found: Sequence[ServerPinStatus], settings: Settings, asked: Asked) -> int:
    return max(_compare(standing, settings, asked) for standing in found)


def _check(found: Sequence[ServerPinStatus], settings: Settings, asked: Asked) -> int:
    """As ``diff``, but only against what holds for every session: what sessions happened to see is no promise."""
    status = AGREES
    checked = 0
    for standing in found:
        if standing.baseline_trouble is None and not any(each.binding for each in standing.baselines):
            print(f"mcp-adapter: {standing.entry.id} has no baseline, so it was not checked", file=sys.stderr)
            continue
        status = max(status, _compare(standing, settings, asked))
        checked += 1
    if not checked:
        return _failed("there is no baseline to compare with: set servers[].tools_lock, or use pins accept")
    return status


def _compare(standing: ServerPinStatus, settings: Settings, asked: Asked) -> int:
    server = standing.entry.id
    for trouble in (standing.baseline_trouble, standing.now_trouble):
        if trouble is not None:
            return _failed(f"{server}: {_safe(trouble)}")
    assert standing.now is not None
    if not standing.baselines and settings.state_persistence.type == "memory":
        return _failed(f"{server}: {NO_MEMORY}")
    if not standing.baselines:
        print(f"{server}: nothing is pinned yet; now {_size(standing.now)}")
    status = max((_show(server, each, standing.now, asked) for each in standing.baselines), default=AGREES)
    return max(status, _recall(standing, standing.now, asked))


def _recall(standing: ServerPinStatus, now: Catalogue, asked: Asked) -> int:
    """Print what was met that nobody has accepted, and is not what is offered now."""
    if standing.remembered is None:
        return AGREES
    server, baseline = standing.entry.id, standing.baselines[0]
    for met in standing.remembered.met:
        if met.digest == now.digest:
            continue
        print(f"{server}: not accepted yet: {_met(met)}")
        catalogue = standing.met.get(met.digest)
        found = _drift(baseline, catalogue) if catalogue is not None else None
        if catalogue is not None and found is not None:
            print(f"--- {baseline.origin}: {_size(baseline.catalogue)}")
            print(f"+++ seen {dated(met.since)}: {_size(catalogue)}\n")
            print(_rendered(found, baseline.catalogue, catalogue, asked), end="")
        else:
            print(shown(met.what, 500))
    if standing.remembered.more:
        print(f"{server}: {standing.remembered.more} more catalogues were seen")
    return DRIFTED


def _show(server: str, baseline: Baseline, now: Catalogue, asked: Asked) -> int:
    """Print what became of a baseline."""
    found = _drift(baseline, now)
    if found is None:
        print(f"{server}: no change from {baseline.origin}: {_size(now)}")
        return AGREES
    print(f"{server}: {_told(counts(found))}")
    print(f"--- {baseline.origin}: {_size(baseline.catalogue)}")
    print(f"+++ {'last seen' if asked.seen else 'now'}: {_size(now)}\n")
    print(_rendered(found, baseline.catalogue, now, asked), end="")
    if found.is_of_other_keys_only:
        print("Nothing that a model sees has changed, so sessions continue.")
        return AGREES
    return DRIFTED


def _rendered(found: Drift, before: Catalogue, after: Catalogue, asked: Asked) -> str:
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    return render(found, before.tools, after.tools, width, _colored(asked))


# --- accept ---------------------------------------------------------------------------------------------------


def _accept(found: Sequence[ServerPinStatus], settings: Settings, asked: Asked) -> int:
    if settings.state_persistence.type == "memory":
        return _failed(NO_MEMORY)
    if not asked.yes and not sys.stdin.isatty():
        return _failed("there is no terminal for the question; use --yes to accept without asking")
    status = AGREES
    accepted: list[ServerPinStatus] = []
    for standing in found:
        server = standing.entry.id
        if _is_settled_by_lock(standing):
            accepted.append(standing)
        elif standing.entry.tools_lock is not None:
            print(f"mcp-adapter: {server} has a lock file: use pins export", file=sys.stderr)
            status = max(status, UNREADABLE if asked.server else AGREES)
        elif standing.now is None:
            status = _failed(f"{server}: {_safe(standing.now_trouble)}")
        elif standing.remembered is None and any(
            each.binding and each.catalogue.digest == standing.now.digest for each in standing.baselines
        ):
            print(
                f"{server}: nothing to accept, no change from {standing.baselines[0].origin}: "
                f"{_size(standing.now)}"
            )
        elif _agreed(standing, standing.now, asked):
            accepted.append(standing)
        else:
            print(f"{server}: nothing was accepted")
            status = max(status, DRIFTED)
    asyncio.run(_keep(settings, accepted))
    for standing in accepted:
        assert standing.now is not None
        if standing.entry.tools_lock is not None:
            print(f"{standing.entry.id}: same as its lock file again; the stored drift was cleared")
        else:
            print(f"{standing.entry.id}: the baseline of every session is now {_size(standing.now)}")
    return status


def _is_settled_by_lock(standing: ServerPinStatus) -> bool:
    """Tell whether other tools than those of the server's lock file were met, and it offers those of the file again."""
    if standing.entry.tools_lock is None or standing.now is None or standing.remembered is None:
        return False
    return standing.baselines[0].catalogue.digest == standing.now.digest


def _agreed(standing: ServerPinStatus, now: Catalogue, asked: Asked) -> bool:
    """Show what there is to accept, and ask."""
    for baseline in standing.baselines:
        _show(standing.entry.id, baseline, now, asked)
    if not standing.baselines:
        print(f"{standing.entry.id}: {_size(now)}, no baseline yet")
        for name in sorted(now.tools):
            print(f"  {shown(name, 128)}")
    if asked.yes:
        return True
    try:
        answer = input(
            f"Make these {_size(now)} the baseline of every session of {standing.entry.id}? [y/N] "
        )
    except (EOFError, KeyboardInterrupt):
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


async def _keep(settings: Settings, accepted: Sequence[ServerPinStatus]) -> None:
    if not accepted:
        return
    async with pins_of(settings, making=True) as pins:
        for standing in accepted:
            assert standing.now is not None
            if standing.entry.tools_lock is not None:
                await pins.memory.forget(standing.entry.id)
            else:
                await pins.accept(standing.entry.id, standing.now)


def _export(found: Sequence[ServerPinStatus], _: Settings, asked: Asked) -> int:
    export(found, asked.output, asked.directory, whole=asked.server is None)
    return AGREES


# --- words ----------------------------------------------------------------------------------------------------


def _met(met: MetDrift) -> str:
    by = f"first by {shown(met.by, 64)}, {dated(met.since)}"
    return f"{met.digest[:12]} seen by {counted(met.count)}, {by}: {_told(met.counts)}"


def _drift(baseline: Baseline, now: Catalogue) -> Drift | None:
    return None if baseline.catalogue.digest == now.digest else drift(baseline.catalogue.tools, now.tools)


def _size(catalogue: Catalogue) -> str:
    count = len(catalogue.tools)
    return f"{count} {'tool' if count == 1 else 'tools'} ({catalogue.digest[:12]})"


def _told(found: Mapping[str, int]) -> str:
    """Return the result of ``drift.counts`` in words."""
    words = ("changed", "added", "renamed", "removed")
    parts = [f"{found[word]} {word}" for word in words if found.get(word)]
    less_safe = found.get("less_safe")
    return ", ".join(parts) + (f"; {less_safe} less safe" if less_safe else "")


def _colored(asked: Asked) -> bool:
    if asked.color == "auto":
        return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return asked.color == "always"


def _safe(trouble: str | None) -> str:
    """A trouble may quote what a stranger sent."""
    return shown(trouble or "", 500)


def _failed(why: str) -> int:
    print(f"mcp-adapter: {why}", file=sys.stderr)
    return UNREADABLE


_COMMANDS = {"list": _list, "diff": _diff, "check": _check, "accept": _accept, "export": _export}
