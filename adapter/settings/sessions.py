"""``sessions``: how many, how long, and what they may hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapter.settings.section import ByteSize, Count, Seconds, SecondsOrZero, Section


class SessionsSettings(Section):
    """How many sessions there are, how long they live, and what they may hold."""

    max_active: Count | None = Field(
        default=None, description="Open sessions at the same time; null sets no limit."
    )
    max_in_flight_per_session: Count | None = Field(
        default=None, description="Unanswered requests of one session at the same time; null sets no limit."
    )
    idle_ttl_seconds: SecondsOrZero | None = Field(
        default=None, description="A session without a request for this long becomes a tombstone; null never."
    )
    allow_revival: bool = Field(default=True, description="Lets a request bring a tombstone back to life.")
    tombstone_ttl_seconds: SecondsOrZero = Field(
        default=86400, description="How long a tombstone is kept before it is deleted with its files."
    )
    upstream_session_termination_retries: Annotated[int, Field(ge=0, le=5)] = Field(
        default=1,
        description="How often a call is repeated in a new upstream session after the upstream "
        "ended the old one.",
    )
    max_total_session_size: ByteSize | None = Field(
        default=None,
        description="Bytes that one session's uploads and artifacts may take; null sets no limit.",
    )
    eviction_policy: Literal["lru_uploads_then_artifacts", "lru_artifacts_then_uploads"] = Field(
        default="lru_uploads_then_artifacts",
        description="What is deleted first when a session's size is exceeded.",
    )
    round_ttl_seconds: Seconds = Field(
        default=3600,
        description="How long a call that asked its user (`InputRequiredResult`) keeps its place, its links and the "
        "files it was given for its next round.",
    )
    max_rounds: Count = Field(
        default=100,
        description="Most such calls of one session or principal; for one more, the one that waited longest is "
        "given up.",
    )
    missing_id: Literal["refuse", "principal"] = Field(
        default="refuse",
        description="A legacy request without `Mcp-Session-Id`, for hosts that drop it: `refuse` answers 400, "
        "`principal` serves it in a session that is kept for who authenticated. Where the server issues no ids itself, "
        "such requests are always served.",
    )
    upstream: Literal["session", "principal"] = Field(
        default="session",
        description="Whether each session has one of its own at the server, or all sessions of who authenticated share "
        "one there, for hosts that open a session for every exchange.",
    )
    scope: Literal["session", "principal"] = Field(
        default="session", description="Whether files and pins belong to the session or to who authenticated."
    )
