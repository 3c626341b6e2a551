"""``serve --watch``: start the adapter anew when one of its files changes, if its settings can be used.

The server runs in a process of its own, so that its imports end with it. Sessions outlast it in the state store, as
they outlast any restart. Where there are workers they are replaced one by one, and clients notice nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from adapter.settings.root import Settings, worker_count
from adapter.settings.section import SettingsError

LOOK_EVERY = 0.5
"""Seconds between two looks at the files."""

STOP_PATIENCE = 30.0
"""Seconds that the process gets to end beyond ``core.shutdown_grace_seconds``."""

_WATCHED = frozenset((".py", ".yaml", ".yml", ".json", ".sql", ".lock", ".env"))
_PASSED_OVER = frozenset(("__pycache__", "node_modules"))
_MOST = 10_000

Stamps = dict[Path, tuple[int, int]]


def watch(arguments: argparse.Namespace, check: Callable[[argparse.Namespace], Settings]) -> int:
    """Serve until SIGINT or SIGTERM. Return the exit status of the last process, 0 when it was stopped.

    ``check`` reads the settings that ``arguments`` mean; while it raises SettingsError, the running process stays as it
    is. Raises SettingsError when they cannot be used at start.
    """
    named = arguments.config is not None
    settings = check(arguments)
    config: Path | None = arguments.config
    argv = [each for each in arguments.argv if each != "--watch"]
    if config is not None and not named:
        argv += ["--config", str(config)]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    process, rolls = _start(argv), worker_count(settings.core.workers) > 1
    stamps = _stamps(config, settings.directory)
    reported = False
    while not stop.wait(LOOK_EVERY):
        if process.poll() is not None and not reported:
            print("mcp-adapter: the adapter ended; it restarts when a file changes", file=sys.stderr)
            reported = True
        now = _stamps(config, settings.directory)
        if now == stamps:
            continue
        changed, stamps = _changed(stamps, now), now
        print(f"mcp-adapter: {changed} changed", file=sys.stderr)
        try:
            settings = check(arguments)
        except SettingsError as refused:
            print(
                "mcp-adapter: the changed settings cannot be used, the adapter continues with the old ones:\n"
                f"{refused}",
                file=sys.stderr,
            )
            continue
        if rolls and worker_count(settings.core.workers) > 1 and process.poll() is None:
            process.send_signal(signal.SIGHUP)
            continue
        _end(process, settings.core.shutdown_grace_seconds)
        process, reported, rolls = _start(argv), False, worker_count(settings.core.workers) > 1
    _end(process, settings.core.shutdown_grace_seconds)
    return 0


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    # A group of its own: a signal of the terminal reaches the watcher, which passes it on. The pipe closes with it.
    argv = [sys.executable, "-m", "adapter", *arguments, "--watched"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - ourselves


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    process.terminate()
    try:
        process.wait(grace + STOP_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _stamps(config: Path | None, directory: Path) -> Stamps:
    """The stamps of the settings file, and of the files below its directory that scripts may use."""
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
