"""``storage``: where files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from adapter.settings.values.section import ByteSize, SecondsOrZero, Section


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
