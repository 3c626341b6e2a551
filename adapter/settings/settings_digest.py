"""A digest of the settings that must be equal in all replicas: by it they find out that one answers otherwise."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from adapter.settings.reference_page import masked
from adapter.settings.root import Settings

OF_ONE_PROCESS: dict[str, tuple[str, ...]] = {
    "core": (
        *("host", "port", "workers", "replica", "log_level", "access_log", "trusted_proxies", "upstream"),
        *("client_timeouts", "max_connections", "max_buffered_bytes", "cleanup_interval_seconds"),
        *("max_start_wait_seconds", "shutdown_grace_seconds", "readiness"),
    ),
    "storage": ("root", "atomic_writes", "lock_mode"),
}
"""Settings that depend on the machine, or that no answer depends on."""

SECTIONS_OF_ONE_PROCESS = ("telemetry", "state_persistence", "console")
"""Whole sections of that kind. Replicas that see each other use the same state, however they reach it."""


def settings_digest(settings: Settings) -> str:
    """Return 16 hexadecimal digits, the same for settings that give the same answers.

    Secrets have no part in it, so that it tells nothing of them to whoever reads it.
    """
    common = masked(settings)
    for section in SECTIONS_OF_ONE_PROCESS:
        del common[section]
    for section, keys in OF_ONE_PROCESS.items():
        _forget(common[section], keys)
    # Servers are found by their id and path, in whatever order they stand.
    common["servers"].sort(key=lambda server: str(server["id"]))
    text = json.dumps(common, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _forget(section: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        del section[key]
