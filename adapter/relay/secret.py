"""Secrets that nobody configured: made once, kept in the state store, the same for every process on it."""

from __future__ import annotations

import secrets

from adapter.state.port import ABSENT, Conflict, Store

TABLE = "secrets"


async def kept_secret(store: Store, name: str) -> bytes:
    """The secret of that name, 32 random bytes, made now if it is asked for first. Raises StoreUnavailable."""
    if (row := await store.get(TABLE, name)) is not None:
        return row.value
    try:
        return (await store.put(TABLE, name, secrets.token_bytes(32), expected=ABSENT)).value
    except Conflict:  # another process was quicker, and its secret is there to stay
        return await kept_secret(store, name)
