"""``storage``, ``uploads``, ``artifacts``, ``state_persistence`` and ``sessions``: what is kept, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.section import (
    BlankIsNull,
    ByteSize,
    Count,
    OptionalText,
    Port,
    Seconds,
    SecondsOrZero,
    Section,
    Text,
    UriScheme,
)


class SessionsSettings(Section):
    """Number, lifetime and size of sessions."""

    max_active: Count | None = None
    """Maximum number of open sessions of all replicas; null: no limit."""
    max_in_flight_per_session: Count | None = None
    """Maximum number of unanswered requests of one session at each replica; null: no limit."""
    idle_ttl_seconds: SecondsOrZero | None = None
    """Time without a request after which a session becomes a tombstone; null means never."""
    allow_revival: bool = True
    """Allow a request to revive a tombstone."""
    tombstone_ttl_seconds: SecondsOrZero = 86400
    """Time after which a tombstone is deleted with its files."""
    upstream_session_termination_retries: Annotated[int, Field(ge=0, le=5)] = 1
    """Times that a call is repeated in a new upstream session after the old one was lost."""
    max_total_session_size: ByteSize | None = None
    """Maximum size of all files of one session or principal; null: no limit."""
    eviction_policy: Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"] = (
        "lru_uploads_then_artifacts"
    )
    """Kind of files that are deleted first above a size limit."""
    round_ttl_seconds: Seconds = 3600
    """Time that a call with a question (`InputRequiredResult`) keeps its directory, links and files."""
    max_rounds: Count = 100
    """Maximum number of such calls of one session or principal; the oldest is abandoned."""
    missing_id: Literal["refuse", "principal"] = "refuse"
    """Legacy requests without `Mcp-Session-Id`. `refuse`: 400. `principal`: they use one common session of the
    principal.
    """
    upstream: Literal["session", "principal"] = "session"
    """Upstream sessions: one for each `session`, or one for all of a `principal`."""
    scope: Literal["session", "principal"] = "session"
    """Owner of files and pins: the session, or the principal."""


class WriteAheadLog(Section):
    """SQLite's write-ahead log."""

    enabled: bool = True
    """Use SQLite's write-ahead log; disable it on network file systems."""


class DiskState(Section):
    """State in SQLite."""

    local_path: Annotated[Path | None, BlankIsNull] = None
    """Database file; null means `state/adapter.sqlite3` below `storage.root`, or with `memory`
    `state/snapshot.sqlite3`.
    """
    wal: WriteAheadLog = Field(default_factory=WriteAheadLog)


class RedisState(Section):
    """State in Redis 7 or Valkey 8: one server, a primary behind Sentinel, or a cluster."""

    url: Annotated[SecretStr | None, BlankIsNull] = None
    """Address in one text, in place of `host` and others: `redis://user:password@host:6379/0`, `rediss://`,
    `redis+cluster://host,host`, `redis+sentinel://host,host/service/0`. User and password are percent-encoded.
    `?ssl_ca_certs=FILE&ssl_certfile=FILE` name other certificates for TLS.
    """
    host: OptionalText = None
    """Host of the Redis server."""
    port: Port = 6379
    """Port of the Redis server."""
    db: Annotated[int, Field(ge=0)] = 0
    """Number of the Redis database."""
    username: OptionalText = None
    """User name for the login."""
    password: Annotated[SecretStr | None, BlankIsNull] = None
    """Password for the login."""
    tls: bool = False
    """Connect over TLS."""
    tls_insecure: bool = False
    """Connect over TLS without verifying the certificate."""
    key_base: Annotated[Text, Field(pattern=r"^[^{}\s]{1,200}$")] = "mcp_remote_adapter"
    """First part of every key; adapters with the same one are replicas of each other."""


class StatePersistence(Section):
    """Storage of sessions and records; for files see `storage`."""

    type: Literal["memory", "disk", "redis"] = "disk"
    """`memory` loses everything at stop, `disk` is SQLite, `redis` is for several replicas."""
    unavailable_policy: Literal["fail_closed", "exit", "fallback_memory"] = "fail_closed"
    """Reaction to a failing store: refuse requests, end the process, or continue in memory."""
    refresh_on_startup: bool = False
    """Delete all stored state at every start; not with `redis`."""
    snapshot_interval_seconds: Seconds = 30
    """Time of changes to `memory` that may be lost; null keeps nothing."""
    cache_seconds: Annotated[Seconds, Field(le=60)] = 1
    """Time for which a replica believes what it has read while it cannot hear others."""
    disk: DiskState = Field(default_factory=DiskState)
    redis: RedisState = Field(default_factory=RedisState)


class Uploads(Section):
    """Files that clients upload for tools."""

    enabled: bool = True
    """Allow uploads for servers that have an upload consumer."""
    max_file_bytes: ByteSize = 10 * 1024**2
    """Maximum size of one uploaded file."""
    max_files: Count = 1000
    """Maximum number of files in one upload."""
    ttl_seconds: Seconds | None = 120
    """Time after its last use when an upload is deleted; null: with its session."""
    require_sha256: bool = False
    """Refuse uploads without a SHA-256 for each file."""
    uri_scheme: UriScheme = "upload://"
    """Scheme of upload handles."""
    stall_timeout_seconds: Seconds = 20
    """Time without a byte after which an upload is refused with 408."""
    page_ttl_seconds: Annotated[Seconds, Field(ge=1, le=86400)] = 900
    """Lifetime of a person's upload link, and minimum lifetime of what came there."""


class Artifacts(Section):
    """Files that tools produce."""

    enabled: bool = True
    """Capture the files of artifact producers."""
    ttl_seconds: Seconds | None = 600
    """Time after its last use when an artifact is deleted; null: with its session."""
    max_per_session: Count | None = None
    """Maximum number of artifacts of one session; null sets no limit."""
    max_file_bytes: ByteSize = 1024**3
    """Maximum size of a captured file; a larger one is not read."""
    expose_as_resources: bool = True
    """List artifacts as MCP resources of their session."""
    in_structured_content: Literal["auto", "never"] = "auto"
    """`auto` lists artifacts in structured content, and says so in the output schema; `never` does not."""
    uri_scheme: UriScheme = "artifact://"
    """Scheme of artifact URIs."""
    max_resource_bytes: ByteSize = 10 * 1024**2
    """Maximum size of an artifact that `resources/read` returns."""


class Storage(Section):
    """Storage of files, and its size."""

    root: Path = Field(default=Path("data"), json_schema_extra={"shown": "`./data`"})
    """Directory of uploads, artifacts and, by default, the state database."""
    max_size: ByteSize | None = None
    """Maximum size of all files together; null sets no limit."""
    lock_mode: Literal["auto", "none", "process", "file", "redis"] = "auto"
    """Lock on the root, against adapters with another state store: `auto` and `file` lock a file in it, the others
    none.
    """
    orphan_sweeper_enabled: bool = True
    """Delete files without a record."""
    orphan_sweeper_grace_seconds: SecondsOrZero = 300
    """Minimum age of a file without a record before it is deleted."""
    artifact_locator_policy: Literal["storage_only", "allow_configured_roots"] = "storage_only"
    """Directories in which a tool's file is accepted: the adapter's own, or also configured ones."""
    artifact_locator_allowed_roots: list[Path] = Field(default_factory=list)
    """Directories that `allow_configured_roots` accepts."""

    def _contradictions(self) -> Iterator[str]:
        if (
            self.artifact_locator_policy == "allow_configured_roots"
            and not self.artifact_locator_allowed_roots
        ):
            yield "artifact_locator_policy allow_configured_roots needs artifact_locator_allowed_roots"
