"""The address of a Redis: one server, a primary that Sentinel names, or a cluster; from a URL or from single values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from adapter.settings.section import Problem, SettingsError
from adapter.settings.storage import RedisState

PORT, SENTINEL_PORT = 6379, 26379

_CA, _CERTIFICATE = "ssl_ca_certs", "ssl_certfile"
_TLS_FILES = f"{_CA} and {_CERTIFICATE} in its query"

FORMS = "redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"


class RedisServer(NamedTuple):
    """A server: its host and its port."""

    host: str
    port: int


class RedisTls(NamedTuple):
    """TLS to the servers: the file ``ca`` replaces the authorities of the system, ``certificate`` has the own one with
    its key.

    ``insecure`` accepts any certificate.
    """

    ca: str | None = None
    certificate: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """``endpoints`` are the server itself, some servers of a ``cluster``, or the Sentinels of a ``service``.

    A password never shows in the text of this object.
    """

    endpoints: tuple[RedisServer, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: RedisTls | None = None
    cluster: bool = False
    service: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def parse_address(url: str) -> RedisAddress:
    """The address that a URL names. User and password are percent-encoded in it.

    ``redis://user:password@host:6379/0``; ``rediss`` for TLS. ``redis+cluster://host:6379,other:6379`` names some
    nodes of a cluster. ``redis+sentinel://user:password@host:26379,other:26379/service/0`` names Sentinels; those have
    a login of their own in the query: ``?sentinel_username=…&sentinel_password=…``. With TLS, ``?ssl_ca_certs=…`` and
    ``ssl_certfile=…`` name files, as redis-py has it.

    Raises ValueError with a sentence that has nothing of the URL in it.
    """
    parts = _split(url)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in ("", "cluster", "sentinel"):
        raise ValueError(f"must be a URL with {FORMS}")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    port = SENTINEL_PORT if kind == "sentinel" else PORT
    address = RedisAddress(
        tuple(_endpoint(host, port) for host in hosts.split(",")),
        unquote(username) or None,
        unquote(password) or None,
        cluster=kind == "cluster",
    )
    if len(address.endpoints) > 1 and not kind:
        raise ValueError("may name one server; several take redis+cluster:// or redis+sentinel://")
    path = [unquote(part) for part in parts.path.strip("/").split("/") if part]
    query = {name: value or None for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    if scheme == "rediss":
        address = replace(address, tls=RedisTls(query.pop(_CA, None), query.pop(_CERTIFICATE, None)))
    return _with_sentinels(address, path, query) if kind == "sentinel" else _with_path(address, path, query)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("is not a valid URL") from None


def _endpoint(text: str, port: int) -> RedisServer:
    host, colon, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, digits = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) < 65536:
        raise ValueError("must name each server as host or host:port")
    return RedisServer(host, int(digits))


def _with_path(address: RedisAddress, path: list[str], query: dict[str, str | None]) -> RedisAddress:
    if query:
        raise ValueError(f"may only have {_TLS_FILES}, with rediss")
    if len(path) > 1:
        raise ValueError("may have only the number of a database as its path")
    return replace(address, database=_database(path[0])) if path else address


def _with_sentinels(address: RedisAddress, path: list[str], query: dict[str, str | None]) -> RedisAddress:
    if len(path) not in (1, 2):
        raise ValueError("must have the name of the service as its path, and then the database: /service/0")
    if query.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError(
            f"may only have sentinel_username and sentinel_password, and with rediss {_TLS_FILES}"
        )
    database = _database(path[1]) if len(path) == 2 else 0
    return replace(address, service=path[0], database=database, **query)  # type: ignore[arg-type]  # names are known


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must have the number of a database as its path")
    return int(text)


def redis_address(state: RedisState) -> RedisAddress:
    """The address that the settings describe. Raises SettingsError."""
    if state.url is None:
        password = None if state.password is None else state.password.get_secret_value()
        return RedisAddress(
            (RedisServer(state.host or "localhost", state.port),),
            state.username,
            password,
            state.db,
            tls=RedisTls(insecure=state.tls_insecure) if state.tls or state.tls_insecure else None,
        )
    try:
        address = parse_address(state.url.get_secret_value())
    except ValueError as error:
        raise SettingsError([Problem("state_persistence.redis.url", str(error))]) from None
    if state.tls_insecure:
        return replace(address, tls=(address.tls or RedisTls())._replace(insecure=True))
    return address
