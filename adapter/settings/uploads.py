"""``uploads``: files that clients stage for tools."""

from __future__ import annotations

from pydantic import Field

from adapter.settings.values.section import ByteSize, Count, Seconds, Section, UriScheme


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
