"""The store of files, of which the console shows what is kept, also where no server uses files."""

from __future__ import annotations

from adapter.app.base import Base
from adapter.files.shelf import Shelf
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.upload_batch import FileLimits
from adapter.rules.files.quota import Limits
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings


def takes_uploads(settings: Settings, entry: ServerSettings) -> bool:
    """Tell whether some tool of the server takes files."""
    return settings.uploads.enabled and bool(entry.consumers)


def build_shelf(settings: Settings) -> Shelf:
    storage, lock = settings.storage, settings.root_lock
    if lock == "exclusive" and settings.has_other_workers:
        # Of several processes that keep all others away, the one that starts them has the lock.
        lock = None
    configured = storage.artifact_locator_policy == "allow_configured_roots"
    return Shelf(
        storage.root,
        allowed_roots=storage.artifact_locator_allowed_roots if configured else (),
        private=(settings.state_path,),
        lock=lock,
        copies=storage.max_size,
    )


def build_registry(base: Base, files: Shelf) -> FileRegistry:
    settings, storage = base.settings, base.settings.storage
    quota = Limits(
        scope_bytes=settings.sessions.max_total_session_size,
        total_bytes=storage.max_size,
        artifacts=settings.artifacts.max_per_session,
        policy=settings.sessions.eviction_policy,
    )
    grace = storage.orphan_sweeper_grace_seconds if storage.orphan_sweeper_enabled else None
    limits = FileLimits(quota, settings.uploads, settings.artifacts.ttl_seconds, grace)
    return FileRegistry(base.store, files, limits, base.clock, base.log)
