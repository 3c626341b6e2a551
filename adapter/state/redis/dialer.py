"""Connections to Redis, opened by redis-py: TCP or TLS, login and database, or the primary that Sentinel names; and the
map of a cluster, the server of each partition. Failures are in the words of the catalogue here; no sentence has an
address, a key or a password in it.

redis-py's own clients were measured (8.1) and rejected. A command of theirs has a connection to itself until its answer
is there, where a link sends all commands of one turn over one: 57 µs of CPU for each of fifty at once instead of 6, and
56 instead of 18 for one. And with them each caller waits for a server that hangs; a link tells later ones at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hiredis import pack_command
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.address import RedisAddress, RedisServer

_BY_CODE = {
    "OOM": "Redis has reached its maxmemory and takes no more state: give it more memory.",
    "READONLY": "The Redis server is a replica and takes no writes: configure the address of the primary.",
    "MISCONF": "Redis cannot save its data to disk and takes no writes: see its log.",
    "LOADING": "Redis is loading its data; try again when it has.",
    "MASTERDOWN": "The Redis replica has lost its primary.",
    "CLUSTERDOWN": "The Redis Cluster is down: see CLUSTER INFO.",
    "NOREPLICAS": "Redis has too few replicas and takes no writes.",
    "BUSY": "Redis is busy with a script; try again.",
    "NOPERM": "The Redis user may not do what the adapter needs: see the rights in docs/scaling.md.",
    "NOAUTH": "Redis asks for a login: set state_persistence.redis.username and password.",
    "WRONGPASS": "Redis refuses the login: check state_persistence.redis.username and password.",
    "WRONGTYPE": "Keys of the state store belong to another program: set another state_persistence.redis.key_base.",
    "MOVED": "The Redis server is a node of a cluster: use a URL with redis+cluster://.",
    "CROSSSLOT": "The Redis Cluster does not keep the keys of a partition together.",
}

LOST = "The connection to Redis was lost; it is opened again."
UNREACHABLE = "Redis cannot be reached: check state_persistence.redis, and that the server runs."
SILENT = "Redis does not answer within 2 s."
NO_TLS = "The TLS connection to Redis failed: check state_persistence.redis.tls and its certificates."
NOT_OPEN = "The state store is not open."


class LinkLost(StoreUnavailable):
    """The connection broke before the answer came: the command may have been done or not."""


def code_of(error: Exception) -> str:
    """The code with which Redis begins an error, such as ``NOPERM``; for any other failure an empty text."""
    if not isinstance(error, ResponseError):
        return ""
    return getattr(error, "status_code", None) or str(error).partition(" ")[0]


def unavailable(error: Exception) -> StoreUnavailable:
    """The failure of the catalogue for an error of the driver, the operating system, or a wait that was too long."""
    if isinstance(error, StoreUnavailable):
        return error
    if (sentence := _BY_CODE.get(code_of(error))) is not None:
        return StoreUnavailable(sentence)
    if isinstance(error, AuthenticationError):
        # The driver takes the code off.
        asks = str(error).removeprefix("NOAUTH ").startswith("Authentication required")
        return StoreUnavailable(_BY_CODE["NOAUTH" if asks else "WRONGPASS"])
    if isinstance(error, ResponseError):
        return StoreUnavailable("Redis refuses a command of the state store: it must be Redis 7 or Valkey 8.")
    if any(isinstance(cause, ssl.SSLError) for cause in (error, error.__cause__, error.__context__)):
        return StoreUnavailable(NO_TLS)
    if isinstance(error, BusyLoadingError):
        return StoreUnavailable(_BY_CODE["LOADING"])
    return StoreUnavailable(UNREACHABLE)


class LinkConnection(Connection):
    """A connection that is opened once, and written to without waiting."""

    opened = False

    async def _connect(self) -> None:
        # redis-py opens a lost connection again by itself, and a command would go out twice.
        if self.opened:
            raise LinkLost(LOST)
        self.opened = True
        await super()._connect()  # type: ignore[no-untyped-call]  # as redis-py has it

    def write(self, data: bytes) -> None:
        """Send bytes soon, if the connection is still there."""
        # uvloop raises for a connection that was lost, before who reads from it can know.
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    def abort(self) -> None:
        """Close at once, also if the server takes no bytes any more."""
        if self._writer is not None:
            self._writer.transport.abort()


class LinkTlsConnection(LinkConnection, SSLConnection):
    """The same over TLS."""


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens connections to the servers of an address. ``timeout`` is the time for one, in seconds."""

    address: RedisAddress
    timeout: float

    async def dial(self, endpoint: RedisServer | None = None) -> LinkConnection:
        """A connection to a server, without ``endpoint`` to the only one or the primary. Raises StoreUnavailable."""
        connection: LinkConnection | None = None
        try:
            async with asyncio.timeout(self.timeout):
                host, port = endpoint or await self._primary()
                connection = self._made(host, port)
                await connection.connect()  # type: ignore[no-untyped-call]  # as above
        except BaseException as error:
            if connection is not None:
                connection.abort()
                await connection.disconnect(nowait=True)
            if isinstance(error, (RedisError, OSError, StoreUnavailable)):
                raise unavailable(error) from None
            raise
        return connection

    def _made(self, host: str, port: int) -> LinkConnection:
        options = self._options(self.address.username, self.address.password)
        if not self.address.cluster:
            options["db"] = self.address.database
        made = LinkTlsConnection if self.address.tls is not None else LinkConnection
        return made(host=host, port=port, **options)

    def _options(self, username: str | None, password: str | None) -> dict[str, Any]:
        options: dict[str, Any] = {
            "username": username,
            "password": password,
            "protocol": 2,
            # How long something may take is decided here, for all of it.
            "socket_timeout": None,
            "socket_connect_timeout": self.timeout,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
        }
        if (tls := self.address.tls) is not None:
            options["ssl_ca_certs"], options["ssl_certfile"] = tls.ca, tls.certificate
            options["ssl_cert_reqs"] = "none" if tls.insecure else "required"
            options["ssl_check_hostname"] = not tls.insecure
        return options

    async def _primary(self) -> RedisServer:
        address = self.address
        if address.service is None:
            return address.endpoints[0]
        options = self._options(address.sentinel_username, address.sentinel_password)
        sentinel = Sentinel([*address.endpoints], sentinel_kwargs={**options, "ssl": address.tls is not None})  # type: ignore[no-untyped-call]  # as above
        try:
            host, port = await sentinel.discover_master(address.service)
        except MasterNotFoundError:
            raise StoreUnavailable("No Redis Sentinel that answers knows a primary of the service.") from None
        finally:
            await sentinel.aclose()
        return RedisServer(str(host), int(port))


Dial = Callable[[], Awaitable[LinkConnection]]
"""Open a connection. Raises StoreUnavailable."""


def packed(words: tuple[bytes, ...]) -> bytes:
    """A command as it is sent."""
    command: bytes = pack_command(words)  # type: ignore[arg-type]  # any number of words, not one
    return command


NO_CLUSTER = "The Redis server is not a node of a cluster: use a URL with redis:// or rediss://."


ClusterMap: TypeAlias = "list[RedisServer | None]"
"""The servers by the numbers of partitions; None is the only server there is."""


def slot_of(partition: int) -> int:
    """The slot of a cluster that all keys of a partition are in, by their hash tag."""
    return int(key_slot(b"%d" % partition))


def cluster_map(slots: Any, asked: RedisServer, partitions: int) -> ClusterMap:
    """The map that an answer to CLUSTER SLOTS of the server ``asked`` shows.

    Raises StoreUnavailable if a partition has no server.
    """
    servers: dict[int, RedisServer] = {}
    wanted = {slot_of(number) for number in range(partitions)}
    for first, last, primary, *_ in slots:
        host = primary[0].decode() if primary[0] else ""
        # A server that does not know its own name is the one that was asked.
        server = RedisServer(asked.host if host in ("", "?") else host, int(primary[1]))
        servers.update((slot, server) for slot in wanted if first <= slot <= last)
    if len(servers) < len(wanted):
        raise StoreUnavailable("The Redis Cluster does not serve all slots: see CLUSTER INFO.")
    return [servers[slot_of(number)] for number in range(partitions)]


async def read_map(
    connection: LinkConnection, asked: RedisServer, partitions: int, timeout: float
) -> ClusterMap:
    """Ask a server for the map, and close the connection. Raises StoreUnavailable."""
    try:
        async with asyncio.timeout(timeout):
            await connection.send_command("CLUSTER", "SLOTS")
            slots = await connection.read_response(disable_decoding=True)
    except (RedisError, OSError) as error:
        if code_of(error) == "ERR":
            raise StoreUnavailable(NO_CLUSTER) from None
        raise unavailable(error) from None
    finally:
        connection.abort()
        await connection.disconnect(nowait=True)
    return cluster_map(slots, asked, partitions)
