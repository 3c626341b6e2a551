"""Failures of Redis in the words of the catalogue. No sentence has an address, a key or a password in it."""

from __future__ import annotations

import ssl

from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError

from adapter.errors import StoreUnavailable

_BY_CODE = {
    "OOM": "Redis has reached its maxmemory and takes no more state: give it more memory.",
    "READONLY": "The Redis server is a replica and takes no writes: configure the address of the primary.",
    "MISCONF": "Redis cannot save its data to disk and takes no writes: see its log.",
    "LOADING": "Redis is loading its data; try again when it has.",
    "MASTERDOWN": "The Redis replica has lost its primary.",
    "CLUSTERDOWN": "The Redis Cluster is down: see CLUSTER INFO.",
    "NOREPLICAS": "Redis has too few replicas and takes no writes.",
    "BUSY": "Redis is busy with a script; try again.",
    "NOPERM": "The Redis user may not do what the adapter needs: see the rights in docs/state.md.",
    "NOAUTH": "Redis asks for a login: set state_persistence.redis.username and password.",
    "WRONGPASS": "Redis refuses the login: check state_persistence.redis.username and password.",
    "WRONGTYPE": "Keys of the state store belong to another program: set another state_persistence.redis.key_base.",
    "MOVED": "The Redis server is a node of a cluster: set state_persistence.redis.cluster to true.",
    "CROSSSLOT": "The Redis Cluster does not keep the keys of a partition together.",
}

LOST = "The connection to Redis was lost; it is opened again."
UNREACHABLE = "Redis cannot be reached: check state_persistence.redis, and that the server runs."
SILENT = "Redis does not answer within state_persistence.redis.timeout_seconds."
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
