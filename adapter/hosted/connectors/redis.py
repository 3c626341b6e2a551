"""Redis: one command for each call, sent as it was bound and answered as the server's protocol types it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError

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
"""Seconds to wait for a connection."""

_OF_THE_CONNECTION = frozenset(
    ("AUTH", "CLIENT", "HELLO", "MONITOR", "MULTI", "PSUBSCRIBE", "PSYNC", "QUIT")
) | frozenset(("READONLY", "RESET", "SELECT", "SSUBSCRIBE", "SUBSCRIBE", "SYNC", "WATCH"))
"""Commands that change the connection: it is not kept, so that no other call runs with what they left."""


class RedisConnector:
    """A Redis server, 6 or later, by a ``redis://`` or ``rediss://`` URL, whose query has the driver's options.
    The only option of its own is ``pool_size``; others are passed over, as they always were."""

    kind: Kind = "redis"

    def __init__(self, name: str, connection_string: str, options: Mapping[str, Any]) -> None:
        chosen = ConnectorOptions(self.kind, name, options)
        self.name = name
        try:
            self._pool = BlockingConnectionPool.from_url(
                connection_string,
                max_connections=chosen.pool_size(default=10),
                timeout=None,
                protocol=3,
                socket_connect_timeout=OPEN_TIMEOUT,
                # A command that was sent once may have been carried out, so nothing is sent twice.
                retry=Retry(NoBackoff(), 0),
            )
        except (ValueError, TypeError):
            raise self._failed("the connection string is not valid") from None
        self._opened = False

    async def open(self) -> None:
        try:
            async with within(OPEN_TIMEOUT):
                await self._answer(("PING",))
        except (RedisError, OSError, QueryTimedOut) as error:
            await self._pool.disconnect()
            raise self._failed(_why_closed(error)) from error
        self._opened = True

    async def close(self) -> None:
        self._opened = False
        await self._pool.disconnect()

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        if not self._opened:
            raise QueryFailed("the connector is closed")
        try:
            async with within(timeout):
                return _rows(await self._answer(bound.argv), max_rows)
        except ResponseError as error:
            raise QueryFailed(str(error)) from error
        except UnicodeEncodeError as error:
            # Of a value no check has seen, as an environment variable's may be; nothing was sent.
            raise QueryFailed("a value is not valid Unicode") from error
        except (RedisError, OSError) as error:
            raise QueryFailed(_why_closed(error)) from error

    async def _answer(self, argv: Sequence[str]) -> Any:
        """The server's answer. A caller that leaves before it came closes the connection, which ends a command
        that waits on the server."""
        pool: Any = self._pool  # the driver's types say nothing of its own get_connection
        connection: AbstractConnection = await pool.get_connection()
        kept = False
        try:
            command = argv[0].upper()
            await connection.send_command(command, *argv[1:])
            try:
                answer = await connection.read_response(disable_decoding=True)
            except ResponseError:
                kept = True
                raise
            kept = command not in _OF_THE_CONNECTION
            return answer
        finally:
            # A caller that is cancelled once more must not keep the connection's place in the pool.
            await asyncio.shield(self._put_back(connection, kept=kept))

    async def _put_back(self, connection: AbstractConnection, *, kept: bool) -> None:
        if not kept:
            await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    def _failed(self, why: str) -> ConnectorFailed:
        return ConnectorFailed(f"connector '{self.name}' (redis): {why}")


def _rows(answer: Any, max_rows: int) -> Rows:
    match answer:
        case None:
            raise QueryFailed("redis: nil")
        case list() | set() | tuple():
            values = [plain(member) for member in answer]
            return Rows([{"values": values[:max_rows]}], truncated=len(values) > max_rows)
        case Mapping():
            members = list(plain(answer).items())
            return Rows([{"value": dict(members[:max_rows])}], truncated=len(members) > max_rows)
        case _:
            return Rows([{"value": plain(answer)}])


def _why_closed(error: Exception) -> str:
    if isinstance(error, AuthenticationError) or str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        return "the server refused the credentials"
    if isinstance(error, ResponseError):
        return "the server refused the connection"
    return reason(error) or "the connection was lost"
