"""The catalogue of metrics: each one that the adapter counts, by the part that it is about.

The names that begin with ``adapter_`` and stand in the first half of a group are those of remote-mcp-adapter, whose
users have them in dashboards and alerts. ``mcp_server_operation_duration_seconds`` and
``mcp_client_operation_duration_seconds`` follow OpenTelemetry's semantic conventions for MCP
(open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md). ``python -m tests.metrics_table`` writes the table of
``docs/telemetry.md`` from this module.
"""

from __future__ import annotations

from adapter.rules.metrics.metric import OPERATIONS, Metric, counter, gauge, histogram

OTHER = "other"
"""The label in place of one that is not known, or above a bound."""

# --- HTTP -------------------------------------------------------------------------------------------------------

HTTP_REQUESTS = counter(
    "adapter_http_requests_total",
    *("server_id", "method", "route_group", "status_class"),
    meaning="HTTP requests that were answered, or whose clients left (status_class `none`).",
)
HTTP_DURATION = histogram(
    "adapter_http_request_duration_seconds",
    *("server_id", "method", "route_group", "status_class"),
    meaning="Time from the head of an HTTP request to the last byte of its answer.",
)
AUTH_REJECTIONS = counter(
    "adapter_auth_rejections_total",
    *("server_id", "reason", "route_group"),
    meaning="Requests that were refused with 401 or 403; `reason` is the code of the error.",
)
REJECTIONS = counter(
    "adapter_request_rejections_total",
    *("server_id", "reason", "route_group"),
    meaning="Requests that ended with any other error of the adapter; `reason` is its code.",
)
HTTP_IN_FLIGHT = gauge(
    "adapter_http_requests_in_flight", "route_group", meaning="HTTP requests that are being answered."
)
HTTP_CONNECTIONS = gauge("adapter_http_connections", meaning="Open connections of clients.")
REQUEST_BYTES = counter(
    "adapter_http_request_body_bytes_total",
    *("server_id", "route_group"),
    meaning="Bytes of bodies that clients sent.",
    unit="By",
)
RESPONSE_BYTES = counter(
    "adapter_http_response_body_bytes_total",
    *("server_id", "route_group"),
    meaning="Bytes of bodies that clients were sent.",
    unit="By",
)

# --- calls ------------------------------------------------------------------------------------------------------

TOOL_CALLS = counter(
    "adapter_upstream_tool_calls_total",
    *("server_id", "tool_name", "outcome"),
    meaning="Calls of tools, also of hosted ones and over the HTTP API. `outcome`: `ok`, `tool_error` (the tool "
    "says so in its result), `rpc_error` (the server refused), `client_gone`, or the code of the adapter's error.",
)
TOOL_CALL_DURATION = histogram(
    "adapter_upstream_tool_call_duration_seconds",
    *("server_id", "tool_name", "outcome"),
    meaning="Time from the arrival of a call to the last byte of its result.",
)
_OPERATION = (
    "server_id",
    "method",
    "tool_name",
    "error_type",
    "status_code",
    "protocol_version",
    "transport",
)
_OPERATION_ATTRIBUTES = (
    *("server_id", "mcp.method.name", "gen_ai.tool.name", "error.type", "rpc.response.status_code"),
    *("mcp.protocol.version", "network.transport"),
)
SERVER_OPERATION = Metric(
    "mcp_server_operation_duration_seconds",
    "histogram",
    _OPERATION,
    "Time of an MCP request or notification of a client, from its arrival to the last byte of its answer.",
    "s",
    OPERATIONS,
    exported="mcp.server.operation.duration",
    attributes=_OPERATION_ATTRIBUTES,
)
CLIENT_OPERATION = Metric(
    "mcp_client_operation_duration_seconds",
    "histogram",
    _OPERATION,
    "Time of an MCP request or notification to an upstream, the adapter's own included.",
    "s",
    OPERATIONS,
    exported="mcp.client.operation.duration",
    attributes=_OPERATION_ATTRIBUTES,
)
CALLS_IN_FLIGHT = gauge(
    "adapter_mcp_requests_in_flight",
    "server_id",
    meaning="MCP requests that wait for the end of their answer.",
)
OPEN_STREAMS = gauge(
    "adapter_open_streams", "server_id", meaning="Streams of server messages that clients hold open."
)

# --- upstreams --------------------------------------------------------------------------------------------------

PINGS = counter(
    "adapter_upstream_ping_total",
    "server_id",
    "result",
    meaning="Pings of upstreams: `success` or `failure`.",
)
PING_LATENCY = histogram(
    "adapter_upstream_ping_latency_seconds",
    "server_id",
    "result",
    meaning="Time until a ping was answered or failed.",
)
BREAKER_STATE = gauge(
    "adapter_upstream_circuit_breaker_state",
    "server_id",
    meaning="Circuit breaker of an upstream: 0 closed, 1 half-open, 2 open.",
    merged="max",
)

# --- the process ------------------------------------------------------------------------------------------------

LOOP_LAG = histogram(
    "adapter_event_loop_lag_seconds", meaning="Time by which a timer of the event loop was late, each second."
)
BUILD_INFO = gauge(
    "adapter_build_info", "version", "python", meaning="Always 1; the labels tell the build.", merged="max"
)

CATALOGUE: tuple[Metric, ...] = tuple(
    sorted(
        (each for each in globals().copy().values() if isinstance(each, Metric)), key=lambda each: each.name
    )
)
"""All metrics, by name."""
