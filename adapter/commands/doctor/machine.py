"""The machine that the adapter runs on: its storage, its port and its clock."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from adapter.commands.doctor.findings import Finding, right, warning, wrong
from adapter.commands.progress_bar import size
from adapter.settings.cores import worker_count
from adapter.settings.root import Settings

LEAST_FREE = 1 << 30
"""Bytes below which a disk is called nearly full."""

_EARLIEST = 1_767_225_600
"""2026-01-01 in Unix seconds: a clock before that has never been set."""


def storage(settings: Settings, *, in_use: bool) -> Iterator[Finding]:
    """Look at ``storage.root`` and the state store. ``in_use``: this adapter runs, so it holds the lock itself."""
    root = Path(settings.storage.root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _write_and_rename(root)
    except OSError as failure:
        yield wrong(
            "storage",
            f"{root} cannot be written: {failure.strerror}.",
            "Give the adapter's user write access, or set storage.root.",
        )
        return
    yield right("storage", f"{root} is writable")
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE:
        yield warning("storage", f"only {size(free)} are free.", "Free some, or limit storage.max_size.")
    else:
        yield right("storage", f"{size(free)} are free")
    yield _lock(root, settings, in_use)
    yield from _same_file_system(root)


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


def _write_and_rename(root: Path) -> None:
    probe = root / f".doctor-{secrets.token_hex(8)}"
    try:
        with probe.open("xb") as file:
            file.write(b"doctor")
            os.fsync(file.fileno())
        probe = probe.rename(probe.with_suffix(".renamed"))
    finally:
        probe.unlink(missing_ok=True)


def _lock(root: Path, settings: Settings, in_use: bool) -> Finding:
    if settings.storage.lock_mode == "none":
        return warning(
            "storage", "storage.lock_mode is none.", "Make sure that no other adapter uses this folder."
        )
    number = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if in_use:
            return right("storage", "the running adapter holds its lock")
        return wrong(
            "storage",
            "another process uses this folder.",
            "Stop that adapter, or set another storage.root.",
        )
    except OSError:
        return wrong(
            "storage",
            "its file system has no locks.",
            "Set storage.lock_mode to none, and let only one adapter use it.",
        )
    finally:
        os.close(number)
    if in_use:
        return wrong(
            "storage",
            "the running adapter does not hold the lock of this folder.",
            "It runs with other settings: restart it with these.",
        )
    return right("storage", "its lock is free")


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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, number), family=family):
            return right("port", f"{host}:{number} is free; the adapter does not run")
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE:
            return wrong(
                "port", f"{host}:{number} is taken by another program.", "Stop it, or set core.port."
            )
        return wrong("port", f"{host}:{number}: {failure.strerror}.", "Set core.host and core.port.")


def clock() -> Finding:
    """Look at the clock of this machine alone."""
    if time.time() < _EARLIEST:
        return wrong("clock", "it was never set.", "Set it: signed links and certificates depend on it.")
    return right("clock", time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime()))
