"""``mcp-adapter check``: everything that can be said of the settings without serving them."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from adapter import log
from adapter.app.access.rules import access_cautions, described, known_tools
from adapter.app.tool_plans import compiled
from adapter.app.tools import locks
from adapter.commands.database_check import inspect
from adapter.commands.progress_bar import count_of
from adapter.commands.settings_flags import load_settings
from adapter.rules.text.unicode import shown
from adapter.settings.cautions import cautions
from adapter.settings.reference_page import masked
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

if TYPE_CHECKING:
    from adapter.commands.connections import Reached

FINE, UNREACHABLE, BAD_SETTINGS = 0, 1, 2


def checked_settings(arguments: argparse.Namespace) -> Settings:
    """The settings, after everything that they name has been compiled and loaded as far as this machine can.

    Raises SettingsError.
    """
    settings = load_settings(arguments)
    # Statements, scripts and plans are judged by those who run them.
    stages = compiled(settings)
    stages.loading.close()
    inspect(stages)
    locks(settings)
    if any(entry.upstream.auth.private_key_file for entry in settings.servers):
        # Late, as in ``app/servers.py``.
        from adapter.app.access.upstream_auth import check_keys

        check_keys(settings)
    if settings.state_persistence.type == "redis":
        # Late, as in ``app/build.py``: its address is read, and its driver looked for.
        from adapter.app.redis_state import build_redis_store

        build_redis_store(settings)
    return settings


def run(arguments: argparse.Namespace) -> int:
    """Print the problems of the settings, or that there are none.

    Return the exit status: 0, 1 for a server that cannot be reached (``--connect``), 2 for settings that cannot be
    used. Raises SettingsError unless ``--json``.
    """
    try:
        settings = checked_settings(arguments)
    except SettingsError as refused:
        if not arguments.json:
            raise
        print(_json({"ok": False, "file": _file(arguments), "problems": _told(refused.problems)}))
        return BAD_SETTINGS
    warnings = [
        *cautions(settings),
        *access_cautions(settings, known_tools(settings, locks(settings))),
        *_missing_programs(settings),
    ]
    reached = _reached(settings) if arguments.connect else ()
    if arguments.json:
        print(_json(_report(arguments, settings, warnings, reached)))
    else:
        _print(arguments, settings, warnings, reached)
    return FINE if all(each.reachable for each in reached) else UNREACHABLE


def _missing_programs(settings: Settings) -> Iterator[Problem]:
    """Find the programs of servers that are not on this machine."""
    for index, entry in enumerate(settings.servers):
        if entry.upstream.kind.needs == "command":
            # Late, as in ``app/servers.py``.
            from adapter.upstream.stdio.child import ChildSpec
            from adapter.upstream.stdio.failures import missing_program

            spec = ChildSpec.of(entry.upstream, settings.core.upstream.max_answer_bytes)
            sentence = missing_program(spec.argv[0], spec.environment, spec.cwd or str(Path.cwd()))
            if sentence is not None:
                yield Problem(f"servers[{index}].upstream.command", sentence)


def _reached(settings: Settings) -> Sequence[Reached]:
    # Late: only --connect opens connections.
    from adapter.commands.connections import reach

    # What goes wrong is in the report.
    log.configure("critical")
    return asyncio.run(reach(settings))


def _report(
    arguments: argparse.Namespace, settings: Settings, warnings: Sequence[Problem], reached: Sequence[Reached]
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "ok": all(each.reachable for each in reached),
        "file": _file(arguments),
        "problems": [],
        "warnings": _told(warnings),
        "servers": [
            {"id": each.id, "mount": each.mount_path}
            | ({"access": rules} if (rules := described(each)) else {})
            for each in settings.servers
        ],
    }
    if arguments.connect:
        report["connections"] = [each._asdict() for each in reached]
    if arguments.effective:
        report["settings"] = masked(settings)
    return report


def _print(
    arguments: argparse.Namespace, settings: Settings, warnings: Sequence[Problem], reached: Sequence[Reached]
) -> None:
    # What follows the settings is a comment, so that all of it is one YAML document.
    prefix = ""
    if arguments.effective:
        print(yaml.safe_dump(masked(settings), sort_keys=False, allow_unicode=True), end="")
        prefix = "# "
    for server in settings.servers:
        for rule in described(server):
            print(f"{prefix}{server.id}: access of {rule}")
    if (audit := settings.core.audit).enabled:
        place = "stdout" if audit.file is None else str(audit.file)
        print(f"{prefix}audit log: {place}; calls that cannot be recorded: {audit.on_failure}")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for each in reached:
        print(
            f"{prefix}{each.server}: {shown(each.detail, 500)}",
            file=sys.stdout if each.reachable else sys.stderr,
        )
    missed = sum(not each.reachable for each in reached)
    name = _file(arguments) or "The configuration"
    if missed:
        print(f"{name} is fine, but {count_of(missed, 'server')} cannot be reached.", file=sys.stderr)
        return
    also = f", {count_of(len(warnings), 'warning')}" if warnings else ""
    print(f"{prefix}{name} is fine: {count_of(len(settings.servers), 'server')}{also}.")


def _file(arguments: argparse.Namespace) -> str | None:
    return None if arguments.config is None else str(arguments.config)


def _told(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [problem._asdict() for problem in problems]


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False, indent=2)
