"""The machine that the adapter runs on: its storage, its port and its clock."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from adapter.app.preflight import RootLock, Unusable, directory_refusal, lock_of, port_refusal
from adapter.commands.doctor import Finding, right, warning, wrong
from adapter.commands.progress_bar import size
from adapter.settings.root import Settings, worker_count

LEAST_FREE = 1 << 30
"""Bytes below which a disk is called nearly full."""

_EARLIEST = 1_767_225_600
"""2026-01-01 in Unix seconds: a clock before that has never been set."""


def storage(settings: Settings, *, in_use: bool) -> Iterator[Finding]:
    """Look at ``storage.root`` and the state store. ``in_use``: this adapter runs, so it holds the lock itself."""
    root = Path(settings.storage.root)
    refusal = directory_refusal(root)
    if refusal is not None:
        yield _refused("storage", refusal, ", or set another storage.root")
        return
    yield right("storage", f"{root} is writable")
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE:
        yield warning("storage", f"only {size(free)} are free.", "Free some, or limit storage.max_size.")
    else:
        yield right("storage", f"{size(free)} are free")
    yield _lock(root, settings, in_use)
    yield from _same_file_system(root)
    yield from _state(settings)


def workers(settings: Settings) -> Iterator[Finding]:
    """Look at the number of processes that serve; nothing is said of one."""
    count, cores = worker_count(settings.core.workers), worker_count("auto")
    if count > cores:
        yield warning(
            "workers",
            f"{count} share {cores} processor cores.",
            "Set core.workers to auto, unless they wait for slow code of yours.",
        )
    elif count > 1:
        yield right("workers", f"{count} serve, on {cores} processor cores")


def _refused(subject: str, refusal: Unusable, otherwise: str = "") -> Finding:
    advice = refusal.advice[:1].upper() + refusal.advice[1:]
    return wrong(subject, f"{refusal.reason}.", f"{advice}{otherwise}.")


def _lock(root: Path, settings: Settings, in_use: bool) -> Finding:
    if settings.root_lock is None:
        return warning(
            "storage",
            f"storage.lock_mode is {settings.storage.lock_mode}.",
            "Make sure that no adapter with another state store uses this folder.",
        )
    shared = settings.root_lock == "shared"
    lock = lock_of(root, shared=shared, create=True)
    if lock is RootLock.NONE:
        return wrong(
            "storage",
            "its file system has no locks.",
            "Set storage.lock_mode to none, and let only one adapter use it.",
        )
    if in_use and not any(server.has_files for server in settings.servers):
        return right("storage", "no server uses files, so the running adapter needs no lock")
    if in_use and lock is RootLock.FREE and not shared:
        return wrong(
            "storage",
            "the running adapter does not hold the lock of this folder.",
            "It runs with other settings: restart it with these.",
        )
    if in_use:
        return right("storage", "the running adapter holds its lock")
    if lock is RootLock.TAKEN:
        return wrong(
            "storage",
            "another process uses this folder.",
            "Stop that adapter, or set another storage.root.",
        )
    return right("storage", "its lock is free")


def _state(settings: Settings) -> Iterator[Finding]:
    """Look at the directory of the state file where it has one of its own."""
    local = settings.state_persistence.disk.local_path
    if settings.state_persistence.type != "disk" or local is None:
        return
    directory = settings.state_path.parent
    if (refusal := directory_refusal(directory, private=True)) is not None:
        yield _refused("state", refusal, ", or set another state_persistence.disk.local_path")
    else:
        yield right("state", f"{directory} is writable")


def _same_file_system(root: Path) -> Iterator[Finding]:
    """Files move between the areas by renaming, which no two file systems do."""
    device = root.stat().st_dev
    for area in ("uploads", "artifacts", "staging"):
        place = root / area
        if place.exists() and place.stat().st_dev != device:
            yield wrong(
                "storage",
                f"{place} is on another file system than {root}.",
                "Mount one file system for the whole of storage.root.",
            )


def port(settings: Settings) -> Finding:
    """Tell whether the adapter, which does not run, could listen where the settings say."""
    host, number = settings.core.host, settings.core.port
    if (refusal := port_refusal(host, number)) is not None:
        return _refused("port", refusal)
    return right("port", f"{host}:{number} is free; the adapter does not run")


def clock() -> Finding:
    """Look at the clock of this machine alone."""
    if time.time() < _EARLIEST:
        return wrong("clock", "it was never set.", "Set it: signed links and certificates depend on it.")
    return right("clock", time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime()))
