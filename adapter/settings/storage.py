"""``storage``: directories, sizes and locks of stored files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from adapter.settings.section import ByteSize, Count, Seconds, SecondsOrZero, Section, UriScheme


class Uploads(Section):
    """Files that clients upload for tools."""

    enabled: bool = Field(default=True, description="Allow uploads for servers that have an upload consumer.")
    max_file_bytes: ByteSize = Field(default=10 * 1024**2, description="Maximum size of one uploaded file.")
    max_files: Count = Field(default=1000, description="Maximum number of files in one upload.")
    ttl_seconds: Seconds | None = Field(
        default=120,
        description="Time after its last use when an upload is deleted; null keeps it as long as its session.",
    )
    require_sha256: bool = Field(default=False, description="Refuse uploads without a SHA-256 for each file.")
    uri_scheme: UriScheme = Field(default="upload://", description="Scheme of upload handles.")
    stall_timeout_seconds: Seconds = Field(
        default=20, description="Time without a byte after which an upload is refused with 408."
    )


class Artifacts(Section):
    """Files that tools produce."""

    enabled: bool = Field(default=True, description="Capture the files of artifact producers.")
    ttl_seconds: Seconds | None = Field(
        default=600,
        description="Time after its last use when an artifact is deleted; null keeps it as long as its "
        "session.",
    )
    max_per_session: Count | None = Field(
        default=None, description="Maximum number of artifacts of one session; null sets no limit."
    )
    max_file_bytes: ByteSize = Field(
        default=1024**3,
        description="Maximum size of a captured file; a larger one is not read.",
    )
    expose_as_resources: bool = Field(
        default=True, description="List artifacts as MCP resources of their session."
    )
    uri_scheme: UriScheme = Field(default="artifact://", description="Scheme of artifact URIs.")
    max_resource_bytes: ByteSize = Field(
        default=10 * 1024**2,
        description="Maximum size of an artifact that `resources/read` returns; for a larger one it names the "
        "download URL.",
    )


class Storage(Section):
    """Storage of files, and its size."""

    root: Path = Field(
        default=Path("data"),
        json_schema_extra={"shown": "`./data`"},
        description="Directory of uploads, artifacts and, by default, the state database.",
    )
    max_size: ByteSize | None = Field(
        default=None, description="Maximum size of all files together; null sets no limit."
    )
    atomic_writes: bool = Field(
        default=True, description="Write to a temporary file, sync it, then rename it."
    )
    lock_mode: Literal["auto", "none", "process", "file", "redis"] = Field(
        default="auto",
        description="Lock against a second adapter on the same root; `auto` depends on "
        "`state_persistence.type`.",
    )
    orphan_sweeper_enabled: bool = Field(default=True, description="Delete files without a record.")
    orphan_sweeper_grace_seconds: SecondsOrZero = Field(
        default=300, description="Minimum age of a file without a record before it is deleted."
    )
    artifact_locator_policy: Literal["storage_only", "allow_configured_roots"] = Field(
        default="storage_only",
        description="Directories in which a tool's file is accepted: only the adapter's own, or also the "
        "configured roots.",
    )
    artifact_locator_allowed_roots: list[Path] = Field(
        default_factory=list, description="Directories that `allow_configured_roots` accepts."
    )

    @model_validator(mode="after")
    def _policy_has_roots(self) -> Storage:
        if (
            self.artifact_locator_policy == "allow_configured_roots"
            and not self.artifact_locator_allowed_roots
        ):
            raise ValueError(
                "artifact_locator_policy allow_configured_roots needs artifact_locator_allowed_roots"
            )
        return self
