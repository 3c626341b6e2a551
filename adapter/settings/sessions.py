"""``sessions``: their number, lifetime and size."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapter.settings.section import ByteSize, Count, Seconds, SecondsOrZero, Section


class SessionsSettings(Section):
    """Number, lifetime and size of sessions."""

    max_active: Count | None = Field(
        default=None, description="Maximum number of open sessions; null sets no limit."
    )
    max_in_flight_per_session: Count | None = Field(
        default=None, description="Maximum number of unanswered requests of one session; null sets no limit."
    )
    idle_ttl_seconds: SecondsOrZero | None = Field(
        default=None,
        description="Time without a request after which a session becomes a tombstone; null means never.",
    )
    allow_revival: bool = Field(default=True, description="Allow a request to revive a tombstone.")
    tombstone_ttl_seconds: SecondsOrZero = Field(
        default=86400, description="Time after which a tombstone is deleted with its files."
    )
    upstream_session_termination_retries: Annotated[int, Field(ge=0, le=5)] = Field(
        default=1,
        description="Number of times that a call is repeated in a new upstream session after the upstream "
        "ended the old one.",
    )
    max_total_session_size: ByteSize | None = Field(
        default=None,
        description="Maximum size of all uploads and artifacts of one session or principal; null sets no "
        "limit.",
    )
    eviction_policy: Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"] = Field(
        default="lru_uploads_then_artifacts",
        description="Kind of files that are deleted first above a size limit.",
    )
    round_ttl_seconds: Seconds = Field(
        default=3600,
        description="Time that a call with a question to its user (`InputRequiredResult`) keeps its output "
        "directory, links and files for the next round.",
    )
    max_rounds: Count = Field(
        default=100,
        description="Maximum number of such calls of one session or principal; above it the call that waited "
        "longest is abandoned.",
    )
    missing_id: Literal["refuse", "principal"] = Field(
        default="refuse",
        description="Legacy requests without `Mcp-Session-Id`, for hosts that lose it. `refuse`: 400. "
        "`principal`: they use one common session of the principal. If the server issues no ids, "
        "such requests are always served.",
    )
    upstream: Literal["session", "principal"] = Field(
        default="session",
        description="Upstream sessions. `session`: one for each session. `principal`: all sessions of a "
        "principal share one, for hosts that open a session for every call.",
    )
    scope: Literal["session", "principal"] = Field(
        default="session", description="Owner of files and pins: the session, or the principal."
    )
