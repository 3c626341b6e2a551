"""PostgreSQL, by asyncpg: one prepared statement for each call, its values always beside the text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from adapter.hosted.connectors.plain import plain
from adapter.hosted.connectors.port import (
    ConnectorFailed,
    ConnectorOptions,
    QueryFailed,
    Rows,
    of_the_call,
    reason,
    within,
)
from adapter.rules.statements.statements import Bound, Kind

OPEN_TIMEOUT = 10.0
"""Seconds to wait for the first connection."""

CLOSE_TIMEOUT = 2.0
"""Seconds that statements still running get to end when the connector is closed."""

_TIMES = ("timestamp", "timestamptz")
_TEXTS = (
    "text",
    "varchar",
    "bpchar",
    "numeric",
    "uuid",
    "date",
    "time",
    "timetz",
    "interval",
    "inet",
    "cidr",
)
_OF_DATA = "22"
"""The class of errors that quote a value, be it the call's or that of a row."""

_TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_TIMES, lambda text: text.replace(" ", "T", 1)),
    **dict.fromkeys(("int2", "int4", "int8"), int),
    **dict.fromkeys(("float4", "float8"), float),
    **dict.fromkeys(("json", "jsonb"), json.loads),
    "bool": lambda text: text == "t",
}
"""How the text of a value is read. Values travel as text in both directions, so that the server decides what a
value means for a column (a text for a timestamp, a number for a text), as it does for a literal."""


class PostgresConnector:
    """A PostgreSQL database. The connection string is a ``postgres://`` URL; options are merged into its query,
    except ``pool_size``."""

    kind: Kind = "postgres"

    def __init__(self, name: str, connection_string: str, options: Mapping[str, Any]) -> None:
        chosen = ConnectorOptions(self.kind, name, options)
        self.name = name
        self._size = chosen.pool_size(default=5)
        self._dsn = _merged(connection_string, chosen.rest())
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        try:
            # A cache of statements would need to hear of every change to the tables, and cannot stand poolers.
            pool = asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._size,
                timeout=OPEN_TIMEOUT,
                statement_cache_size=0,
                server_settings={"DateStyle": "ISO"},
                init=_speak_text,
            )
            async with asyncio.timeout(OPEN_TIMEOUT):
                self._pool = await pool
        except (asyncpg.InterfaceError, ValueError):
            # The driver's sentence repeats the connection string, so it is not chained either.
            raise self._failed("the connection string is not valid") from None
        except (asyncpg.PostgresError, OSError) as error:
            raise self._failed(_why_closed(error)) from error

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        pool = self._pool
        if pool is None:
            raise QueryFailed("the connector is closed")
        try:
            async with within(timeout), pool.acquire(timeout=timeout) as connection:
                statement = await connection.prepare(bound.text)
                if not statement.get_attributes() or _calls_procedure(bound.text):
                    return _all(await statement.fetch(*bound.values), statement.get_statusmsg(), max_rows)
                # Only a cursor stops reading at a row, and only a transaction has cursors.
                async with connection.transaction():
                    cursor = await statement.cursor(*bound.values)
                    return _cut(await cursor.fetch(max_rows + 1), max_rows)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            raise QueryFailed(_why_failed(error, bound.values)) from error

    def _failed(self, why: str) -> ConnectorFailed:
        return ConnectorFailed(f"connector '{self.name}' (postgres): {why}")


async def _speak_text(connection: Any) -> None:
    for name, decoder in _TYPES.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=_spelled, decoder=decoder
        )


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _calls_procedure(text: str) -> bool:
    """A procedure may commit, which no transaction around it allows."""
    return text.lstrip()[:5].upper().rstrip() == "CALL"


def _all(records: list[asyncpg.Record], status: str | None, max_rows: int) -> Rows:
    if records:
        return _cut(records, max_rows)
    count = (status or "").rpartition(" ")[2]
    return Rows.written(int(count) if count.isdigit() else 0)


def _cut(records: list[asyncpg.Record], max_rows: int) -> Rows:
    rows = [{key: plain(value) for key, value in record.items()} for record in records[:max_rows]]
    return Rows(rows, truncated=len(records) > max_rows)


def _merged(url: str, options: Mapping[str, str]) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # the driver refuses it when it is opened
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **options}
    return urlunsplit(parts._replace(query=urlencode(query)))


def _why_closed(error: Exception) -> str:
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "the server refused the credentials"
        case asyncpg.InvalidCatalogNameError():
            return "the configured database does not exist"
        case asyncpg.TooManyConnectionsError():
            return "the server has no free connection"
        case asyncpg.CannotConnectNowError():
            return "the server is starting up or shutting down"
    return reason(error) or "the server refused the connection"


def _why_failed(error: Exception, values: Sequence[object]) -> str:
    if isinstance(error, asyncpg.UnsupportedClientFeatureError) or type(error) is ValueError:
        return "a row cannot be returned as a value: write to_jsonb(…) around it"
    if isinstance(error, UnicodeError):
        return "the statement is not valid Unicode"
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return _why_closed(error)
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_OF_DATA):
        return of_the_call(str(error.args[0]), values)
    if isinstance(error, asyncpg.PostgresError | asyncpg.DataError | asyncpg.InterfaceError):
        return reason(error) or str(error)
    return _why_closed(error)
