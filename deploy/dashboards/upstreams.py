"""The servers behind the adapter: can they be reached, how fast do they answer, and did their tools change."""

from __future__ import annotations

from deploy.dashboards.grafana import Dashboard, Panel, Query, Row
from deploy.dashboards.queries import increase, p95, quantiles, rate, total

BREAKER = {0: "closed", 1: "half-open", 2: "open"}

HEALTH = Row(
    "Health",
    (
        Panel(
            "Circuit breaker",
            "closed: calls go through. open: the server does not answer, and calls are refused at once. half-open: the "
            "next ping decides.",
            (
                Query(
                    "max by (server_id) (adapter_upstream_circuit_breaker_state{$of_server})", "{{server_id}}"
                ),
            ),
            unit="none",
            kind="stat",
            warn=1,
            alarm=2,
            words=BREAKER,
        ),
        Panel(
            "Servers that lack configured tools",
            "Servers that do not have a tool which the settings name, or have not shown their list of tools yet.",
            (Query("max(adapter_adapter_wiring_not_ready_servers{$of_process})"),),
            kind="stat",
            warn=1,
        ),
        Panel(
            "Tools that changed",
            "Drift of tool definitions in the chosen time: found, a call or list refused for it, or a session ended "
            "by it.",
            (increase("adapter_tool_definition_drift_total{$of_server}", "action", over="$__range"),),
            kind="stat",
            warn=1,
        ),
        Panel(
            "Pings",
            "Pings of servers per second, by their result.",
            (rate("adapter_upstream_ping_total{$of_server}", "server_id", "result"),),
            unit="ops",
        ),
        Panel(
            "Duration of pings (p95)",
            "95 % of the pings were answered, or failed, in less time.",
            (p95("adapter_upstream_ping_latency_seconds{$of_server}", "server_id"),),
            unit="s",
        ),
        Panel(
            "Looks for configured tools",
            "Looks at a server's list of tools, by their result. missing: it lacks some. refused: it shows the "
            "adapter no list.",
            (increase("adapter_adapter_wiring_runs_total{$of_server}", "server_id", "result"),),
        ),
    ),
)

TOOLS = Row(
    "Tools",
    (
        Panel(
            "Calls by tool",
            "The twenty tools with most calls per second. Tools above a bound are called other.",
            (
                Query(
                    "topk(20, sum by (server_id, tool_name) "
                    "(rate(adapter_upstream_tool_calls_total{$of_server}[$__rate_interval])))",
                    "{{server_id}} {{tool_name}}",
                ),
            ),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Slowest tools (p95)",
            "The ten tools whose slowest 5 % of calls take longest.",
            (
                Query(
                    "topk(10, histogram_quantile(0.95, sum by (le, server_id, tool_name) "
                    "(rate(adapter_upstream_tool_call_duration_seconds_bucket{$of_server}[$__rate_interval]))))",
                    "{{server_id}} {{tool_name}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Tools with most failures",
            "The ten tools of which most calls per second did not end well, whatever the reason.",
            (
                Query(
                    "topk(10, sum by (server_id, tool_name, outcome) "
                    '(rate(adapter_upstream_tool_calls_total{$of_server,outcome!="ok"}[$__rate_interval])))',
                    "{{server_id}} {{tool_name}} {{outcome}}",
                ),
            ),
            unit="ops",
        ),
    ),
)

OPERATIONS = Row(
    "Operations to upstreams",
    (
        Panel(
            "Duration of operations to upstreams",
            "Time of MCP requests that the adapter sends to upstreams, its own included. Compare it with the "
            "duration of calls: the difference is spent in the adapter.",
            quantiles("mcp_client_operation_duration_seconds{$of_server}"),
            unit="s",
        ),
        Panel(
            "Duration by method (p95)",
            "95 % of the operations of a method took less time at the upstream.",
            (p95("mcp_client_operation_duration_seconds{$of_server}", "method"),),
            unit="s",
        ),
        Panel(
            "Failed operations",
            "Operations per second that failed at an upstream, by the kind of error.",
            (
                rate(
                    'mcp_client_operation_duration_seconds_count{$of_server,error_type!=""}',
                    "server_id",
                    "error_type",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Operations of clients by method",
            "MCP requests and notifications of clients per second.",
            (rate("mcp_server_operation_duration_seconds_count{$of_server}", "method"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Time in the adapter and upstream (mean)",
            "Mean time of tool calls as clients see them, and of the same at the upstreams.",
            (
                Query(
                    'sum(rate(mcp_server_operation_duration_seconds_sum{$of_server,method="tools/call"}[$__rate_interval]))'
                    ' / sum(rate(mcp_server_operation_duration_seconds_count{$of_server,method="tools/call"}'
                    "[$__rate_interval]))",
                    "clients",
                ),
                Query(
                    'sum(rate(mcp_client_operation_duration_seconds_sum{$of_server,method="tools/call"}[$__rate_interval]))'
                    ' / sum(rate(mcp_client_operation_duration_seconds_count{$of_server,method="tools/call"}'
                    "[$__rate_interval]))",
                    "upstreams",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Versions of the protocol",
            "MCP requests of clients per second, by the version of the protocol that they speak.",
            (rate("mcp_server_operation_duration_seconds_count{$of_server}", "protocol_version"),),
            unit="ops",
            stacked=True,
        ),
    ),
)

CONNECTIONS = Row(
    "Connections",
    (
        Panel(
            "Connections to upstreams",
            "Connections over HTTP: busy ones carry a request, idle ones wait for the next.",
            (total("adapter_upstream_connections{$of_server}", "server_id", "state"),),
            stacked=True,
        ),
        Panel(
            "New and kept connections",
            "Requests to upstreams per second, by their connection. Many new ones mean that an upstream closes them.",
            (rate("adapter_upstream_connections_used_total{$of_server}", "server_id", "kind"),),
            unit="ops",
        ),
        Panel(
            "Waits in queues (p95)",
            "95 % of those that had to wait for a connection, or for the room of an upload, waited less. refused: they "
            "waited in vain.",
            (p95("adapter_queue_wait_seconds{$of_process}", "queue", "result"),),
            unit="s",
        ),
    ),
)

UPSTREAMS = Dashboard(
    "mcp-adapter-upstreams",
    "MCP adapter / Upstreams",
    "Pings, circuit breakers, calls by tool, times of operations, connections, and drift.",
    (HEALTH, TOOLS, OPERATIONS, CONNECTIONS),
)
