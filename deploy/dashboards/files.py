"""Files: what is uploaded and downloaded, and the room that is left."""

from __future__ import annotations

from deploy.dashboards.grafana import Dashboard, Panel, Query, Row
from deploy.dashboards.queries import increase, quantiles, rate

ROOM = Row(
    "Room",
    (
        Panel(
            "Room in use",
            "Share of storage.max_size that files take. Empty without that setting.",
            (
                Query(
                    "max by (job) (adapter_file_bytes{$of_process} / (adapter_file_bytes_limit{$of_process} > 0))",
                    "{{job}}",
                ),
            ),
            unit="percentunit",
            kind="stat",
            warn=0.8,
            alarm=0.95,
        ),
        Panel(
            "Files",
            "Files that are kept. Replicas that share a folder know the same files.",
            (Query("max by (job) (adapter_files{$of_process})", "{{job}}"),),
            kind="stat",
        ),
        Panel(
            "Uploads that failed",
            "Uploads that were refused or failed in the chosen time.",
            (Query("sum(increase(adapter_upload_failures_total{$of_server}[$__range])) or vector(0)"),),
            kind="stat",
            warn=1,
        ),
        Panel(
            "Bytes of files",
            "Bytes of all files that a process knows, and the most that storage.max_size allows.",
            (
                Query("adapter_file_bytes{$of_process}", "{{instance}}"),
                Query("max(adapter_file_bytes_limit{$of_process} > 0)", "limit"),
            ),
            unit="bytes",
            width=12,
        ),
        Panel(
            "Evictions",
            "Files that were removed to make room for newer ones.",
            (increase("adapter_file_evictions_total{$of_process}", "kind"),),
            width=12,
        ),
    ),
)

UPLOADS = Row(
    "Uploads",
    (
        Panel(
            "Uploads",
            "Uploads per second that were kept. One may have several files.",
            (
                rate("adapter_upload_batches_total{$of_server}", "server_id"),
                rate("adapter_upload_files_total{$of_server}", name="files"),
            ),
            unit="ops",
        ),
        Panel(
            "Bytes uploaded",
            "Bytes per second of uploaded files.",
            (rate("adapter_upload_bytes_total{$of_server}", "server_id"),),
            unit="Bps",
        ),
        Panel(
            "Failures of uploads",
            "Uploads that were refused or failed, by the code of the error.",
            (increase("adapter_upload_failures_total{$of_server}", "server_id", "reason"),),
            stacked=True,
        ),
        Panel(
            "Signed URLs of uploads",
            "URLs that were issued, and uses of them that were right or refused, per second.",
            (rate("adapter_upload_credentials_total{$of_server}", "operation", "result"),),
            unit="ops",
        ),
        Panel(
            "One-time use of URLs",
            "Checks per second of URLs that are good for one use. used: somebody tried again.",
            (rate("adapter_nonce_operations_total{$of_server}", "operation", "result"),),
            unit="ops",
        ),
    ),
)

DOWNLOADS = Row(
    "Downloads",
    (
        Panel(
            "Downloads",
            "Downloads and reads of artifacts per second: ok, or the code of the error.",
            (rate("adapter_artifact_downloads_total{$of_server}", "server_id", "result"),),
            unit="ops",
        ),
        Panel(
            "Bytes downloaded",
            "Bytes per second of downloaded artifacts.",
            (rate("adapter_artifact_download_bytes_total{$of_server}", "server_id"),),
            unit="Bps",
        ),
        Panel(
            "Duration of downloads",
            "Time until the last byte of a download. Half are faster than p50, 1 % are slower than p99.",
            quantiles("adapter_artifact_download_duration_seconds{$of_server}"),
            unit="s",
        ),
    ),
)

FILES = Dashboard(
    "mcp-adapter-files",
    "MCP adapter / Files",
    "Uploads, downloads, bytes against the quota, and evictions.",
    (ROOM, UPLOADS, DOWNLOADS),
)
