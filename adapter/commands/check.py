"""``mcp-adapter check``: everything that can be said of the settings without serving them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import yaml

from adapter import log
from adapter.app.access.rules import access_cautions, described, known_tools
from adapter.app.hosted import HostedTools
from adapter.app.preflight import missing_libraries
from adapter.app.state import build_redis_store
from adapter.app.tool_plans import compiled
from adapter.app.tools import locks
from adapter.commands.command_parser import load_settings
from adapter.commands.connections import mount_cautions
from adapter.commands.progress_bar import count_of
from adapter.extras import overlap
from adapter.hosted.connectors.sqlite import SqliteConnector, why_not_opened
from adapter.rules.files.attached_files import parameter_of
from adapter.rules.text.unicode import shown
from adapter.settings.cautions import cautions
from adapter.settings.reference_page import masked
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.file_adapters import UploadConsumer

if TYPE_CHECKING:
    from adapter.commands.connections import Reached

FINE, UNREACHABLE, BAD_SETTINGS = 0, 1, 2


def checked_settings(arguments: argparse.Namespace) -> Settings:
    """The settings, after everything that they name has been compiled and loaded as far as this machine can.

    Raises SettingsError.
    """
    settings = load_settings(arguments)
    if missing := [Problem(each.setting, each.why) for each in missing_libraries(settings)]:
        raise SettingsError(map(settings.traced, missing))
    # Statements, scripts and plans are judged by those who run them.
    stages = compiled(settings)
    stages.loading.close()
    if missing := list(_unreadable(stages)):
        raise SettingsError(map(settings.traced, missing))
    locks(settings)
    if any(entry.upstream.auth.private_key_file for entry in settings.servers):
        # Late, as in ``app/servers.py``.
        from adapter.app.access.upstream_auth import check_keys

        check_keys(settings)
    if settings.state_persistence.type == "redis":
        # Its address is read, and its driver looked for.
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
    known = known_tools(settings, locks(settings))
    warnings = [
        *cautions(settings),
        *access_cautions(settings, known),
        *mount_cautions(settings, known),
        *_overlap(),
        *_missing_programs(settings),
        *_never_attached(settings),
    ]
    reached = _reached(settings) if arguments.connect else ()
    if arguments.json:
        print(_json(_report(arguments, settings, warnings, reached)))
    else:
        _print(arguments, settings, warnings, reached)
    return FINE if all(each.reachable for each in reached) else UNREACHABLE


def _overlap() -> Iterator[Problem]:
    if (sentence := overlap()) is not None:
        yield Problem("installation", sentence)


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


def _never_attached(settings: Settings) -> Iterator[Problem]:
    """Find file arguments into which no host puts a file, by their paths alone; ``--connect`` looks at schemas too."""
    for index, entry in enumerate(settings.servers):
        if entry.hosts.openai_file_params == "off" or not settings.uploads.enabled:
            continue
        for place, adapter in enumerate(entry.adapters):
            if isinstance(adapter, UploadConsumer) and parameter_of(adapter.file_path_argument) is None:
                sentence = (
                    "stays a handle for ChatGPT, which attaches no files to it: it goes through several lists, or "
                    "is nested with names of other characters than letters, digits, _ and -"
                )
                yield Problem(f"servers[{index}].adapters[{place}].file_path_argument", sentence)


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
        print(f"{prefix}audit log: {place}")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for each in reached:
        print(
            f"{prefix}{each.server}: {shown(each.detail, 500)}",
            file=sys.stdout if each.reachable else sys.stderr,
        )
    missed = [each.server for each in reached if not each.reachable]
    name = _file(arguments) or "The configuration"
    if missed:
        print(f"{name} is fine, but {_counted(missed, settings)} cannot be reached.", file=sys.stderr)
        return
    more = (len(settings.mounts), "merged mount"), (len(warnings), "warning")
    counts = [count_of(len(settings.servers), "server"), *(count_of(*each) for each in more if each[0])]
    print(f"{prefix}{name} is fine: {', '.join(counts)}.")


def _counted(places: Sequence[str], settings: Settings) -> str:
    """The number of servers among places, and the names of the others."""
    others = [each for each in places if each not in {server.id for server in settings.servers}]
    count = len(places) - len(others)
    return " and ".join([*([count_of(count, "server")] if count else []), *others])


def _file(arguments: argparse.Namespace) -> str | None:
    return None if arguments.config is None else str(arguments.config)


def _told(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [problem._asdict() for problem in problems]


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False, indent=2)


# --- databases --------------------------------------------------------------------------------------------------

_IN_MEMORY = "file::memory:"


def _unreadable(made: HostedTools) -> Iterator[Problem]:
    """Find the files of SQLite that are missing, or that SQLite cannot read, and have to be there at the start."""
    for index, connector in enumerate(made.settings.connectors):
        found = made.databases[connector.name].connector
        if connector.required and isinstance(found, SqliteConnector) and (why := _why_unreadable(found.uri)):
            yield Problem(f"connectors[{index}]", f"connector '{connector.name}' (sqlite): {why}")


def _why_unreadable(uri: str) -> str | None:
    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    if uri == _IN_MEMORY or (dict(parse_qsl(parts.query)).get("mode") == "rwc" and not path.exists()):
        return None
    try:
        with contextlib.closing(sqlite3.connect(_unchanging(path), uri=True)) as connection:
            # Opening a file does not read it yet; this statement does.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return why_not_opened(error)
    return None


def _unchanging(path: Path) -> str:
    # Reading a write-ahead log creates files beside it. A database that nobody has open has no such log.
    log = path.with_name(f"{path.name}-wal")
    return f"file:{quote(str(path))}?mode=ro" + ("" if log.exists() else "&immutable=1")
