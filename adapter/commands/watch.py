"""``serve --watch``: the adapter is started anew when one of its files changes, if what they say can be used.

The server runs in a process of its own, so that what was imported is gone with it; sessions outlast it in the state
store, as they outlast any restart.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from adapter.settings.problems import SettingsError
from adapter.settings.root import Settings

LOOK_EVERY = 0.5
"""Seconds between two looks at the files."""

STOP_PATIENCE = 30.0
"""Seconds that the process gets to end beyond ``core.shutdown_grace_seconds``."""

_WATCHED = frozenset((".py", ".yaml", ".yml", ".json", ".sql", ".lock", ".env"))
_PASSED_OVER = frozenset(("__pycache__", "node_modules"))
_MOST = 10_000

Stamps = dict[Path, tuple[int, int]]


def watch(config: Path | None, arguments: Sequence[str], check: Callable[[], Settings]) -> int:
    """Serve until SIGINT or SIGTERM; the exit status of the last process, 0 when it was stopped.

    ``arguments`` are those of the command without ``--watch``. ``check`` reads the settings; while it raises
    SettingsError, the running process stays as it is. Raises SettingsError when they cannot be used at start.
    """
    settings = check()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    process = _start(arguments)
    seen = _stamps(config, settings.directory)
    told = False
    while not stop.wait(LOOK_EVERY):
        if process.poll() is not None and not told:
            print("mcp-adapter: the adapter ended; it restarts when a file changes", file=sys.stderr)
            told = True
        now = _stamps(config, settings.directory)
        if now == seen:
            continue
        changed, seen = _changed(seen, now), now
        print(f"mcp-adapter: {changed} changed", file=sys.stderr)
        try:
            settings = check()
        except SettingsError as refused:
            print(
                "mcp-adapter: the changed settings cannot be used, the adapter continues with the old ones:\n"
                f"{refused}",
                file=sys.stderr,
            )
            continue
        _end(process, settings.core.shutdown_grace_seconds)
        process, told = _start(arguments), False
    _end(process, settings.core.shutdown_grace_seconds)
    return 0


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    # A group of its own: what stops the watcher at a terminal is for the watcher to pass on.
    argv = [sys.executable, "-m", "adapter", *arguments]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - ourselves


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    process.terminate()
    try:
        process.wait(grace + STOP_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stamps(config: Path | None, directory: Path) -> Stamps:
    """The files that may matter: the settings file, and below its directory what scripts are made of."""
    stamps: Stamps = {}
    for path in _files(config, directory):
        with contextlib.suppress(OSError):
            found = path.stat()
            stamps[path] = (found.st_mtime_ns, found.st_size)
        if len(stamps) >= _MOST:
            break
    return stamps


def _files(config: Path | None, directory: Path) -> Iterator[Path]:
    if config is not None:
        yield config
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in names:
            if Path(name).suffix in _WATCHED:
                yield Path(folder, name)


def _changed(before: Stamps, now: Stamps) -> str:
    """The name of one file that changed."""
    found = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
    return min(found).name
