"""``storage``: where files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from adapter.settings.section import ByteSize, Count, Seconds, SecondsOrZero, Section, UriScheme


class Uploads(Section):
    """Files that clients stage for tools."""

    enabled: bool = Field(default=True, description="Offers uploads on servers that have an upload consumer.")
    max_file_bytes: ByteSize = Field(default=10 * 1024**2, description="Largest single upload accepted.")
    max_files: Count = Field(default=1000, description="Most files in one upload.")
    ttl_seconds: Seconds | None = Field(
        default=120,
        description="An upload not used for this long is deleted; null keeps it as long as its session.",
    )
    require_sha256: bool = Field(
        default=False, description="Refuses uploads without a SHA-256 for each file."
    )
    uri_scheme: UriScheme = Field(default="upload://", description="How handles of uploads begin.")
    stall_timeout_seconds: Seconds = Field(
        default=20, description="An upload that sends nothing for this long is ended."
    )


class Artifacts(Section):
    """Files that tools produce."""

    enabled: bool = Field(default=True, description="Keeps the files of artifact producers.")
    ttl_seconds: Seconds | None = Field(
        default=600,
        description="An artifact not read for this long is deleted; null keeps it as long as its session.",
    )
    max_per_session: Count | None = Field(
        default=None, description="Most artifacts of one session; null sets no limit."
    )
    max_file_bytes: ByteSize = Field(
        default=1024**3,
        description="Largest file of a tool that is captured; a larger one is not read.",
    )
    expose_as_resources: bool = Field(
        default=True, description="Lists artifacts as MCP resources of their session."
    )
    uri_scheme: UriScheme = Field(default="artifact://", description="How URIs of artifacts begin.")
    max_resource_bytes: ByteSize = Field(
        default=10 * 1024**2,
        description="Largest artifact that `resources/read` returns; above it, downloads are named.",
    )


class Storage(Section):
    """Where files lie, and how much of them there may be."""

    root: Path = Field(
        default=Path("data"),
        json_schema_extra={"shown": "`./data`"},
        description="Directory of uploads, artifacts and, by default, the state database.",
    )
    max_size: ByteSize | None = Field(
        default=None, description="Bytes that all files may take together; null sets no limit."
    )
    atomic_writes: bool = Field(default=True, description="Writes to a temporary name, syncs, then renames.")
    lock_mode: Literal["auto", "none", "process", "file", "redis"] = Field(
        default="auto",
        description="How writers keep out of each other's way; `auto` fits `state_persistence.type`.",
    )
    orphan_sweeper_enabled: bool = Field(default=True, description="Deletes files that no record knows.")
    orphan_sweeper_grace_seconds: SecondsOrZero = Field(
        default=300, description="Age below which such a file is left alone."
    )
    artifact_locator_policy: Literal["storage_only", "allow_configured_roots"] = Field(
        default="storage_only",
        description="Whether a tool's file may lie outside the adapter's own artifact area.",
    )
    artifact_locator_allowed_roots: list[Path] = Field(
        default_factory=list, description="Directories that `allow_configured_roots` adds."
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
