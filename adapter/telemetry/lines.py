"""Log lines on their way out of the process."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry._logs import Logger, SeverityNumber

from adapter.telemetry.secrets import AttributeRedaction, Value

_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
_EXPORTERS = "opentelemetry"
_SAID_OTHERWISE = ("event", "level", "timestamp")


class Lines:
    """Ships lines of the log, as structlog's processors see them: a mapping with ``event`` and ``level``."""

    def __init__(self, logger: Logger, redaction: AttributeRedaction) -> None:
        self._logger = logger
        self._redaction = redaction

    def __call__(self, line: Mapping[str, object]) -> None:
        """Queue a line, which carries the current trace. Lines of the exporters themselves stay here."""
        if str(line.get("module", "")).partition(".")[0] == _EXPORTERS:
            # Else a collector that is away would be told, on and on, that it is away.
            return
        level = str(line.get("level", "info"))
        self._logger.emit(
            timestamp=time.time_ns(),
            severity_number=_SEVERITIES.get(level, SeverityNumber.INFO),
            severity_text=level.upper(),
            body=self._redaction("event", str(line.get("event", ""))),
            attributes={
                key: self._redaction(key, _plain(value))
                for key, value in line.items()
                if key not in _SAID_OTHERWISE and value is not None
            },
        )


def _plain(value: object) -> Value:
    return value if isinstance(value, str | int | float | bool) else str(value)
