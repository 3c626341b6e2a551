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
    meaning="Requests that ended with any other error of the adapter; `reason` is its code, or `http_` and the status "
    "of bytes that were no request.",
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
TOOL_CACHE_LOOKUPS = counter(
    "adapter_tool_cache_lookups_total",
    *("server_id", "result"),
    meaning="Calls for which a tool's cache was asked: `hit` or `miss`.",
)
TOOL_AUTH_FAILURES = counter(
    "adapter_tool_auth_failures_total",
    "server_id",
    meaning="Calls that a tool's own authentication refused.",
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

UPSTREAM_CONNECTIONS = gauge(
    "adapter_upstream_connections",
    *("server_id", "state"),
    meaning="Connections to an upstream over HTTP: `busy` or `idle`.",
)
UPSTREAM_CONNECTIONS_USED = counter(
    "adapter_upstream_connections_used_total",
    *("server_id", "kind"),
    meaning="Requests to an upstream over HTTP, by their connection: `new`, or `kept` from an earlier one.",
)
WIRING_RUNS = counter(
    "adapter_adapter_wiring_runs_total",
    *("server_id", "result"),
    meaning="Looks for the tools that are configured for a server: `ready`, `missing` (it lacks some), `refused` "
    "(it shows the adapter no list) or `failed`.",
)
WIRING_NOT_READY = gauge(
    "adapter_adapter_wiring_not_ready_servers",
    meaning="Servers that lack configured tools, or have not shown their list yet.",
    merged="max",
)

# --- files ------------------------------------------------------------------------------------------------------

UPLOAD_BATCHES = counter("adapter_upload_batches_total", "server_id", meaning="Uploads that were kept.")
UPLOAD_FILES = counter("adapter_upload_files_total", "server_id", meaning="Files in these uploads.")
UPLOAD_BYTES = counter("adapter_upload_bytes_total", "server_id", meaning="Bytes of these files.", unit="By")
UPLOAD_FAILURES = counter(
    "adapter_upload_failures_total",
    *("server_id", "reason"),
    meaning="Uploads that were refused or failed; `reason` is the code of the error.",
)
UPLOAD_CREDENTIALS = counter(
    "adapter_upload_credentials_total",
    *("server_id", "operation", "result"),
    meaning="Signed upload URLs: `issue` and `validate`, `ok` or `refused`.",
)
NONCES = counter(
    "adapter_nonce_operations_total",
    *("server_id", "operation", "result", "backend"),
    meaning="One-time use of upload URLs: `check`, `spend` and `give_back`, `ok` or `used`.",
)
ARTIFACT_DOWNLOADS = counter(
    "adapter_artifact_downloads_total",
    *("server_id", "result"),
    meaning="Downloads of files over HTTP, and reads of artifacts as resources: `ok`, or the code of the error.",
)
ARTIFACT_BYTES = counter(
    "adapter_artifact_download_bytes_total",
    "server_id",
    meaning="Bytes of the bodies of these answers.",
    unit="By",
)
ARTIFACT_DURATION = histogram(
    "adapter_artifact_download_duration_seconds",
    *("server_id", "result"),
    meaning="Time until the last byte of such an answer.",
)
FILE_BYTES = gauge("adapter_file_bytes", meaning="Bytes of all files that this process knows.", unit="By")
FILES = gauge("adapter_files", meaning="Files that this process knows.")
FILE_BYTES_LIMIT = gauge(
    "adapter_file_bytes_limit",
    meaning="`storage.max_size`; 0 without that setting.",
    unit="By",
    merged="max",
)
EVICTIONS = counter(
    "adapter_file_evictions_total", "kind", meaning="Files that were removed to make room for newer ones."
)

# --- sessions, state and cleanup --------------------------------------------------------------------------------

SESSION_EVENTS = counter(
    "adapter_sessions_lifecycle_total",
    *("server_id", "event"),
    meaning="Sessions that were `created`, `renewed` at their upstream, `idle`, `revived` after that, `ended` by "
    "their client, or `revoked` because of drift.",
)
SESSIONS = gauge("adapter_sessions_open", meaning="Open sessions that were used lately.")
DRIFT = counter(
    "adapter_tool_definition_drift_total",
    *("server_id", "mode", "action"),
    meaning="Drift of tool definitions: `found`, a call or list `refused` for it, or a `session_ended` by it.",
)
CLEANUP_CYCLES = counter(
    "adapter_cleanup_cycles_total",
    *("task", "outcome"),
    meaning="Parts of cleanup rounds that ended: `success` or `failure`.",
)
CLEANUP_REMOVED = counter(
    "adapter_cleanup_removed_records_total",
    "bucket",
    meaning="Rows that the cleanup removed from the state store, by table.",
)
PERSISTENCE = counter(
    "adapter_persistence_policy_transitions_total",
    *("action", "source"),
    meaning="Steps of `state_persistence.unavailable_policy`: `fallback_activated` and `fallback_ended`, or "
    "`unavailable` and `recovered` with another policy; `source` is `startup` or `runtime`.",
)
STORE_DURATION = histogram(
    "adapter_state_store_duration_seconds",
    *("operation", "result"),
    meaning="Time of one operation of the state store; `result` is `ok`, `conflict` or `unavailable`.",
)
REPLICAS = gauge("adapter_replicas", meaning="Other replicas that this one sees.", merged="max")
FORWARDED = counter(
    "adapter_forwarded_requests_total",
    *("server_id", "result"),
    meaning="Requests that were forwarded to the replica that owns their session: `ok`, or `lost` where it has gone.",
)
GRANTS = gauge(
    "adapter_grants", meaning="Grants of people for upstreams, those of all replicas.", merged="max"
)

# --- queues and buffers -----------------------------------------------------------------------------------------

QUEUE_WAITS = histogram(
    "adapter_queue_wait_seconds",
    *("queue", "result"),
    meaning="Time in a queue: `upload`, or `upstream` for a connection; `result` is `ok` or `refused`.",
)
BUFFERED = gauge(
    "adapter_request_buffer_bytes", meaning="Bytes of request bodies that are held in memory.", unit="By"
)
BUFFER_LIMIT = gauge(
    "adapter_request_buffer_limit_bytes",
    meaning="Bytes above which readers of bodies wait: `core.max_buffered_bytes` of each worker.",
    unit="By",
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
