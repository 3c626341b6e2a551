"""The port of whoever records spans, and what OpenTelemetry's conventions for MCP say of the span of a message."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol

from adapter.rules.calls.request_outcomes import RequestOutcome
from adapter.rules.results.refusals import public_line
from adapter.rules.text.unicode import shown

Value = str | int | float | bool
Attributes = Mapping[str, Value]

LONGEST_NAME: Final = 128
"""Characters of a method or a name that a span is told: they come from clients."""

CUT = "cut"
"""The error of an exchange that ended before its answer was complete."""

ODD = "_OTHER"
"""An error whose code is no integer that JSON-RPC knows."""

NAMED_BY = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The methods with a name that may be told, and the attribute for it. Other names are URIs."""


class Span(Protocol):
    """One piece of work that is timed, until ``end`` or the end of its ``with``. Attributes never hold arguments."""

    @property
    def traceparent(self) -> str:
        """The value of the field that makes another span its child."""

    def set(self, key: str, value: Value) -> None:
        """Note something; values pass redaction."""

    def fail(self, error: BaseException) -> None:
        """Note that this ended the work, though it does not leave the block. A refusal makes no error of it."""

    def end(self, error: str = "", message: str = "") -> None:
        """End it; with an ``error``, a kind of which there are few, as failed. A kind that was noted before stays."""

    def __enter__(self) -> Span:
        """Return the span itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it. What leaves the block counts as ``fail`` says."""


class Tracer(Protocol):
    """Begins spans. Each is a child of the one that is current, which it is also in tasks that were started within."""

    def span(self, name: str, attributes: Attributes) -> Span:
        """A span around a block, which is current in it."""

    def server_span(
        self,
        name: str,
        attributes: Attributes,
        *traceparents: object,
        request_id: str | int | float | None = None,
    ) -> Span:
        """The span of a request from outside, which is current until it ends. The first of ``traceparents`` that is
        well-formed names its parent, another one becomes a link.
        """

    def client_span(
        self, name: str, attributes: Attributes, request_id: str | int | float | None
    ) -> Span | None:
        """The span of a request to another server, which is never current; None for one that is not recorded, or
        belongs to no trace that is.
        """

    def current(self) -> Span:
        """The span that is current; one that records nothing outside of any."""

    def trace_id(self) -> str | None:
        """The current trace in hexadecimal digits, None outside of any."""

    def recorded_trace(self) -> str | None:
        """The same, and None too for a trace that is not sampled."""


@functools.lru_cache(1024)
def message_facts(method: str, name: str | None, version: str | None) -> tuple[str, Attributes]:
    """The name of a message's span, and the attributes that are the same for all alike.

    They are kept, so whoever asks cuts these to ``LONGEST_NAME`` and one more, and gives no ``name`` that is none of
    ``NAMED_BY``.
    """
    method = shown(method, LONGEST_NAME)
    attributes: dict[str, Value] = {"mcp.method.name": method}
    if version is not None:
        attributes["mcp.protocol.version"] = shown(version, LONGEST_NAME)
    if name is not None:
        name = shown(name, LONGEST_NAME)
    if method == "tools/call":
        attributes |= {"gen_ai.operation.name": "execute_tool", "tool.name": name or ""}
    if name is None:
        return public_line(method), attributes
    return public_line(f"{method} {name}"), {**attributes, NAMED_BY[method]: name}


def error_of(outcome: RequestOutcome) -> str:
    """The kind of error that a span is told; "" for an answer without one."""
    kind, code = outcome
    if isinstance(code, type):
        return code.code
    if kind == "rpc_error":
        return ODD if code is None else str(code)
    return str(code) if kind == "http" else {"tool_error": kind, "client_gone": CUT}.get(kind, "")
