"""The address of a Redis: one server, a primary that Sentinel names, or a cluster; from a URL or from single values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from adapter.settings.section import Problem, SettingsError
from adapter.settings.storage import RedisState

PORT, SENTINEL_PORT = 6379, 26379

FORMS = "redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// or rediss+sentinel://"


class RedisServer(NamedTuple):
    """A server: its host and its port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """``endpoints`` are the server itself, some servers of a ``cluster``, or the Sentinels of a ``service``.

    A password never shows in the text of this object.
    """

    endpoints: tuple[RedisServer, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: bool = False
    cluster: bool = False
    service: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def parse_address(url: str) -> RedisAddress:
    """The address that a URL names. User and password are percent-encoded in it.

    ``redis://user:password@host:6379/0``; ``rediss`` for TLS. ``redis+cluster://host:6379,other:6379`` names some
    nodes of a cluster. ``redis+sentinel://user:password@host:26379,other:26379/service/0`` names Sentinels; those have
    a login of their own in the query: ``?sentinel_username=…&sentinel_password=…``.

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
        tls=scheme == "rediss",
        cluster=kind == "cluster",
    )
    if len(address.endpoints) > 1 and not kind:
        raise ValueError("may name one server; several take redis+cluster:// or redis+sentinel://")
    path = [unquote(part) for part in parts.path.strip("/").split("/") if part]
    query = parse_qsl(parts.query, keep_blank_values=True)
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


def _with_path(address: RedisAddress, path: list[str], query: list[tuple[str, str]]) -> RedisAddress:
    if query:
        raise ValueError("may have no query: use the settings beside the URL")
    if len(path) > 1:
        raise ValueError("may have only the number of a database as its path")
    return replace(address, database=_database(path[0])) if path else address


def _with_sentinels(address: RedisAddress, path: list[str], query: list[tuple[str, str]]) -> RedisAddress:
    if len(path) not in (1, 2):
        raise ValueError("must have the name of the service as its path, and then the database: /service/0")
    known = {"sentinel_username", "sentinel_password"}
    if {name for name, _ in query} - known:
        raise ValueError("may only have sentinel_username and sentinel_password in its query")
    login = {name: value or None for name, value in query}
    database = _database(path[1]) if len(path) == 2 else 0
    return replace(address, service=path[0], database=database, **login)  # type: ignore[arg-type]  # names are known


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
            tls=state.tls or state.tls_insecure,
        )
    try:
        address = parse_address(state.url.get_secret_value())
    except ValueError as error:
        raise SettingsError([Problem("state_persistence.redis.url", str(error))]) from None
    return replace(address, tls=address.tls or state.tls_insecure)
