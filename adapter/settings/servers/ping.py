"""``upstream_ping``: pings of all upstreams (``core``) or of one (``servers[]``), and the circuit breaker."""

from __future__ import annotations

from pydantic import Field

from adapter.settings.section import Count, Seconds, Section


class UpstreamPing(Section):
    """Pings of each upstream, and its circuit breaker."""

    enabled: bool = Field(
        default=True, description="Ping every upstream; if false, the circuit breaker never opens."
    )
    interval_seconds: Seconds = Field(default=15, description="Time between two pings.")
    timeout_seconds: Seconds = Field(default=5, description="Time after which an unanswered ping has failed.")
    failure_threshold: Count = Field(
        default=3, description="Number of failed pings in a row that opens the breaker."
    )
    open_cooldown_seconds: Seconds = Field(
        default=30, description="Time that an open breaker refuses calls before the next ping."
    )
    half_open_probe_allowance: Count = Field(
        default=2,
        description="Maximum number of simultaneous pings while the breaker is half-open; one success closes it.",
    )


class UpstreamPingOverride(Section):
    """Overrides for one server; null keeps the value of `core.upstream_ping`."""

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
