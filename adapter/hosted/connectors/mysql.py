"""MySQL and MariaDB, by aiomysql: rows are read as they come, and a statement left behind is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import aiomysql
from pymysql.constants import CLIENT, FIELD_TYPE

from adapter.hosted.connectors.port import (
    ConnectorOptions,
    DriverPool,
    QueryFailed,
    Rows,
    not_opened,
    of_the_call,
    plain,
    reason,
    within,
)
from adapter.rules.statements.statements import Bound, Kind

_FORM = re.compile(
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?"
    r"(?:(?P<net>tcp|unix)\((?P<place>[^()]*)\))?/(?P<database>[^/?]*)(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_OF_OTHER_CLIENTS = ("parsetime", "loc", "charset", "collation")
"""Settings of how other clients read times and texts; here times are ISO 8601 and texts Unicode, always."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """``arguments`` are the driver's, ``options`` the connector's that stood in the query."""

    arguments: dict[str, Any]
    options: dict[str, str]

    def tls(self, choice: str | None) -> ssl.SSLContext | None:
        if choice in (None, "false"):
            return None
        context = ssl.create_default_context()
        if choice == "skip-verify":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def address_of(connection_string: str) -> Address:
    """Read a connection string of either form. Raises ValueError, whose sentence may hold the connection string."""
    if "://" in connection_string:
        return _url(connection_string)
    if (found := _FORM.fullmatch(connection_string)) is None:
        raise ValueError("neither a URL nor user:password@tcp(host:port)/database")
    place = found["place"] or ""
    arguments: dict[str, Any] = {
        "user": found["user"] or None,
        "password": found["password"] or "",
        "db": unquote(found["database"]) or None,
    }
    if found["net"] == "unix":
        arguments["unix_socket"] = place
    else:
        parts = urlsplit(f"//{place}")
        arguments |= {"host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}
    return Address(arguments, _options(found["query"] or ""))


def _url(connection_string: str) -> Address:
    parts = urlsplit(connection_string)
    if parts.scheme not in ("mysql", "mariadb"):
        raise ValueError("the scheme is neither mysql nor mariadb")
    arguments = {
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password or ""),
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "db": unquote(parts.path.removeprefix("/")) or None,
    }
    return Address(arguments, _options(parts.query))


def _options(query: str) -> dict[str, str]:
    return {key: value for key, value in parse_qsl(query) if key.lower() not in _OF_OTHER_CLIENTS}


OPEN_TIMEOUT = 10
"""Seconds to wait for a connection."""

KILL_TIMEOUT = 2.0
"""Seconds that a cancelled statement's killing may take. Its caller waits, so a server that is gone costs as much."""

_CLIENT_ERRORS = range(2000, 3000)
"""The client's own errors, whose sentences name the host; all others are the server's."""

_REASONS = {
    1045: "the server refused the credentials",
    1044: "the server refused the credentials",
    1698: "the server refused the credentials",
    1049: "the configured database does not exist",
    1040: "the server has no free connection",
}

_QUOTING = frozenset((1064, 1105, 1265, 1292, 1366, 1411, 1690))
"""The server's errors that quote the rest of the statement, or what was in a row."""

# Before 3.11.5 Python reads a possessive repetition right only with (?!) at its end (CPython issue 106052).
_PASSING = re.compile(
    r"(?:\s++|\(|/\*(?>.*?\*/)|(?:--|#)[^\n]*+\n|(?!))*+"
    r"(?:SELECT|WITH|VALUES|TABLE|SHOW|DESC|DESCRIBE|EXPLAIN|INSERT|REPLACE|UPDATE|DELETE|DO|CALL)\b",
    re.DOTALL | re.IGNORECASE,
)
"""Statements that leave the connection as it was. It is closed after any other, for that may have changed it by
``SET``, ``EXECUTE IMMEDIATE`` or a block of several statements: in another character set the server would not read
the quotes of the next statement's values as the driver wrote them."""

_CHARSET = "utf8mb4"
"""The server converts, whatever its tables are in."""


class MysqlConnector:
    """A MySQL or MariaDB database. The connection string is a ``mysql://`` URL or ``user:password@tcp(host)/db``.
    Options, also in the query of either: ``tls`` (true, false, skip-verify) and ``pool_size``.
    """

    kind: Kind = "mysql"

    def __init__(self, name: str, connection_string: str, options: Mapping[str, Any]) -> None:
        self.name = name
        try:
            address = address_of(connection_string)
        except ValueError:
            raise not_opened(self, "the connection string is not valid") from None
        chosen = ConnectorOptions(self.kind, name, {**address.options, **options})
        self._arguments = {
            **address.arguments,
            "charset": _CHARSET,
            "ssl": address.tls(chosen.one_of("tls", ("true", "false", "skip-verify"))),
        }
        size = chosen.pool_size(default=5)
        chosen.done()
        self._pool = DriverPool(size, connect=self._connect, usable=_usable, drop=_drop)

    async def open(self) -> None:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT), self._pool.lease():
                pass
        except (aiomysql.MySQLError, OSError, LookupError, RuntimeError) as error:
            why = _REASONS.get(_code(error)) or reason(error) or "the server refused the connection"
            raise not_opened(self, why) from error

    async def close(self) -> None:
        await self._pool.close()

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        try:
            async with within(timeout), self._pool.lease() as connection:
                try:
                    return await _execute(connection, bound, max_rows)
                except asyncio.CancelledError:
                    connection.close()
                    await asyncio.shield(self._kill(connection.thread_id()))
                    raise
                except (ValueError, TypeError):
                    connection.close()  # a row that cannot be read stands before others that were not
                    raise
                finally:
                    if not _PASSING.match(bound.text):
                        connection.close()
        except (aiomysql.MySQLError, OSError, EOFError, ValueError, TypeError) as error:
            raise QueryFailed(_why_failed(error, bound.values)) from error

    async def _connect(self) -> aiomysql.Connection:
        connection = aiomysql.Connection(**self._arguments, connect_timeout=OPEN_TIMEOUT, autocommit=True)
        # The driver always asks for it; nothing here is more than one statement, nor shall it become so.
        connection.client_flag &= ~CLIENT.MULTI_STATEMENTS
        connection.show_warnings = _no_warnings
        try:
            await connection._connect()  # connect() itself loses its socket when it is cancelled
            # The driver goes on without TLS where the server offers none, be it for want of it or of a man between.
            if self._arguments["ssl"] is not None and not connection._secure:
                raise ssl.SSLError("the server offers no TLS")
            await _require_charset(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _kill(self, thread: int) -> None:
        """End the statement that a connection of ours still runs. A failure is ignored: it may have ended by itself."""
        with contextlib.suppress(aiomysql.MySQLError, OSError, EOFError):
            async with asyncio.timeout(KILL_TIMEOUT):
                connection = await self._connect()
                try:
                    await connection.kill(thread)
                finally:
                    connection.close()


async def _require_charset(connection: aiomysql.Connection) -> None:
    """Set the connection's character set again where settings of the server (``init_connect``,
    ``character-set-client-handshake``) have changed it.

    In a character set whose letters may end in a backslash or a quote, a value could end its own quotes.
    """
    async with connection.cursor(aiomysql.Cursor) as cursor:
        await cursor.execute(
            "SELECT @@character_set_client, @@character_set_connection, @@character_set_results"
        )
        found = await cursor.fetchone()
    if tuple(found) != (_CHARSET,) * 3:
        await connection.set_charset(_CHARSET)


async def _no_warnings() -> None:
    """Replace the driver's query for warnings, which it would raise as Python warnings."""


async def _execute(connection: aiomysql.Connection, bound: Bound, max_rows: int) -> Rows:
    cursor = await connection.cursor(aiomysql.SSCursor)
    await cursor.execute(bound.text, tuple(bound.values) or None)
    if cursor.description is None:
        affected = cursor.rowcount
        await cursor.close()
        return Rows.written(affected)
    readers = [(column[0], _READERS.get(column[1], plain)) for column in cursor.description]
    found = await cursor.fetchmany(max_rows + 1)
    if truncated := len(found) > max_rows:
        connection.close()  # what is left of the rows would have to be read first
    else:
        await cursor.close()
    rows = [
        {name: read(value) for (name, read), value in zip(readers, row, strict=True)}
        for row in found[:max_rows]
    ]
    return Rows(rows, truncated=truncated)


def _json(value: Any) -> Any:
    return None if value is None else json.loads(value)


def _bits(value: Any) -> Any:
    return int.from_bytes(value) if isinstance(value, bytes) else value


_READERS = {FIELD_TYPE.JSON: _json, FIELD_TYPE.BIT: _bits}


def _usable(connection: aiomysql.Connection) -> bool:
    if connection.closed or connection.get_transaction_status():
        return False
    # The driver's own pool asks its reader the same; there is no public way that does not ask the server.
    return not connection._reader.at_eof() and connection._reader.exception() is None


async def _drop(connection: aiomysql.Connection) -> None:
    with contextlib.suppress(OSError, aiomysql.MySQLError):
        await connection.ensure_closed()
    connection.close()


def _code(error: BaseException) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _why_failed(error: Exception, values: Sequence[object]) -> str:
    code = _code(error)
    if code in _REASONS:
        return _REASONS[code]
    if isinstance(error, aiomysql.MySQLError) and len(error.args) > 1 and code not in _CLIENT_ERRORS:
        sentence = str(error.args[1])
        return of_the_call(sentence, values) if code in _QUOTING else sentence
    if isinstance(error, aiomysql.MySQLError | OSError | EOFError):
        return reason(error) or "the connection was lost"
    return str(error)
