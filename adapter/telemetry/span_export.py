"""The way of request spans to the collector: a queue, a thread of its own, and one request for each batch.

Nobody waits for it. While a collector is away, is slow or never answers, the queue stays full and its oldest spans are
dropped; the answer of a collector is read up to some kilobytes, and none of it is kept.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from adapter.telemetry.request_spans import RequestSpan
from adapter.telemetry.span_encoding import SpanEncoding

READ_AT_MOST = 64 << 10
"""Bytes of a collector's answer that are read, so that its connection can serve again."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
"""Seconds between two attempts to deliver one batch; each pause is twice as long as the one before."""

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""The method of OTLP over gRPC."""

_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP allows another attempt ("Retryable Response Codes")."""


class SpanSender(Protocol):
    """Delivers one export, an ExportTraceServiceRequest of OTLP."""

    def send(self, request: bytes, within: float) -> bool:
        """Deliver it within about so many seconds. Returns False where it may be sent again; never raises OSError."""

    def close(self) -> None:
        """Give up what is under way."""


class SpanQueue:
    """Holds at most ``most`` spans until they are exported in batches, at the latest after ``every`` seconds.

    Whoever appends to ``spans`` calls ``wake`` where there are ``batch`` of them, now or soon after.

    ``is_open`` is asked before each export, and ``timeout`` (seconds) bounds all attempts for one batch.
    """

    def __init__(
        self,
        encoding: SpanEncoding,
        sender: SpanSender,
        is_open: Callable[[], bool],
        *,
        most: int,
        batch: int,
        every: float,
        timeout: float,
    ) -> None:
        self._encoding = encoding
        self._sender = sender
        self._is_open = is_open
        self.batch = min(batch, most)
        self._every = every
        self._timeout = timeout
        # Its own limit drops the oldest, in one step that no other thread can come between.
        self.spans: deque[RequestSpan] = deque(maxlen=most)
        self._filled = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry-spans", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<SpanQueue: {len(self.spans)} wait>"

    def wake(self) -> None:
        """Have a batch exported soon."""
        if not self._filled.is_set():
            self._filled.set()

    def shutdown(self, within: float) -> None:
        """Export the rest while the gate is open, and end. Blocks at most ``within`` seconds and the time of one
        export.
        """
        self._ending.set()
        self._filled.set()
        # A collector may answer a byte at a time; the thread is not waited for any longer, and ends with the process.
        self._thread.join(within + self._timeout)
        self._sender.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            full = self._filled.wait(self._every)
            self._filled.clear()
            self._export(self.batch if full else 1)
        self._export(1)

    def _export(self, least: int) -> None:
        """Export in batches while so many spans wait."""
        spans = self.spans
        while len(spans) >= least and self._is_open():
            count = min(self.batch, len(spans))
            taken = [spans.popleft() for _ in range(count)]
            # A span that cannot be written down must not end the thread.
            with contextlib.suppress(Exception):
                self._deliver(self._encoding(taken))

    def _deliver(self, request: bytes) -> None:
        end, pause = time.monotonic() + self._timeout, FIRST_PAUSE
        while not self._sender.send(request, max(0.1, end - time.monotonic())):
            if time.monotonic() + pause >= end or self._ending.wait(pause) or not self._is_open():
                return
            pause = min(2 * pause, LONGEST_PAUSE)


class HttpSender:
    """Sends to a URL with protobuf. The variables of the environment for certificates and proxies apply."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        import requests

        self._failures = requests.RequestException
        self._url = url
        self._session = requests.Session()
        self._session.headers.update(_from_environment("HEADERS"))
        self._session.headers.update({**headers, "content-type": "application/x-protobuf"})
        trusted = _variable("CERTIFICATE")
        own, key = _variable("CLIENT_CERTIFICATE"), _variable("CLIENT_KEY")
        self._options: dict[str, Any] = {
            "verify": trusted or True,
            "cert": (own, key) if own and key else own,
        }

    def send(self, request: bytes, within: float) -> bool:
        """See SpanSender."""
        try:
            answer = self._session.post(
                self._url,
                request,
                timeout=within,
                stream=True,
                allow_redirects=False,
                **self._options,
            )
            with answer:
                answer.raw.read(READ_AT_MOST)
                return answer.status_code not in _AGAIN
        except (self._failures, OSError, ValueError):
            return False
        except Exception as error:
            # What urllib3 raises while an answer is read is none of the above.
            return type(error).__module__.partition(".")[0] != "urllib3"

    def close(self) -> None:
        """See SpanSender."""
        self._session.close()


class GrpcSender:
    """Sends over gRPC to ``host:port``. The variables of the environment for certificates apply."""

    def __init__(self, target: str, headers: Mapping[str, str], *, insecure: bool) -> None:
        import grpc  # type: ignore[import-untyped]  # it comes without types

        self._failure = grpc.RpcError
        self._final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}
        self._final |= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
        self._headers = tuple({**_from_environment("HEADERS"), **headers}.items())
        self._channel = (
            grpc.insecure_channel(target)
            if insecure
            else grpc.secure_channel(
                target,
                grpc.ssl_channel_credentials(
                    _read(_variable("CERTIFICATE")),
                    _read(_variable("CLIENT_KEY")),
                    _read(_variable("CLIENT_CERTIFICATE")),
                ),
            )
        )
        # Without functions that make messages of bytes: they are bytes.
        self._export = self._channel.unary_unary(EXPORT)

    def send(self, request: bytes, within: float) -> bool:
        """See SpanSender."""
        try:
            self._export(request, timeout=within, metadata=self._headers)
        except self._failure as error:
            return error.code() in self._final
        return True

    def close(self) -> None:
        """See SpanSender."""
        self._channel.close()


def _variable(name: str) -> str | None:
    """OpenTelemetry's variable for traces, or else for all signals; None where neither is set."""
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(
        f"OTEL_EXPORTER_OTLP_{name}"
    )
    return found or None


def _from_environment(name: str) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    return dict(parse_env_headers(_variable(name) or "", liberal=True))


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
