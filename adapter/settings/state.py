"""``state_persistence``: where sessions and records are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.section import BlankIsNull, OptionalText, Port, Seconds, Section, Text


class WriteAheadLog(Section):
    """SQLite's write-ahead log."""

    enabled: bool = Field(
        default=True, description="Uses SQLite's write-ahead log; turn it off on network file systems."
    )


class DiskState(Section):
    """State in SQLite."""

    local_path: Annotated[Path | None, BlankIsNull] = Field(
        default=None,
        description="File of the database; null is `state/adapter.sqlite3` below `storage.root`.",
    )
    wal: WriteAheadLog = Field(default_factory=WriteAheadLog, description="SQLite's write-ahead log.")


class RedisState(Section):
    """State in Redis."""

    host: OptionalText = Field(default=None, description="Host of the Redis server.")
    port: Port = Field(default=6379, description="Port of the Redis server.")
    db: Annotated[int, Field(ge=0)] = Field(default=0, description="Number of the Redis database.")
    username: OptionalText = Field(default=None, description="User to log in as.")
    password: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None, description="Password to log in with."
    )
    tls: bool = Field(default=False, description="Connects over TLS.")
    tls_insecure: bool = Field(
        default=False, description="Connects over TLS without checking the certificate."
    )
    key_base: Text = Field(default="mcp_remote_adapter", description="First part of every key.")
    ping_seconds: Seconds = Field(default=5, description="Time between two checks that Redis is there.")


class Reconciliation(Section):
    """Making records and files agree at start."""

    mode: Literal["disabled", "if_empty", "always"] = Field(
        default="if_empty",
        description="Whether files without records get records at start: never, into an empty store, always.",
    )
    legacy_server_id: OptionalText = Field(
        default=None, description="Server that files of an older layout, which names none, are counted to."
    )


class StatePersistence(Section):
    """Where sessions and records are kept; files are in `storage`."""

    type: Literal["memory", "disk", "redis"] = Field(
        default="disk",
        description="`memory` forgets at stop, `disk` is SQLite, `redis` is shared by several replicas.",
    )
    unavailable_policy: Literal["fail_closed", "exit", "fallback_memory"] = Field(
        default="fail_closed",
        description="When the store fails: refuse work that needs it, end the process, or go on in memory.",
    )
    refresh_on_startup: bool = Field(default=False, description="Forgets what is stored at every start.")
    snapshot_interval_seconds: Seconds = Field(
        default=30, description="Time between two snapshots of `memory` to `disk.local_path`."
    )
    disk: DiskState = Field(default_factory=DiskState, description="State in SQLite.")
    redis: RedisState = Field(default_factory=RedisState, description="State in Redis.")
    reconciliation: Reconciliation = Field(
        default_factory=Reconciliation, description="Making records and files agree at start."
    )
