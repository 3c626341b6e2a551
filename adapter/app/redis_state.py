"""State in Redis: the store, from the settings. Imported only where the settings ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adapter import log
from adapter.relay.files.signed_urls import TABLE as NONCES
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.storage import RedisState
from adapter.state.port import Store
from adapter.state.redis.address import RedisAddress, RedisServer, parse_address

DRIVERS = ("redis", "hiredis")

EXPIRING = (NONCES,)
"""Tables whose rows need no work when they expire."""


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


def build_redis_store(settings: Settings, warn: Callable[[str], None] | None = None) -> Store:
    """The store in Redis, not open yet. ``warn`` gets a sentence on each setting of Redis with which state may be lost,
    instead of the log. Raises SettingsError for an address that is none, and without the driver."""
    state, cache = settings.state_persistence.redis, settings.state_persistence.cache_seconds
    address = redis_address(state)
    try:
        from adapter.state.redis.dialer import Dialer, RedisTls
        from adapter.state.redis.layout import Layout
        from adapter.state.redis.nodes import RedisTimes
        from adapter.state.redis.store import RedisStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in DRIVERS:
            raise
        sentence = "redis needs its driver: install mcp-file-adapter[redis]"
        raise SettingsError([Problem("state_persistence.type", sentence)]) from None
    tls = RedisTls(state.tls_ca_file, state.tls_cert_file, state.tls_key_file, state.tls_insecure)
    dialer = Dialer(address, state.timeout_seconds, tls)
    times = RedisTimes(state.timeout_seconds, cache)
    return RedisStore(dialer, Layout(state.key_base), times, warn or _warn, EXPIRING)


def _warn(sentence: str) -> None:
    log.get_logger("adapter").warning(
        "Redis is not set up for the state", why=sentence, setting="state_persistence.redis"
    )
