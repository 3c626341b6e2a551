"""Spans, metrics and log lines over OTLP, and metrics for Prometheus.

``open_telemetry`` is the entrance to OTLP; ``signals`` records, ``exporting`` sends. ``metric_registry`` keeps the
numbers of the catalogue (``adapter/rules/metrics``) and writes them for a scrape, ``otlp_metrics`` adds
them to exports, and ``worker_values`` shares them among workers. None of these is imported unless the settings ask for
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from adapter.extras import install_line
from adapter.settings.telemetry import TelemetrySettings as Settings

if TYPE_CHECKING:
    from adapter.telemetry.exporting import Providers
    from adapter.telemetry.metric_registry import MetricRegistry
    from adapter.telemetry.signals import Fault, Lines, Spans

PATIENCE = 5.0
"""Seconds for exporting the rest at a stop."""


class TelemetryMissing(Exception):
    """Telemetry is enabled and cannot be used; ``str(error)`` is a message for the operator.

    ``setting`` is the key that enables it.
    """

    def __init__(self, setting: str, sentence: str) -> None:
        super().__init__(sentence)
        self.setting = setting


class Telemetry:
    """The recorders of telemetry and their destinations, from the start to ``close``.

    ``tracing`` records spans; ``lines`` takes log lines and is None where they are not shipped.
    """

    def __init__(self, tracing: Spans, lines: Lines | None, providers: Providers) -> None:
        self.tracing = tracing
        self.lines = lines
        self._providers = providers
        self._closed = False

    async def close(self, patience: float = PATIENCE) -> bool:
        """Export the rest within ``patience`` seconds, and end. Returns False if these were too few. Idempotent."""
        if self._closed:
            return True
        self._closed = True
        ends = [_ended(each.shutdown) for each in self._providers if each is not None]
        _, late = await asyncio.wait(ends, timeout=patience)
        return not late


def _ended(shutdown: Callable[[], object]) -> asyncio.Future[None]:
    """Call it in a thread; the result has come when it has returned."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        with contextlib.suppress(Exception):  # of readers that ran out of time
            shutdown()
        # A loop that did not wait for it may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set_result, None)

    # Not a thread of the loop's pool: the interpreter would wait for that one, however long a collector takes.
    threading.Thread(target=end, name="telemetry-end", daemon=True).start()
    return ended


def require_telemetry(settings: Settings) -> None:
    """Raise TelemetryMissing where ``open_telemetry`` would for want of a library; nothing is opened."""
    if not settings.enabled:
        return
    try:
        # First, because parts of the extra are missing in the order of their imports, which tells nobody anything.
        import opentelemetry.sdk  # noqa: F401  (loaded)

        from adapter.telemetry import exporting

        exporting.exporter_types(settings)
    except ModuleNotFoundError as missing:
        raise TelemetryMissing(
            "telemetry.enabled",
            f"needs the extra telemetry ({missing.name} is not installed): {install_line('telemetry')}",
        ) from None


def open_telemetry(
    settings: Settings,
    *,
    redact: Callable[[str], str],
    fault: Fault,
    registry: MetricRegistry | None = None,
) -> Telemetry | None:
    """Build telemetry as the settings have it, exporting from now on; None where it is off.

    The metrics of a ``registry`` are exported too. ``redact`` removes secrets from a text. ``fault`` returns the
    exception that makes a span an error, None for a refusal. Raises TelemetryMissing.
    """
    if not settings.enabled:
        return None
    require_telemetry(settings)
    from adapter.telemetry import exporting, signals

    try:
        providers = exporting.open_providers(settings, registry)
    except Exception as refused:
        # Exporters read variables of the environment and files that those name, and raise whatever they like.
        raise TelemetryMissing(
            "telemetry", f"cannot be opened: {redact(str(refused)) or type(refused).__name__}"
        ) from refused
    redaction = signals.AttributeRedaction(redact)
    return Telemetry(
        signals.Spans(providers.traces.get_tracer(exporting.SCOPE), redaction, fault),
        None
        if providers.logs is None
        else signals.Lines(providers.logs.get_logger(exporting.SCOPE), redaction),
        providers,
    )
