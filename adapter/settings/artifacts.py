"""``artifacts``: files that tools produce."""

from __future__ import annotations

from pydantic import Field

from adapter.settings.values.section import ByteSize, Count, Seconds, Section, UriScheme


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
