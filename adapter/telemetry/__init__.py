"""Spans, metrics and log lines over OTLP, and metrics for Prometheus.

``open_telemetry`` is the entrance to OTLP; ``signals`` records, ``exporting`` sends. ``metric_registry`` keeps the
numbers of the catalogue (``adapter/rules/metrics``) and writes them for a scrape, ``otlp_metrics`` adds
them to exports, and ``worker_values`` shares them among workers. None of these is imported unless the settings ask for
it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from adapter.settings.telemetry import TelemetrySettings as Settings

if TYPE_CHECKING:
    from adapter.telemetry.exporting import Exports
    from adapter.telemetry.metric_registry import MetricRegistry
    from adapter.telemetry.request_spans import RequestSpans
    from adapter.telemetry.signals import Fault, Lines, Spans


class TelemetryMissing(Exception):
    """Telemetry is enabled and cannot be used; ``str(error)`` is a message for the operator.

    ``setting`` is the key that enables it.
    """

    def __init__(self, setting: str, sentence: str) -> None:
        super().__init__(sentence)
        self.setting = setting


class Telemetry:
    """The recorders of telemetry and their destinations, from the start to ``close``.

    ``tracing`` records spans, ``requests`` those of relayed requests; ``lines`` takes log lines and is None where they
    are not shipped.
    """

    def __init__(
        self,
        tracing: Spans,
        requests: RequestSpans,
        lines: Lines | None,
        exports: Exports,
        settings: Settings,
    ) -> None:
        self.tracing = tracing
        self.requests = requests
        self.lines = lines
        self._exports = exports
        self._patience = settings.shutdown_drain_timeout_seconds
        self._closed = False
        atexit.register(self._terminate)

    def __repr__(self) -> str:
        return f"<Telemetry: {'closed' if self._closed else 'open'}>"

    async def close(self) -> bool:
        """Export the rest within telemetry.shutdown_drain_timeout_seconds, and end. Returns False if the time was too
        short. Idempotent.
        """
        if self._closed:
            return True
        self._closed = True
        atexit.unregister(self._terminate)
        loop = asyncio.get_running_loop()
        drained: asyncio.Future[bool] = loop.create_future()

        def drain() -> None:
            in_time = self._exports.drain(self._patience)
            try:
                loop.call_soon_threadsafe(_settle, drained, in_time)
            except RuntimeError:
                # The loop did not wait for us and has ended.
                return

        # Not a thread of the loop's pool: the interpreter would wait for that one, however long a collector takes.
        threading.Thread(target=drain, name="telemetry-drain", daemon=True).start()
        try:
            return await asyncio.wait_for(drained, self._patience)
        except TimeoutError:
            return False

    def _terminate(self) -> None:
        # Not in a thread: none can be started this late.
        self._exports.drain(self._patience)


def require_telemetry(settings: Settings) -> None:
    """Raise TelemetryMissing where ``open_telemetry`` would for want of a library; nothing is opened."""
    if not settings.enabled:
        return
    try:
        # First, because parts of the extra are missing in the order of their imports, which tells nobody anything.
        import opentelemetry.sdk  # noqa: F401  (loaded)

        from adapter.telemetry import exporting

        exporting.load_exporters(settings)
    except ModuleNotFoundError as missing:
        raise TelemetryMissing(
            "telemetry.enabled",
            f"needs the extra telemetry ({missing.name} is not installed): "
            "pip install 'mcp-file-adapter[telemetry]'",
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
    from adapter.telemetry.request_spans import RequestSpans

    try:
        exports = exporting.exports(settings, registry)
    except Exception as refused:
        # Exporters read variables of the environment and files that those name, and raise whatever they like.
        raise TelemetryMissing(
            "telemetry", f"cannot be opened: {redact(str(refused)) or type(refused).__name__}"
        ) from refused
    redaction = signals.AttributeRedaction(redact)
    return Telemetry(
        signals.Spans(exports.traces.get_tracer(exporting.SCOPE), redaction, fault),
        RequestSpans(exports.queue.on_end, exports.traces.sampler, redaction),
        None if exports.logs is None else signals.Lines(exports.logs.get_logger(exporting.SCOPE), redaction),
        exports,
        settings,
    )


def _settle(drained: asyncio.Future[bool], in_time: bool) -> None:
    if not drained.done():
        drained.set_result(in_time)
