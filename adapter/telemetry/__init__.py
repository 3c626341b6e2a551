"""Spans, counts and log lines over OTLP. ``open_telemetry`` is the door; behind it, in the order data flows:

``spans`` and ``measures`` are what calls tell, ``lines`` what the log tells, ``exporting`` sends it all away. None of
these is imported, and OpenTelemetry is not either, unless the settings ask for it.
"""

from adapter.telemetry.opening import Telemetry, TelemetryMissing, open_telemetry, require_telemetry

__all__ = ["Telemetry", "TelemetryMissing", "open_telemetry", "require_telemetry"]
