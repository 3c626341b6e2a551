"""MongoDB, by PyMongo's asynchronous client: one database command for each call."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Mapping
from typing import Any

from bson import json_util
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import (
    ConfigurationError,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from adapter.hosted.connectors.plain import plain
from adapter.hosted.connectors.port import (
    ConnectorFailed,
    ConnectorOptions,
    QueryFailed,
    QueryTimedOut,
    Rows,
    reason,
    within,
)
from adapter.rules.statements.statements import Bound, Kind

OPEN_TIMEOUT = 10.0
"""Seconds to wait for the first answer."""

SELECTION_TIMEOUT_MS = 5_000
"""Milliseconds to wait for a server that can be asked, unless the configuration says how long."""

KILL_TIMEOUT = 2.0
"""Seconds that a cancelled command's killing may take. Its caller waits, so a server that is gone costs as much."""

_AUTHENTICATION_FAILED = 18
_UNAUTHORIZED = 13

_TYPES: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    uuid_representation=UuidRepresentation.STANDARD,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,  # MongoDB has years that Python has not
)
"""How replies are read; a command takes none of this from its client."""

_ERRNO = re.compile(r"\[Errno (-?\d+)\]")

Document = dict[str, Any]


class MongodbConnector:
    """A MongoDB deployment by a ``mongodb://`` or ``mongodb+srv://`` URL. Options are the URL's, and ``pool_size``.

    ``find`` and ``aggregate`` give their first batch, made large enough for ``max_rows`` unless the command says how
    large; the rest is never fetched.
    """

    kind: Kind = "mongodb"

    def __init__(self, name: str, connection_string: str, options: Mapping[str, Any]) -> None:
        chosen = ConnectorOptions(self.kind, name, options)
        self.name = name
        self._url = connection_string
        self._size = chosen.pool_size(default=10)
        self._options: dict[str, Any] = dict(chosen.rest())
        if "serverselectiontimeoutms" not in connection_string.lower():
            self._options.setdefault("serverSelectionTimeoutMS", SELECTION_TIMEOUT_MS)
        self._client: AsyncMongoClient[Document] | None = None
        self._has_sessions = False

    async def open(self) -> None:
        try:
            client: AsyncMongoClient[Document] = AsyncMongoClient(
                _with_scheme(self._url), maxPoolSize=self._size, **self._options
            )
        except (ConfigurationError, InvalidURI, ValueError, TypeError):
            # The driver's sentence may repeat a part of the URL, so it is not chained either.
            raise self._failed("the connection string or an option is not valid") from None
        try:
            async with within(OPEN_TIMEOUT):
                hello = await client.admin.command("hello")
        except (PyMongoError, QueryTimedOut) as error:
            why = _why_closed(error, client)
            await client.close()
            raise self._failed(why) from error
        self._has_sessions = "logicalSessionTimeoutMinutes" in hello
        self._client = client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        client = self._client
        if client is None:
            raise QueryFailed("the connector is closed")
        try:
            database, command = self._command(client, bound.document, max_rows)
            async with within(timeout):
                reply = await self._reply(client, database, command)
                return await _rows(client, database, reply, max_rows)
        except OperationFailure as error:
            raise QueryFailed(str((error.details or {}).get("errmsg") or "the command failed")) from error
        except PyMongoError as error:
            raise QueryFailed(_why_closed(error, client)) from error
        except (BSONError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise QueryFailed(str(error)) from error

    def _command(
        self, client: AsyncMongoClient[Document], document: Mapping[str, Any] | None, max_rows: int
    ) -> tuple[str, Document]:
        if document is None:
            raise QueryFailed("the statement is not a MongoDB command")
        database = document.get("database") or client.get_default_database(default="").name
        try:
            command = _typed(document["command"])
        except (BSONError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What the types raise for a text that spells none of them; some sentences name classes of Python.
            raise QueryFailed("a value does not fit the type at its place ($oid, $date, …)") from error
        return str(database), _sized(command, max_rows)

    async def _reply(self, client: AsyncMongoClient[Document], database: str, command: Document) -> Document:
        if not self._has_sessions:
            return await client[database].command(command, codec_options=_TYPES)
        async with client.start_session() as session:
            try:
                return await client[database].command(command, codec_options=_TYPES, session=session)
            except asyncio.CancelledError:
                await asyncio.shield(_kill(client, session))
                raise

    def _failed(self, why: str) -> ConnectorFailed:
        return ConnectorFailed(f"connector '{self.name}' (mongodb): {why}")


async def _kill(client: AsyncMongoClient[Document], session: AsyncClientSession) -> None:
    """End what a session of ours still runs, which every user may; it may have ended by itself, and nobody is told
    of either."""
    with contextlib.suppress(PyMongoError, TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT):
            await client.admin.command({"killSessions": [session.session_id]})


def _with_scheme(url: str) -> str:
    """Raises ValueError for what the driver would take for the name of a host."""
    if not url.startswith(("mongodb://", "mongodb+srv://")):
        raise ValueError("the scheme is neither mongodb nor mongodb+srv")
    return url


def _typed(value: Any) -> Any:
    """Extended JSON (``{"$oid": …}``, ``{"$date": …}``) as the types it stands for, the order of keys kept."""
    if isinstance(value, Mapping):
        return json_util.object_hook({key: _typed(member) for key, member in value.items()}, _EXTENDED)
    if isinstance(value, list | tuple):
        return [_typed(member) for member in value]
    return value


_EXTENDED = json_util.JSONOptions(tz_aware=True)


def _sized(command: Document, max_rows: int) -> Document:
    """The command with room for one more than ``max_rows`` in its first batch, where it does not say itself."""
    match next(iter(command), ""):
        case "find":
            return {**command, "batchSize": command.get("batchSize", max_rows + 1)}
        case "aggregate" if isinstance(command.get("cursor", {}), Mapping):
            return {**command, "cursor": {"batchSize": max_rows + 1, **command.get("cursor", {})}}
        case _:
            return command


async def _rows(client: AsyncMongoClient[Document], database: str, reply: Document, max_rows: int) -> Rows:
    for failures in (reply.get("writeErrors"), [reply.get("writeConcernError")]):
        if failures and failures[0]:
            raise QueryFailed(str(failures[0].get("errmsg", "the write failed")))
    cursor = reply.get("cursor")
    if not isinstance(cursor, Mapping) or "firstBatch" not in cursor:
        affected = reply.get("n")
        return Rows([plain(reply)], affected=affected if isinstance(affected, int) else None)
    batch = [plain(document) for document in cursor["firstBatch"]]
    if left := cursor.get("id"):
        await _forget(client, database, str(cursor.get("ns", "")), left)
    return Rows(batch[:max_rows], truncated=bool(left) or len(batch) > max_rows)


async def _forget(client: AsyncMongoClient[Document], database: str, namespace: str, cursor: int) -> None:
    """Nobody reads on, so the server need not keep the rest; if it cannot be told, it forgets by itself."""
    with contextlib.suppress(PyMongoError):
        collection = namespace.partition(".")[2]
        await client[database].command({"killCursors": collection, "cursors": [cursor]})


def _why_closed(error: Exception, client: AsyncMongoClient[Document]) -> str:
    match error:
        case OperationFailure(code=code) if code in (_AUTHENTICATION_FAILED, _UNAUTHORIZED):
            return "the server refused the credentials"
        case QueryTimedOut() | ExecutionTimeout():
            return "no answer in time"
        case ServerSelectionTimeoutError():
            # The failure itself lists hosts; what became of each is known to the client.
            known = client.topology_description.server_descriptions().values()
            reasons = [_of_the_system(server.error) for server in known if server.error is not None]
            return next((why for why in reasons if why), "no server can be reached")
    return _of_the_system(error) or "the connection was lost"


def _of_the_system(error: Exception) -> str | None:
    """The driver keeps the system's error in its sentence only, as ``[Errno 111]``."""
    if (found := _ERRNO.search(str(error))) is None:
        return reason(error)
    number = int(found[1])
    return reason(socket.gaierror(number) if number < 0 else OSError(number, ""))
