"""``state_persistence``: storage of sessions and records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.section import BlankIsNull, OptionalText, Port, Seconds, Section, Text


class WriteAheadLog(Section):
    """SQLite's write-ahead log."""

    enabled: bool = Field(
        default=True, description="Use SQLite's write-ahead log; disable it on network file systems."
    )


class DiskState(Section):
    """State in SQLite."""

    local_path: Annotated[Path | None, BlankIsNull] = Field(
        default=None,
        description="Database file; null means `state/adapter.sqlite3` below `storage.root`.",
    )
    wal: WriteAheadLog = Field(default_factory=WriteAheadLog, description="SQLite's write-ahead log.")


class RedisState(Section):
    """State in Redis."""

    host: OptionalText = Field(default=None, description="Host of the Redis server.")
    port: Port = Field(default=6379, description="Port of the Redis server.")
    db: Annotated[int, Field(ge=0)] = Field(default=0, description="Number of the Redis database.")
    username: OptionalText = Field(default=None, description="User name for the login.")
    password: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None, description="Password for the login."
    )
    tls: bool = Field(default=False, description="Connect over TLS.")
    tls_insecure: bool = Field(
        default=False, description="Connect over TLS without verifying the certificate."
    )
    key_base: Text = Field(default="mcp_remote_adapter", description="First part of every key.")
    ping_seconds: Seconds = Field(default=5, description="Time between two checks of the connection.")


class Reconciliation(Section):
    """Records for files without a record, at start."""

    mode: Literal["disabled", "if_empty", "always"] = Field(
        default="if_empty",
        description="Create records at start for files without a record: never (`disabled`), only in an empty "
        "store (`if_empty`), or `always`.",
    )
    legacy_server_id: OptionalText = Field(
        default=None, description="Owner server of files from an older directory layout without server names."
    )


class StatePersistence(Section):
    """Storage of sessions and records; for files see `storage`."""

    type: Literal["memory", "disk", "redis"] = Field(
        default="disk",
        description="`memory` loses everything at stop, `disk` is SQLite, `redis` is shared by several "
        "replicas.",
    )
    unavailable_policy: Literal["fail_closed", "exit", "fallback_memory"] = Field(
        default="fail_closed",
        description="Reaction to a failing store: refuse requests that need it, end the process, or continue "
        "in memory.",
    )
    refresh_on_startup: bool = Field(default=False, description="Delete all stored state at every start.")
    snapshot_interval_seconds: Seconds = Field(
        default=30, description="Time between two snapshots of `memory` to `disk.local_path`."
    )
    disk: DiskState = Field(default_factory=DiskState, description="State in SQLite.")
    redis: RedisState = Field(default_factory=RedisState, description="State in Redis.")
    reconciliation: Reconciliation = Field(
        default_factory=Reconciliation, description="Records for files without a record, at start."
    )
