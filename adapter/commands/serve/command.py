"""``mcp-adapter serve``: settings to one process that serves, or to a supervisor of several."""

from __future__ import annotations

import argparse
import gc
import os
import signal
from typing import TYPE_CHECKING, NoReturn

from adapter.commands.serve.program import replace_program
from adapter.commands.settings_flags import load_settings, settings_error, settings_file
from adapter.startup.failure import StartFailed, obstacles_of
from adapter.startup.systemd import ServiceNotifier, notifier_from

if TYPE_CHECKING:
    # A supervisor does not load the classes of settings.
    from adapter.settings.file.reading import ReadSettings
    from adapter.workers.serve_plan import ServePlan

FAILED, BAD_SETTINGS = 1, 2
SET = ("1", "true", "yes", "on")
"""Values of a variable that asks for something."""

RETRY_VARIABLE = "MCP_ADAPTER_RETRY_START"
"""The environment variable that asks for a process that stays up when it cannot start, and tries again."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Returns the exit status. Raises SettingsError unless starts are to be repeated."""
    if arguments.watch:
        from adapter.commands.check import checked_settings
        from adapter.commands.watch import watch

        return watch(arguments, checked_settings)
    if arguments.watched:
        from adapter.startup.watcher import end_with_watcher

        end_with_watcher()
    service = notifier_from(os.environ)
    if arguments.retry_start or os.environ.get(RETRY_VARIABLE, "").strip().lower() in SET:
        from adapter.commands.serve.retry import retried

        return retried(arguments, lambda: _attempt(arguments, service), service)
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
    from adapter.settings.file.reading import SettingsReading

    # Another process reads them while this one loads its code.
    reading = SettingsReading(lambda: _read(arguments))
    from adapter.app.serve import serve_alone

    settings, cautions = reading.result()
    if settings.core.workers != 1:
        from adapter.settings.cores import worker_count

        if worker_count(settings.core.workers) > 1:
            _become_supervisor(arguments, service)
    return serve_alone(settings, cautions, service)


def _become_supervisor(arguments: argparse.Namespace, service: ServiceNotifier) -> NoReturn:
    """Replace the program of this process by one that has not imported what serving needs."""
    argv = [*arguments.argv, "--supervise"]
    if arguments.config is None and (found := settings_file()) is not None:
        # It has been said already which one that is.
        argv += ["--config", str(found)]
    # The supervisor takes it up; until then it would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    replace_program(argv, service)


def _supervise(arguments: argparse.Namespace, service: ServiceNotifier) -> int:
    from adapter.workers.serve_plan import PlanRefused
    from adapter.workers.supervision import supervise

    try:
        return supervise(
            lambda: _serve_plan(arguments, starts=True),
            lambda: _serve_plan(arguments, starts=False),
            service,
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
