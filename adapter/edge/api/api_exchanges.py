"""The records of what callers over HTTP asked of servers: one line each, as exchanges over MCP have."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from adapter.edge.api.catalogue_routes import CALL_FIELD
from adapter.edge.http.request import Request
from adapter.edge.mcp.endpoint import LONGEST_NAME
from adapter.edge.router import ExchangeRecords
from adapter.rules.text.unicode import shown

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ApiOutcome(NamedTuple):
    """The word for what came of a request, and its HTTP status."""

    word: str
    status: int

    @classmethod
    def of(cls, status: int | None) -> ApiOutcome:
        """The outcome of a request that was answered with ``status``; None for one without an answer."""
        if status is None:
            return UNANSWERED
        return cls("failed" if status >= 500 else "refused" if status >= 400 else "ok", status)


UNANSWERED = ApiOutcome("client_gone", 499)
"""What nobody took any more has no status of its own; 499 is what proxies write for it."""


class ApiExchanges:
    """Writes the lines to ``records``."""

    def __init__(self, records: ExchangeRecords) -> None:
        self._records = records

    def begin(self) -> float:
        """Begin the record of this task's exchange; returns the moment."""
        self._records.begin()
        return time.monotonic()

    def end_call(self, request: Request, server: str, tool: str, outcome: ApiOutcome, began: float) -> None:
        """Record a call of a tool, under the id that its caller gave it."""
        line = _line(request, server, "tools/call", outcome, began)
        line["name"] = shown(tool, LONGEST_NAME)
        given = request.headers.get(CALL_FIELD, "")
        if _CALL_ID.fullmatch(given):
            line["call"] = given
        self._records.write(request, server, line)

    @contextmanager
    def recorded(self, request: Request, server: str, method: str) -> Iterator[None]:
        """Record what is answered within the block as one request of ``method``, of which nothing else is kept."""
        began, outcome = self.begin(), UNANSWERED
        try:
            yield
            outcome = ApiOutcome.of(request.reply.status)
        finally:
            self._records.write(request, server, _line(request, server, method, outcome, began))


def _line(request: Request, server: str, method: str, outcome: ApiOutcome, began: float) -> dict[str, object]:
    return {
        "at": time.time(),
        "event": "exchange",
        "server": server,
        "http": request.method,
        "era": None,
        "method": method,
        "name": None,
        "status": outcome.status,
        "outcome": outcome.word,
        "ms": int((time.monotonic() - began) * 100_000) / 100,
        "entrance": "http",
    }
