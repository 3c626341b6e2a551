"""What can be known of statements for SQLite without running them: SQLite compiles each, and nothing is written."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from adapter.hosted.connectors.port import ConnectorFailed
from adapter.hosted.connectors.sqlite import why_not_opened

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
