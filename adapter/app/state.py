"""The state store as ``state_persistence`` describes it: its start, and what it does while it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from adapter.extras import install_line
from adapter.log import get_logger
from adapter.relay.files.scopes import TABLE as SCOPES
from adapter.relay.files.scopes import kept_secret
from adapter.rules.files.file_records import AREAS
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from adapter.state.fallback import FallbackStore
    from adapter.state.sealed_rows import SealedRows


def build_store(settings: Settings) -> Store:
    """Build the store that ``state_persistence`` describes. Raises SettingsError."""
    if settings.state_persistence.type == "redis":
        return build_redis_store(settings)
    if (path := settings.state_file) is None:
        return MemoryStore()
    return SqliteStore(
        path, wal=settings.state_persistence.disk.wal.enabled, shared=settings.has_other_workers
    )


DRIVERS = ("redis", "hiredis")


def build_redis_store(settings: Settings, warn: Callable[[str], None] | None = None) -> Store:
    """The store in Redis, not open yet. ``warn`` gets a sentence on each setting of Redis with which state may be lost,
    instead of the log. Raises SettingsError for an address that is none, and without the driver."""
    # Late: most adapters have no Redis, and its driver is an extra of the package.
    from adapter.relay.files.signed_urls import TABLE as NONCES
    from adapter.state.redis.address import redis_address

    state, cache = settings.state_persistence.redis, settings.state_persistence.cache_seconds
    address = redis_address(state)
    try:
        from adapter.state.redis.dialer import Dialer
        from adapter.state.redis.layout import Layout
        from adapter.state.redis.nodes import RedisTimes
        from adapter.state.redis.store import RedisStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in DRIVERS:
            raise
        sentence = f"redis needs its driver: {install_line('redis')}"
        raise SettingsError([Problem("state_persistence.type", sentence)]) from None
    times = RedisTimes(cache=cache)
    # The rows of credentials need no work when they expire.
    return RedisStore(Dialer(address, times.timeout), Layout(state.key_base), times, warn or _warn, (NONCES,))


def _warn(sentence: str) -> None:
    get_logger("adapter").warning(
        "Redis is not set up for the state", why=sentence, setting="state_persistence.redis"
    )


@contextlib.asynccontextmanager
async def kept_store(settings: Settings, *, making: bool = False) -> AsyncIterator[Store]:
    """The store that an adapter keeps beside this command, running or not; an empty one where there is none.

    ``making``: create its file if there is none yet. Raises StoreUnavailable.
    """
    kind = settings.state_persistence.type
    # A command that only reads, as in CI, creates no database.
    there = kind == "redis" or (kind == "disk" and settings.state_path.exists())
    store = build_store(settings) if making or there else MemoryStore()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def with_fallback(settings: Settings, store: Store, log: FilteringBoundLogger) -> FallbackStore | None:
    """Return ``store`` as one that goes on in memory while it fails; None where that is not wanted."""
    state = settings.state_persistence
    if state.unavailable_policy != "fallback_memory" or (
        state.type == "memory" and settings.state_file is None
    ):
        return None
    from adapter.state.fallback import FallbackStore

    return FallbackStore(store, log)


def sealed_rows(settings: Settings, store: Store, name: str) -> SealedRows:
    """Rows of the store under the key of these settings, or else under the one that it keeps by that name."""
    # Late: few keep what nobody may read, and it loads the library of ciphers.
    from adapter.state.sealed_rows import SealedRows

    configured = settings.core.secret

    async def secret(held: bytes | None) -> bytes:
        if configured is not None:
            return configured.get_secret_value().encode()
        return await kept_secret(store, name, held)

    return SealedRows(store, secret)


async def refresh(settings: Settings) -> None:
    """Delete all stored state where ``refresh_on_startup`` asks for it. Raises StoreUnavailable.

    To be called once before anything uses the state.
    """
    path = settings.state_file
    if not settings.state_persistence.refresh_on_startup or path is None or not path.exists():
        return
    file = SqliteStore(path, wal=settings.state_persistence.disk.wal.enabled)
    await file.open()
    try:
        await file.clear()
    finally:
        await file.close()


async def warn_of_unowned(settings: Settings, store: Store, log: FilteringBoundLogger) -> None:
    """Log that files were found whose records are lost.

    Directories have no session's name, so that an empty store cannot say whose they are. Raises StoreUnavailable.
    """
    if await store.scan(SCOPES, limit=1):
        return
    found = await asyncio.to_thread(_directories, settings.storage.root)
    if found:
        log.warning(
            "files are left of a state that is lost; nobody can own them any more",
            directories=found,
            kept=not settings.storage.orphan_sweeper_enabled,
            setting="storage.orphan_sweeper_enabled",
        )


def _directories(root: Path) -> int:
    """The number of scopes with files below the root."""
    found = 0
    for area in AREAS.values():
        try:
            with os.scandir(root / area) as entries:
                found += sum(entry.is_dir(follow_symlinks=False) for entry in entries)
        except OSError:
            # It is not there yet, or its owner learns elsewhere that it cannot be read.
            continue
    return found
