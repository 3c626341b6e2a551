"""The parts that move files and follow from the settings alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from adapter.files.port import CaptureLimit, FileStore
from adapter.files.shelf import Shelf
from adapter.relay.files.file_registry import FileLimits, FileRegistry
from adapter.relay.files.upload_batch import BatchLimits
from adapter.rules.files.quota import Limits
from adapter.settings.root import Settings
from adapter.state.port import Store


def shelf(settings: Settings) -> Shelf:
    storage = settings.storage
    configured = storage.artifact_locator_policy == "allow_configured_roots"
    return Shelf(
        storage.root,
        allowed_roots=storage.artifact_locator_allowed_roots if configured else (),
        private=(settings.state_path,),
        atomic=storage.atomic_writes,
        lock=storage.lock_mode in ("auto", "file"),
    )


def registry(
    settings: Settings, store: Store, files: FileStore, clock: Callable[[], float], log: FilteringBoundLogger
) -> FileRegistry:
    storage = settings.storage
    quota = Limits(
        scope_bytes=settings.sessions.max_total_session_size,
        total_bytes=storage.max_size,
        artifacts=settings.artifacts.max_per_session,
        policy=settings.sessions.eviction_policy,
    )
    limits = FileLimits(
        quota,
        BatchLimits(settings.uploads.max_file_bytes, settings.uploads.max_files, quota.scope_bytes),
        upload_ttl=settings.uploads.ttl_seconds,
        artifact_ttl=settings.artifacts.ttl_seconds,
        queue_wait=settings.uploads.stall_timeout_seconds,
        sweep_grace=storage.orphan_sweeper_grace_seconds if storage.orphan_sweeper_enabled else None,
    )
    return FileRegistry(store, files, limits, clock, log)


def secret(settings: Settings) -> bytes | None:
    """The secret that links are signed with; None means a secret of the store's own.

    It is a digest, so that no signature uses a token.
    """
    said = settings.core.auth.signing_secret or settings.core.auth.token
    return None if said is None else hashlib.sha256(said.get_secret_value().encode()).digest()


def capture_limit(settings: Settings, patience: float | None) -> CaptureLimit:
    """The least of what stands against a large file of a tool, so that none is read only to be refused; ``patience``
    is how long its call may be silent in seconds.
    """
    most = [
        (settings.artifacts.max_file_bytes, "artifacts.max_file_bytes"),
        (settings.sessions.max_total_session_size, "sessions.max_total_session_size"),
        (settings.storage.max_size, "storage.max_size"),
    ]
    size, setting = min((size, setting) for size, setting in most if size is not None)
    return CaptureLimit(size, setting, patience)
