"""``upstream_ping``: watching upstreams, for all of them under ``core`` and for one under ``servers[]``."""

from __future__ import annotations

from pydantic import Field

from adapter.settings.section import Count, Seconds, Section


class UpstreamPing(Section):
    """The ping of each upstream and its circuit breaker."""

    enabled: bool = Field(default=True, description="Pings every upstream; off, the breaker never opens.")
    interval_seconds: Seconds = Field(default=15, description="Time between two pings.")
    timeout_seconds: Seconds = Field(
        default=5, description="A ping without an answer for this long has failed."
    )
    failure_threshold: Count = Field(default=3, description="Failed pings in a row that open the breaker.")
    open_cooldown_seconds: Seconds = Field(
        default=30, description="How long an open breaker refuses before it probes again."
    )
    half_open_probe_allowance: Count = Field(
        default=2, description="Good probes in a row that close the breaker again."
    )


class UpstreamPingOverride(Section):
    """The same for one server; null keeps what `core.upstream_ping` says."""

    enabled: bool | None = Field(
        default=None, description="Overrides `core.upstream_ping.enabled` for this server."
    )
    interval_seconds: Seconds | None = Field(
        default=None, description="Overrides `core.upstream_ping.interval_seconds` for this server."
    )
    timeout_seconds: Seconds | None = Field(
        default=None, description="Overrides `core.upstream_ping.timeout_seconds` for this server."
    )
    failure_threshold: Count | None = Field(
        default=None, description="Overrides `core.upstream_ping.failure_threshold` for this server."
    )
    open_cooldown_seconds: Seconds | None = Field(
        default=None, description="Overrides `core.upstream_ping.open_cooldown_seconds` for this server."
    )
    half_open_probe_allowance: Count | None = Field(
        default=None, description="Overrides `core.upstream_ping.half_open_probe_allowance` for this server."
    )
