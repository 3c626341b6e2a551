"""The process itself: its event loop, its memory for bodies, its state store, replicas and cleanup."""

from __future__ import annotations

from deploy.dashboards.grafana import Dashboard, Panel, Query, Row
from deploy.dashboards.queries import increase, p95, quantiles, rate

LOOP = Row(
    "Process",
    (
        Panel(
            "Build",
            "Versions of the adapter and of Python, with the number of processes of each.",
            (
                Query(
                    "count by (version, python) (adapter_build_info{$of_process})",
                    "{{version}}, Python {{python}}",
                ),
            ),
            kind="stat",
        ),
        Panel(
            "Other replicas",
            "Replicas that each process sees beside itself: one less than there are.",
            (Query("adapter_replicas{$of_process}", "{{instance}}"),),
            kind="stat",
        ),
        Panel(
            "Room for bodies in use",
            "Share of core.max_buffered_bytes that request bodies take in memory. At 100 %, readers of bodies wait.",
            (
                Query(
                    "adapter_request_buffer_bytes{$of_process} / (adapter_request_buffer_limit_bytes{$of_process} > 0)",
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
            kind="stat",
            warn=0.7,
            alarm=0.9,
        ),
        Panel(
            "Event-loop lag",
            "Time by which a timer was late. Above a tenth of a second, all calls of the process are slowed down: it "
            "has too little CPU time, or something computes for long.",
            quantiles("adapter_event_loop_lag_seconds{$of_process}", "instance"),
            unit="s",
        ),
        Panel(
            "Buffered bytes",
            "Bytes of request bodies in memory, and the bound above which readers wait.",
            (
                Query("adapter_request_buffer_bytes{$of_process}", "{{instance}}"),
                Query("adapter_request_buffer_limit_bytes{$of_process}", "{{instance}} limit"),
            ),
            unit="bytes",
        ),
        Panel(
            "Forwarded requests",
            "Requests per second that were forwarded to the replica which owns their session. lost: it has gone.",
            (rate("adapter_forwarded_requests_total{$of_server}", "server_id", "result"),),
            unit="reqps",
        ),
    ),
)

STATE = Row(
    "State store",
    (
        Panel(
            "Duration of state operations (p95)",
            "95 % of the operations of the state store took less time.",
            (p95("adapter_state_store_duration_seconds{$of_process}", "operation"),),
            unit="s",
        ),
        Panel(
            "State operations",
            "Operations of the state store per second.",
            (rate("adapter_state_store_duration_seconds_count{$of_process}", "operation"),),
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Conflicts and outages",
            "Operations per second that met a newer write of somebody else (conflict; they are repeated), or no "
            "store at all (unavailable).",
            (
                rate(
                    'adapter_state_store_duration_seconds_count{$of_process,result!="ok"}',
                    "operation",
                    "result",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Steps of state_persistence.unavailable_policy",
            "The store failed, or works again, and what the adapter does about it.",
            (
                increase(
                    "adapter_persistence_policy_transitions_total{$of_process}",
                    "action",
                    "source",
                    name="{{action}} at {{source}}",
                ),
            ),
        ),
        Panel(
            "Cleanup rounds",
            "Parts of cleanup rounds that ended, by their outcome.",
            (increase("adapter_cleanup_cycles_total{$of_process}", "task", "outcome"),),
        ),
        Panel(
            "Rows removed by the cleanup",
            "Rows that were removed from the state store, by table.",
            (increase("adapter_cleanup_removed_records_total{$of_process}", "bucket"),),
        ),
    ),
)

PROCESS = Dashboard(
    "mcp-adapter-process",
    "MCP adapter / Process and state",
    "Event-loop lag, memory for bodies, state store, replicas and cleanup.",
    (LOOP, STATE),
)
