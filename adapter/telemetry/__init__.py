"""Spans, metrics and log lines over OTLP.

``open_telemetry`` of ``opening`` is the entrance; ``signals`` records, ``exporting`` sends. Neither these two nor
OpenTelemetry are imported unless the settings ask for them.
"""

from adapter.telemetry.opening import Telemetry, TelemetryMissing, open_telemetry, require_telemetry

__all__ = ["Telemetry", "TelemetryMissing", "open_telemetry", "require_telemetry"]
