"""Checks of the state store, and of the processes that share it: values that contradict each other or do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.storage import RedisState, StatePersistence


def state_problems(settings: Settings) -> Iterator[Problem]:
    """Find contradictions between the state store, the lock on files, and the processes that use them."""
    state = settings.state_persistence
    if state.type == "redis":
        yield from _redis_address(state.redis)
    if settings.core.workers != 1 and state.type == "memory":
        sentence = "memory is for one process: set disk or redis, or core.workers to 1"
        yield Problem("state_persistence.type", sentence)
    if settings.storage.lock_mode == "redis" and state.type != "redis":
        sentence = "redis needs state_persistence.type redis: set that, or auto here"
        yield Problem("storage.lock_mode", sentence)
    if state.type == "redis" and state.refresh_on_startup:
        sentence = (
            "each replica that starts would delete the state of the others; empty the Redis database instead"
        )
        yield Problem("state_persistence.refresh_on_startup", sentence)
    yield from _taken_port(settings)


def _redis_address(redis: RedisState) -> Iterator[Problem]:
    if redis.url is None and redis.host is None:
        yield Problem(
            "state_persistence.redis.host", "or redis.url is required when state_persistence.type is redis"
        )
    if redis.url is not None:
        for key in ("host", "port", "db", "username", "password", "tls"):
            if key in redis.model_fields_set and getattr(redis, key):
                yield Problem(f"state_persistence.redis.{key}", "is in redis.url: remove one of them")
    if redis.cluster and redis.db:
        yield Problem("state_persistence.redis.db", "must be 0: a cluster has no other database")


def _taken_port(settings: Settings) -> Iterator[Problem]:
    """Find a port for other replicas that the adapter itself has taken for its clients."""
    core = settings.core
    bound = core.replica.bound
    # With workers each process binds a free port, whichever is named.
    if bound is None or core.workers != 1 or not settings.shares_state:
        return
    host, port = bound
    if port and port == core.port and _overlap(host, core.host):
        sentence = (
            f"{core.replica.listen} is taken by core.host and core.port: choose another port, or remove this, "
            "and replicas are served at core.port"
        )
        yield Problem("core.replica.listen", sentence)


def _overlap(one: str, other: str) -> bool:
    """Tell whether two addresses cannot be bound at the same port."""
    return one.lower() == other.lower() or _is_any(one) or _is_any(other)


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


# --- settings that do nothing -----------------------------------------------------------------------------------


def state_cautions(settings: Settings) -> Iterator[Problem]:
    """Find settings of replicas and of the state store that nothing asks for."""
    yield from _lonely_replica(settings)
    state = settings.state_persistence
    if state.type != "redis" and _is_set(state, "cache_seconds"):
        sentence = (
            f"has no effect with state_persistence.type {state.type}: only with redis may changes by other "
            "replicas not be heard; remove it"
        )
        yield Problem("state_persistence.cache_seconds", sentence)
    if state.type != "memory" and _is_set(state, "snapshot_interval_seconds"):
        sentence = (
            f"has no effect with state_persistence.type {state.type}, which stores each change at once: "
            "only memory has snapshots; remove it"
        )
        yield Problem("state_persistence.snapshot_interval_seconds", sentence)


def _is_set(state: StatePersistence, key: str) -> bool:
    """Tell whether the file sets a value; a default that stands there, as in effective settings, does no harm."""
    return key in state.said and getattr(state, key) != StatePersistence.model_fields[key].default


def _lonely_replica(settings: Settings) -> Iterator[Problem]:
    """Find settings of a replica where there are no others, or where they cannot hold for each of several workers."""
    core = settings.core
    given = [key for key in ("id", "address", "listen") if getattr(core.replica, key) is not None]
    if core.workers == 1 and not settings.shares_state:
        for key in given:
            sentence = (
                "has no effect: this process shares its state with no other; set state_persistence.type to redis, "
                "or remove it"
            )
            yield Problem(f"core.replica.{key}", sentence)
    elif core.workers != 1 and not settings.shares_state:
        for key in given:
            if key != "id":
                sentence = (
                    "has no effect: workers with one SQLite file reach each other at 127.0.0.1; remove it"
                )
                yield Problem(f"core.replica.{key}", sentence)
    elif core.workers != 1 and core.replica.bound is not None and core.replica.bound[1]:
        sentence = (
            "its port has no effect: each worker binds a free port of its own; write port 0, or set "
            "core.workers to 1"
        )
        yield Problem("core.replica.listen", sentence)
