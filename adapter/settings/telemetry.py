"""``telemetry``: metrics, traces and logs over OTLP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapter.settings.section import BlankIsNull, Count, HttpUrl, OptionalText, Seconds, Section, Text


class TelemetrySettings(Section):
    """Metrics, traces and logs over OTLP."""

    enabled: bool = Field(default=False, description="Exports anything at all.")
    transport: Literal["grpc", "http"] = Field(
        default="grpc", description="OTLP over gRPC or over HTTP with protobuf."
    )
    endpoint: Annotated[HttpUrl | None, BlankIsNull] = Field(
        default=None,
        description="Where metrics and traces go; null is the transport's usual port on localhost.",
    )
    logs_endpoint: Annotated[HttpUrl | None, BlankIsNull] = Field(
        default=None, description="Where logs go over HTTP; null is the usual port on localhost."
    )
    insecure: bool = Field(default=True, description="gRPC without TLS.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Headers added to every export; their values are secrets.",
    )
    export_interval_seconds: Seconds = Field(default=15, description="Time between two exports of metrics.")
    export_timeout_seconds: Seconds = Field(default=10, description="How long one export may take.")
    max_queue_size: Count = Field(default=5000, description="Events that may wait for export.")
    queue_batch_size: Count = Field(default=256, description="Events taken from the queue at a time.")
    periodic_flush_seconds: Seconds = Field(default=5, description="Time between two flushes.")
    shutdown_drain_timeout_seconds: Seconds = Field(
        default=10, description="How long the queue may drain at stop."
    )
    drop_on_queue_full: bool = Field(
        default=True, description="Drops events when the queue is full rather than wait."
    )
    flush_on_shutdown: bool = Field(default=True, description="Flushes when the adapter stops.")
    flush_on_terminate: bool = Field(default=True, description="Flushes when the interpreter ends.")
    emit_logs: bool = Field(default=False, description="Exports log lines as well.")
    log_batch_max_queue_size: Count | None = Field(
        default=None, description="Log records that may wait; null is the SDK's."
    )
    log_batch_max_export_batch_size: Count | None = Field(
        default=None, description="Log records in one export; null is the SDK's."
    )
    log_batch_schedule_delay_millis: Count | None = Field(
        default=None, description="Milliseconds between two exports of logs; null is the SDK's."
    )
    log_batch_export_timeout_millis: Count | None = Field(
        default=None, description="Milliseconds one export of logs may take; null is the SDK's."
    )
    service_name: Text = Field(
        default="mcp-adapter", description="Name of this service in the exported data."
    )
    service_namespace: OptionalText = Field(
        default=None, description="Group of services this one belongs to."
    )
