"""The state store as a command finds it: Redis is reached and written with the rights that the user has there."""

from __future__ import annotations

from adapter.app.redis_state import build_redis_store
from adapter.commands.own_sessions import Reached, reached
from adapter.settings.root import Settings

STATE = "state_persistence"
"""The name of the state store among the servers of a report."""

TABLE, KEY = "health", "checked"


async def reach_state(settings: Settings) -> Reached | None:
    """Write a small row and delete it; None where the state is not in Redis. Raises SettingsError."""
    if settings.state_persistence.type != "redis":
        return None
    return await reached(STATE, _answer(settings))


async def _answer(settings: Settings) -> str:
    warnings: list[str] = []
    store = build_redis_store(settings, warnings.append)
    await store.open()
    try:
        await store.put(TABLE, KEY, b"")
        await store.delete(TABLE, KEY)
    finally:
        await store.close()
    return " ".join(("Redis answers and can be written, in {took}.", *warnings))
