"""The first page: traffic, calls, failures and times of everything together."""

from __future__ import annotations

from deploy.dashboards.grafana import Dashboard, Panel, Query, Row
from deploy.dashboards.queries import p95, quantiles, rate, total

FAILURES = (
    "upstream_.+|storage_.+|.+_unavailable|authorization_failed|credentials_missing|answer_too_large"
    "|buffers_full|call_lost|call_too_long|connections_taken|internal"
)
"""The codes of errors that are no mistake of the caller, as a regular expression of PromQL."""


NOW = Row(
    "Now",
    (
        Panel(
            "Adapters",
            "Processes of the adapter that Prometheus sees. With workers, one process counts for all of them.",
            (Query("count(adapter_build_info{$of_process})"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Calls",
            "Tool calls per second, of every kind.",
            (rate("adapter_upstream_tool_calls_total{$of_server}"),),
            unit="ops",
            kind="stat",
            width=4,
        ),
        Panel(
            "Calls that failed",
            "Share of tool calls that an upstream or the adapter could not answer. Mistakes of callers, and tools that "
            "report an error in their result, do not count.",
            (
                Query(
                    f'sum(rate(adapter_upstream_tool_calls_total{{$of_server,outcome=~"{FAILURES}"}}[$__rate_interval]))'
                    " / sum(rate(adapter_upstream_tool_calls_total{$of_server}[$__rate_interval]))"
                ),
            ),
            unit="percentunit",
            kind="stat",
            width=4,
            warn=0.01,
            alarm=0.05,
        ),
        Panel(
            "Upstreams not reachable",
            "Servers whose circuit breaker is open: their calls are refused until a ping succeeds.",
            (
                Query(
                    "count(max by (server_id) (adapter_upstream_circuit_breaker_state{$of_server}) == 2) or vector(0)"
                ),
            ),
            kind="stat",
            width=4,
            alarm=1,
        ),
        Panel(
            "Open sessions",
            "Sessions of clients that were used lately.",
            (total("adapter_sessions_open{$of_process}"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Calls in flight",
            "MCP requests that wait for the end of their answer.",
            (total("adapter_mcp_requests_in_flight{$of_server}"),),
            kind="stat",
            width=4,
        ),
    ),
)

CALLS = Row(
    "Calls of tools",
    (
        Panel(
            "Calls by server",
            "Tool calls per second, of each server.",
            (rate("adapter_upstream_tool_calls_total{$of_server}", "server_id"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Calls that did not end well",
            "Tool calls per second by their outcome: tool_error is a tool that reports an error in its result, "
            "rpc_error a server that refused the call, client_gone a client that did not wait; all others are codes "
            "of the adapter's errors.",
            (rate('adapter_upstream_tool_calls_total{$of_server,outcome!="ok"}', "outcome"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Duration of calls",
            "Time from the arrival of a call to the last byte of its result. Half of all calls are faster than p50, "
            "1 % are slower than p99. The points lead to traces, where traces are recorded.",
            quantiles("adapter_upstream_tool_call_duration_seconds{$of_server}", exemplars=True),
            unit="s",
        ),
        Panel(
            "Caches and authentication of tools",
            "Calls per second for which a tool's cache was asked, and those that a tool's own authentication refused.",
            (
                rate("adapter_tool_cache_lookups_total{$of_server}", "result"),
                rate("adapter_tool_auth_failures_total{$of_server}"),
            ),
            unit="ops",
        ),
    ),
)

HTTP = Row(
    "HTTP",
    (
        Panel(
            "Requests by route",
            "HTTP requests per second that were answered, by kind of route.",
            (rate("adapter_http_requests_total{$of_server}", "route_group"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Requests by status",
            "HTTP requests per second by the first digit of their status; none is a client that left before.",
            (rate("adapter_http_requests_total{$of_server}", "status_class"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Duration of requests (p95)",
            "95 % of the requests of a route took less time. A stream lasts until its end.",
            (p95("adapter_http_request_duration_seconds{$of_server}", "route_group"),),
            unit="s",
        ),
        Panel(
            "Refused for lack of rights",
            "Requests per second that were refused with 401 or 403, by the code of the error.",
            (rate("adapter_auth_rejections_total{$of_server}", "reason"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Other errors by code",
            "Requests per second that ended with another error of the adapter. docs/troubleshooting.md explains each "
            "code.",
            (rate("adapter_request_rejections_total{$of_server}", "reason"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Bytes of bodies",
            "Bytes per second that clients sent, and that they were sent.",
            (
                rate("adapter_http_request_body_bytes_total{$of_server}", name="received"),
                rate("adapter_http_response_body_bytes_total{$of_server}", name="sent"),
            ),
            unit="Bps",
        ),
    ),
)

OPEN = Row(
    "In flight",
    (
        Panel(
            "Requests in flight",
            "HTTP requests that are being answered, by kind of route, and the open connections of clients.",
            (
                total("adapter_http_requests_in_flight{$of_process}", "route_group"),
                total("adapter_http_connections{$of_process}", name="connections"),
            ),
        ),
        Panel(
            "Open streams",
            "Streams that clients hold open to hear from a server.",
            (total("adapter_open_streams{$of_server}", "server_id"),),
            stacked=True,
        ),
        Panel(
            "MCP requests in flight",
            "MCP requests of each server that wait for the end of their answer.",
            (total("adapter_mcp_requests_in_flight{$of_server}", "server_id"),),
            stacked=True,
        ),
        Panel(
            "Sessions",
            "What becomes of sessions, per second: created, renewed at their upstream, idle, revived, ended, revoked.",
            (rate("adapter_sessions_lifecycle_total{$of_server}", "event"),),
            unit="ops",
        ),
        Panel(
            "Open sessions",
            "Sessions that were used lately, in each process.",
            (Query("adapter_sessions_open{$of_process}", "{{instance}}"),),
            stacked=True,
        ),
        Panel(
            "Grants of people",
            "Permissions of people for the adapter to act for them at a server. All processes tell the same number.",
            (Query("max(adapter_grants{$of_process})", "grants"),),
        ),
    ),
)

OVERVIEW = Dashboard(
    "mcp-adapter-overview",
    "MCP adapter / Overview",
    "Requests, calls, errors by code, times, and what is open.",
    (NOW, CALLS, HTTP, OPEN),
)
