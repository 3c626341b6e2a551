"""``telemetry`` and ``core.audit``: traces, metrics and logs for others to read, and the record of calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.section import (
    BlankIsNull,
    HttpUrl,
    Port,
    Section,
    Text,
    UrlPath,
)


class PrometheusSettings(Section):
    """Metrics for Prometheus to scrape, as Prometheus text or as OpenMetrics."""

    enabled: bool = False
    """Serve metrics."""
    path: UrlPath = "/metrics"
    """Path of the metrics."""
    port: Port | None = None
    """Port that serves metrics only, without credentials; null: `core.port`, for operators or this machine only."""
    host: Text | None = None
    """Address of that port; null means 127.0.0.1. Needs `port`."""

    def _contradictions(self) -> Iterator[str]:
        if self.host is not None and self.port is None:
            yield "host is of no use without port"

    @property
    def place(self) -> tuple[str, int] | None:
        """The address of a port of its own; None where the adapter's port serves metrics too."""
        return None if self.port is None else (self.host or "127.0.0.1", self.port)


class TelemetrySettings(Section):
    """Export of traces, metrics and logs over OTLP."""

    enabled: bool = False
    """Export telemetry."""
    transport: Literal["grpc", "http"] = "grpc"
    """OTLP over gRPC or over HTTP with protobuf."""
    endpoint: Annotated[HttpUrl | None, BlankIsNull] = None
    """Collector, with TLS if it begins with `https://`; null means the transport's usual port on localhost."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers added to every export; their values are secrets."""
    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)

    @property
    def measures(self) -> bool:
        """Tell whether metrics are counted, to be scraped or exported."""
        return self.enabled or self.prometheus.enabled


class AuditSettings(Section):
    """Audit log: one line of JSON for each call; off unless `file` or `stdout` is set."""

    file: Annotated[Path | None, BlankIsNull] = None
    """File that lines are appended to; opened again when it was renamed."""
    stdout: bool = False
    """Write the lines to standard output."""
    arguments_key: Annotated[SecretStr | None, BlankIsNull] = None
    """Key of the HMAC-SHA-256 of a call's arguments, as canonical JSON; null adds none to the lines."""

    @property
    def enabled(self) -> bool:
        """Tell whether anything is recorded."""
        return self.file is not None or self.stdout

    def _contradictions(self) -> Iterator[str]:
        if self.file is not None and self.stdout:
            yield "file and stdout are both set: choose one"
        if not self.enabled and self.arguments_key is not None:
            yield "nothing is recorded: set file or stdout"
