"""The state store as a command finds it: Redis is reached and written with the rights that the user has there."""

from __future__ import annotations

import time

from adapter.app.redis_state import build_redis_store
from adapter.commands.own_sessions import Reached
from adapter.errors import StoreUnavailable
from adapter.settings.root import Settings

STATE = "state_persistence"
"""The name of the state store among the servers of a report."""

TABLE, KEY = "health", "checked"


async def reach_state(settings: Settings) -> Reached | None:
    """Write a small row and delete it; None where the state is not in Redis. Raises SettingsError."""
    if settings.state_persistence.type != "redis":
        return None
    warnings: list[str] = []
    store = build_redis_store(settings, warnings.append)
    began = time.monotonic()
    try:
        await store.open()
        try:
            await store.put(TABLE, KEY, b"")
            await store.delete(TABLE, KEY)
        finally:
            await store.close()
    except StoreUnavailable as error:
        return Reached(STATE, False, str(error))
    took = round((time.monotonic() - began) * 1000, 1)
    return Reached(
        STATE, True, " ".join((f"Redis answers and can be written, in {took:g} ms.", *warnings)), took
    )
