"""``mcp-adapter serve``: settings to one process that serves, or to a supervisor of several.

Starts may be repeated until one succeeds, by a process that is alive and not ready meanwhile: an orchestrator that
restarts a container for every failed start shows that it restarts, and seldom why. /readyz fails, and the log and
/healthz have the reason. Each start is a fresh program in the same process, so what heals by itself (a volume, a store,
a file of settings) is found, and nothing of a failed start is left.

Serving with several workers: the plan is read, the port opened, and a supervisor started.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adapter.commands.command_parser import load_settings, overrides_of, settings_error, settings_file
from adapter.edge.http.seats import open_sockets
from adapter.settings.file.changed import FileWatch
from adapter.startup.failure import Obstacle, StartFailed, obstacles_of
from adapter.startup.systemd import ServiceNotifier, notifier_from
from adapter.workers.serve_plan import ReadPlan, begin_reading
from adapter.workers.supervisor import WorkerSupervisor

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from adapter.settings.file.changed import FileWatch
    from adapter.settings.file.reading import ReadSettings, SettingsSource
    from adapter.workers.serve_plan import ServePlan


OK, FAILED, BAD_SETTINGS = 0, 1, 2
SET = ("1", "true", "yes", "on")
"""Values of a variable that asks for something."""

RETRY_VARIABLE = "MCP_ADAPTER_RETRY_START"
"""The environment variable that asks for a process that stays up when it cannot start, and tries again."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Returns the exit status. Raises SettingsError unless starts are to be repeated."""
    if arguments.read_settings:
        return _write_settings(arguments)
    service = notifier_from(os.environ)
    if arguments.retry_start or os.environ.get(RETRY_VARIABLE, "").strip().lower() in SET:
        return _retried(arguments, service)
    try:
        return _attempt(arguments, service)
    except StartFailed as failed:
        service.status(f"could not start: {failed}")
        return FAILED
    except settings_error() as refused:
        service.status(f"could not start: {refused}")
        raise


def _attempt(arguments: argparse.Namespace, service: ServiceNotifier) -> int:
    """Serve until stopped. Raises StartFailed, with all reported, and SettingsError."""
    if arguments.supervise:
        return _supervise(arguments, service)
    # Code is no garbage, and the collector would look through it a hundred times: 5 % of the start. Serving enables it.
    gc.disable()
    from adapter.settings.file.reading import ForkedRead

    # Of use in both processes, so loaded before there are two.
    from adapter.settings.root import worker_count
    from adapter.settings.section import SettingsError

    source = _source(arguments)
    # Another process reads them while this one loads its code.
    failure = ChildProcessError("the settings were not read: the process that reads them has failed")
    reading = ForkedRead(lambda: _read(arguments), SettingsError, failure)
    from adapter.app.serve import serve_alone

    settings, cautions = reading.result()
    if worker_count(settings.core.workers) > 1:
        _become_supervisor(arguments, service)
    status = serve_alone(settings, cautions, service, source=source)
    if source.outdated:
        _replace_program([*_given(arguments.argv), *_found_file(arguments)], service)
    return status


def _source(arguments: argparse.Namespace) -> SettingsSource:
    """What reads the settings again while this process serves."""
    from adapter.settings.file.reading import SettingsSource

    # A start that was repeated ignores the signal until now.
    heeds = bool(arguments.failed_starts) or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    argv = [*_given(arguments.argv), *_found_file(arguments), "--read-settings"]
    return SettingsSource(_program(argv), _file_watch(arguments), heeds=heeds, restarts=arguments.watch)


def _file_watch(arguments: argparse.Namespace) -> FileWatch:
    from adapter.settings.file.changed import FileWatch

    file: Path | None = arguments.config or settings_file()
    return FileWatch(file, file.parent if arguments.watch and file is not None else None)


def _write_settings(arguments: argparse.Namespace) -> int:
    """Check the settings, and write them or their problems to standard output, for the process that has begun this."""
    import pickle

    # Before anything else: programs of this user may look.
    hide_memory()
    if variables := sys.stdin.buffer.read():
        os.environ.update(pickle.loads(variables))  # noqa: S301 - this program's own, over a pipe of its own
    from adapter.commands.check import checked_settings
    from adapter.settings.section import SettingsError

    answer = os.dup(1)
    # What others print would not be understood.
    os.dup2(2, 1)
    try:
        checked_settings(arguments)
        outcome: object = _read(arguments)
    except SettingsError as refused:
        outcome = refused
    with os.fdopen(answer, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))
    return OK


def _become_supervisor(arguments: argparse.Namespace, service: ServiceNotifier) -> NoReturn:
    """Replace the program of this process by one that has not imported what serving needs."""
    # The supervisor takes it up; until then it would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _replace_program([*arguments.argv, *_found_file(arguments), "--supervise"], service)


def _found_file(arguments: argparse.Namespace) -> list[str]:
    """The flag for a settings file that no flag names: it has been said already which one that is."""
    found = settings_file() if arguments.config is None else None
    return [] if found is None else ["--config", str(found)]


def _supervise(arguments: argparse.Namespace, service: ServiceNotifier) -> int:
    from adapter.workers.serve_plan import PlanRefused

    try:
        return supervise(
            lambda: _serve_plan(arguments, starts=True),
            lambda: _serve_plan(arguments, starts=False),
            service,
            _file_watch(arguments),
        )
    except PlanRefused as refused:
        if not refused.sentence:
            raise StartFailed(refused.obstacles) from None
        # Late: only a supervisor that ends needs it.
        from adapter.settings.section import Problem, SettingsError

        raise SettingsError(Problem(each.setting, each.why) for each in refused.obstacles) from None


def _serve_plan(arguments: argparse.Namespace, *, starts: bool) -> ServePlan:
    """The plan of workers that start, or of those that take the place of others: these must not fail for what can be
    known before. Called in a child process. Raises PlanRefused.
    """
    from adapter import log
    from adapter.app.serve import look_for_obstacles, refresh_state, starts_programs
    from adapter.settings.section import SettingsError
    from adapter.workers.serve_plan import PlanRefused, plan_of

    try:
        if not starts:
            from adapter.commands.check import checked_settings

            checked_settings(arguments)
        read = _read(arguments)
    except SettingsError as refused:
        told = obstacles_of(refused.problems)
        raise PlanRefused(f"the settings cannot be used:\n{refused}", BAD_SETTINGS, told) from None
    log.configure(read.settings.core.log_level)
    if starts:
        try:
            look_for_obstacles(read.settings)
            refresh_state(read.settings)
        except StartFailed as failed:
            raise PlanRefused("", FAILED, failed.obstacles) from None
    return plan_of(read, programs=starts_programs(read.settings))


def _read(arguments: argparse.Namespace) -> ReadSettings:
    """The settings for a process that serves, with their warnings."""
    settings = load_settings(arguments)
    from adapter.settings.cautions import cautions
    from adapter.settings.file.reading import ReadSettings

    return ReadSettings(settings, tuple(cautions(settings)))


def _replace_program(argv: Sequence[str], service: ServiceNotifier) -> NoReturn:
    """Run ``mcp-adapter`` with other arguments in the place of this program."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *_program(argv)]
    os.execve(sys.executable, command, {**os.environ, **service.variables})  # noqa: S606 - ourselves


def _program(argv: Sequence[str]) -> list[str]:
    """The arguments of Python for ``mcp-adapter`` with these arguments."""
    # A program that was found by its path does not look for its modules in the working directory.
    safe = [] if sys.path[0] in ("", str(Path.cwd())) else ["-P"]
    return [*safe, "-m", "adapter", *argv]


# --- starts that are repeated ------------------------------------------------------------------------------------

OWN_FLAGS = {"--supervise": 0, "--failed-starts": 1}
"""Flags that only the command gives itself, with the number of their values."""


def _retried(arguments: argparse.Namespace, service: ServiceNotifier) -> int:
    """Serve until stopped. After a start that failed, wait and start again. Returns the exit status."""
    from adapter.settings.section import SettingsError

    try:
        return _attempt(arguments, service)
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
    import asyncio

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
        _replace_program([*_given(arguments.argv), "--failed-starts", str(attempts)], service)
    return OK


def _address(arguments: argparse.Namespace) -> tuple[str, int]:
    """The address at which the adapter would be asked for its health."""
    from adapter.settings.file.yaml_text import listen_address

    overrides: dict[str, str] = {}
    # A flag that cannot be read is among what is reported.
    with contextlib.suppress(settings_error()):
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


def supervise(
    read: ReadPlan,
    read_again: ReadPlan,
    service: ServiceNotifier | None = None,
    watch: FileWatch | None = None,
) -> int:
    """Serve with several workers until SIGINT or SIGTERM, by other settings when they changed: at SIGHUP, and when the
    ``watch`` tells of it.

    ``read`` reads the plan at start and ``read_again`` later, both in a child process; they may raise PlanRefused.
    Returns the exit status. Raises PlanRefused and StartFailed for a start that fails.
    """
    plan = begin_reading(read).result()
    if plan.programs:
        hide_memory()
    logger = cache(partial(_logger, plan.log_level))
    try:
        sockets = open_sockets(*plan.address)
    except OSError as error:
        why = error.strerror or str(error)
        logger().error("cannot listen", host=plan.host, port=plan.port, why=why, setting="core.port")
        raise StartFailed([Obstacle("cannot listen", why, "core.port")]) from None
    supervisor = WorkerSupervisor(plan, sockets, read_again, logger, service, watch=watch)
    status = supervisor.run()
    if supervisor.obstacles:
        raise StartFailed(supervisor.obstacles)
    return status


def _logger(level: str) -> FilteringBoundLogger:
    from adapter import log

    log.configure(level)
    return log.get_logger("adapter.workers")


_PR_SET_DUMPABLE = 4
"""linux/prctl.h."""


def hide_memory() -> None:
    """Make the memory of this process, which holds every secret, unreadable for programs of its user.

    A worker reports it where the system has no such switch.
    """
    # Late: only programs ask for it.
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
