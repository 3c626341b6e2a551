"""Starts that are repeated until one succeeds, by a process that is alive and not ready meanwhile.

An orchestrator that restarts a container for every failed start shows that it restarts, and seldom why. This process
stays: /readyz fails, and the log and /healthz have the reason. Each start is a fresh program in the same process, so
what heals by itself (a volume, a store, a file of settings) is found, and nothing of a failed start is left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence

from adapter.commands.serve.program import replace_program
from adapter.commands.settings_flags import overrides_of, settings_file
from adapter.startup.failure import Obstacle, StartFailed, obstacles_of
from adapter.startup.systemd import ServiceNotifier

OK = 0
OWN_FLAGS = {"--supervise": 0, "--failed-starts": 1}
"""Flags that only the command gives itself, with the number of their values."""


def retried(arguments: argparse.Namespace, attempt: Callable[[], int], service: ServiceNotifier) -> int:
    """Serve until stopped. After a start that failed, wait and start again. Returns the exit status."""
    from adapter.settings.section import SettingsError

    try:
        return attempt()
    except StartFailed as failed:
        found = failed.obstacles
    except SettingsError as refused:
        found = tuple(obstacles_of(refused.problems))
        _report(found)
    return _wait(arguments, found, service)


def _report(found: Sequence[Obstacle]) -> None:
    from adapter import log

    log.configure("info")
    logger = log.get_logger("adapter")
    for obstacle in found:
        logger.error(obstacle.event, why=obstacle.why, setting=obstacle.setting)


def _wait(arguments: argparse.Namespace, found: Sequence[Obstacle], service: ServiceNotifier) -> int:
    """Answer health until the next start, which replaces this program; return when asked to stop."""
    from adapter import log
    from adapter.startup.waiting import FailedStart, wait_after, waited

    attempts = arguments.failed_starts + 1
    wait = wait_after(attempts)
    log.configure("info")
    logger = log.get_logger("adapter")
    logger.warning("the start failed; trying again", attempts=attempts, after_seconds=wait)
    service.status(f"could not start: {'; '.join(each.why for each in found)}")
    failed = FailedStart(found, attempts, wait)
    if asyncio.run(waited(failed, _address(arguments), wait, logger)):
        # The next start takes it up; until then a second one would end the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        replace_program([*_given(arguments.argv), "--failed-starts", str(attempts)], service)
    return OK


def _address(arguments: argparse.Namespace) -> tuple[str, int]:
    """The address at which the adapter would be asked for its health."""
    from adapter.settings.file.listen_address import listen_address
    from adapter.settings.section import SettingsError

    overrides: dict[str, str] = {}
    # A flag that cannot be read is among what is reported.
    with contextlib.suppress(SettingsError):
        overrides = overrides_of(arguments)
    return listen_address(arguments.config or settings_file(), overrides, os.environ)


def _given(argv: Sequence[str]) -> Iterator[str]:
    """The arguments without those that the command gave itself."""
    rest = iter(argv)
    for each in rest:
        if each not in OWN_FLAGS:
            yield each
        else:
            for _ in range(OWN_FLAGS[each]):
                next(rest, None)
