"""What all tests of telemetry share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def flushed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Export metrics at the end only, so that what arrives is what was flushed."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
