"""``mcp-adapter check``: what can be found out of the databases of hosted tools on this machine, without the network.

SQLite is asked about its statements. Others are asked when the adapter starts, as they may be anywhere.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from adapter.app.hosted import Placed
from adapter.app.tool_plans import Compiled
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.hosted.connectors.sqlite import SqliteConnector, why_not_opened
from adapter.rules.statements.statements import EnvironmentFailed, sampled
from adapter.settings.problems import Problem, SettingsError

_IN_MEMORY = "file::memory:"
_CREATES = re.compile(r"\bcreate\s+(?:temp\w*\s+|virtual\s+)?(?:table|view)\b", re.IGNORECASE)
_EXPLAINS = re.compile(r"\s*explain\b", re.IGNORECASE)


class SqliteCheck:
    """Compiles statements against one database, whose file stays as it is. ``made_later``: tables may be missing yet,
    as the file is created at start, or by statements.
    """

    def __init__(self, connection: sqlite3.Connection, *, made_later: bool) -> None:
        self._connection = connection
        self._made_later = made_later

    def fault(self, text: str, values: int) -> str | None:
        """SQLite's own sentence on what is wrong with a statement that binds so many values, None where nothing is."""
        explained = text if _EXPLAINS.match(text) else f"EXPLAIN {text}"
        try:
            self._connection.execute(explained, (None,) * values).fetchone()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            sentence = str(error)
            return None if self._made_later and sentence.startswith("no such table") else sentence
        return None


@contextlib.contextmanager
def checking(name: str, uri: str, texts: list[str]) -> Iterator[SqliteCheck]:
    """The check of a connector's statements, whose texts these are. Raises ConnectorFailed where its file is missing,
    unless it would be created, and where it is none of SQLite's.
    """
    parts = urlsplit(uri)
    mode = dict(parse_qsl(parts.query)).get("mode")
    path = Path(unquote(parts.path))
    new = uri == _IN_MEMORY or (mode == "rwc" and not path.exists())
    try:
        connection = sqlite3.connect(_IN_MEMORY if new else _unchanging(path), uri=True, isolation_level=None)
        # Opening a file reads nothing of it yet; this does.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise ConnectorFailed(f"connector '{name}' (sqlite): {why_not_opened(error)}") from None
    with contextlib.closing(connection):
        yield SqliteCheck(connection, made_later=new or any(map(_CREATES.search, texts)))


def _unchanging(path: Path) -> str:
    # To read a write-ahead log makes files beside it. Where nobody has the database open there is none to read.
    log = path.with_name(f"{path.name}-wal")
    return f"file:{quote(str(path))}?mode=ro" + ("" if log.exists() else "&immutable=1")


def inspect(made: Compiled) -> None:
    """Raises SettingsError for database files that are missing, and for statements that their database refuses."""
    problems = list(_problems(made))
    if problems:
        raise SettingsError(map(made.planning.materials.settings.traced, problems))


def _problems(made: Compiled) -> Iterator[Problem]:
    settings = made.planning.materials.settings
    for index, said in enumerate(settings.connectors):
        database = made.hosting.databases[said.name]
        if not isinstance(database.connector, SqliteConnector):
            continue
        statements = [each for each in made.hosting.statements if each.use == said.name]
        texts = [each.statement.text for each in statements]
        try:
            with checking(said.name, database.connector.uri, texts) as check:
                yield from _faults(check, statements)
        except ConnectorFailed as failed:
            # One that is not required may come later, and with it all that its statements speak of.
            if said.required:
                yield Problem(f"connectors[{index}]", str(failed))


def _faults(check: SqliteCheck, statements: list[Placed]) -> Iterator[Problem]:
    for placed in statements:
        try:
            faults = (
                check.fault(bound.text, len(bound.values))
                for bound in sampled(placed.statement, placed.inputs)
            )
            fault = next((each for each in faults if each is not None), None)
        except EnvironmentFailed:
            # A variable of each call's own environment, which this is not.
            continue
        if fault is not None:
            yield Problem(placed.place, f"SQLite refuses it: {fault}")
