"""Metrics of a running adapter: calls of every kind, scraped in both forms and pushed to a collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from adapter.app.build import build
from adapter.app.run import running
from adapter.rules.metrics.catalogue import CATALOGUE
from adapter.settings.root import Settings
from tests.edge.conftest import StartUpstream
from tests.edge.file_tools import FORM, TOOLS, form, link_of, text_of
from tests.edge.raw import Exchange, RawClient, RawUpstream, result
from tests.edge.test_telemetry_metrics import Numbers, numbers
from tests.rules.metrics.test_catalogue import LABELS
from tests.state.shared import ReplicaStore, SharedMemory
from tests.telemetry.collectors import Collector, values

REFERENCE = {
    *("adapter_http_requests_total", "adapter_http_request_duration_seconds"),
    *("adapter_upload_batches_total", "adapter_upload_files_total"),
    *("adapter_upload_bytes_total", "adapter_auth_rejections_total"),
    *("adapter_upstream_tool_calls_total", "adapter_upstream_tool_call_duration_seconds"),
    *("adapter_upstream_ping_total", "adapter_upstream_ping_latency_seconds"),
    *("adapter_upstream_circuit_breaker_state", "adapter_persistence_policy_transitions_total"),
    *("adapter_nonce_operations_total", "adapter_upload_credentials_total"),
    *("adapter_artifact_downloads_total", "adapter_artifact_download_bytes_total"),
    *("adapter_artifact_download_duration_seconds", "adapter_upload_failures_total"),
    *("adapter_request_rejections_total", "adapter_adapter_wiring_runs_total"),
    *("adapter_adapter_wiring_not_ready_servers", "adapter_cleanup_cycles_total"),
    *("adapter_cleanup_removed_records_total", "adapter_sessions_lifecycle_total"),
}
"""The metrics that remote-mcp-adapter lists in its documentation, and its users in their dashboards."""

ELSEWHERE = {
    *("adapter_file_evictions_total", "adapter_forwarded_requests_total", "adapter_queue_wait_seconds"),
    *("adapter_tool_auth_failures_total", "adapter_tool_cache_lookups_total"),
}
"""Metrics of what is not done here: the tests of their parts show them."""

SECRETS = ("secret-of-an-agent", "private-argument", "note-of-ann.txt", "invented-tool")
TOKEN = {"authorization": f"Bearer {SECRETS[0]}"}
NAMES = ("read", "write", "name", "plain", "limited")
CODE = "async def answer(payload, context):\n    return payload['inputs']\n"


class Tools:
    """An upstream with tools that read and write files. ``changed``: one of them has another description."""

    changed = False

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        params = message.get("params", {})
        if message["method"] == "tools/list":
            described = {"description": "changed"} if self.changed else {}
            tools = [{"name": name, "inputSchema": {"type": "object"}, **described} for name in NAMES]
            answer: dict[str, Any] = {"result": {"tools": tools}}
        elif message["method"] == "tools/call" and params["name"] in NAMES:
            if params["name"] == "write":
                await asyncio.to_thread(Path(params["arguments"]["filename"]).write_bytes, b"chart")
            return await exchange.json(result(message["id"], "done"))
        else:
            answer = {"error": {"code": -32602, "message": "Unknown"}}
        return await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}))


def settings(place: Path, up: RawUpstream, collector: Collector) -> Settings:
    upstream = {"url": up.url}
    folded: dict[str, Any] = {
        "id": "folded",
        "mount_path": "/folded",
        "upstream": upstream,
        "code_mode_enabled": True,
    }
    staged: dict[str, Any] = {"limited": {"limits": {"rate": {"window": 60, "max": 1000}}}}
    hosted: dict[str, Any] = {"define": [{"name": "echo", "handler": "tools.py#answer"}]}
    return Settings.model_validate(
        {
            "core": {
                "port": 0,
                "shutdown_grace_seconds": 0,
                "cleanup_interval_seconds": 0.2,
                "allow_artifacts_download": True,
                "auth": {"enabled": True, "token": SECRETS[0], "signed_upload_ttl_seconds": 1},
            },
            "telemetry": {
                **{"enabled": True, "transport": "http", "endpoint": collector.url},
                "prometheus": {"enabled": True},
            },
            "state_persistence": {"unavailable_policy": "fallback_memory"},
            "storage": {"root": str(place)},
            "uploads": {"ttl_seconds": 0.5},
            "console": {"enabled": True, "allow_execute": True},
            "servers": [
                {"id": "raw", "mount_path": "/mcp", "upstream": upstream, **TOOLS, "stages": staged},
                folded,
                {"id": "shop", "mount_path": "/shop", "upstream": {"transport": "hosted"}, "tools": hosted},
            ],
        }
    )


async def until(client: RawClient, *key: str) -> Numbers:
    """The samples as soon as that one is there, and above 0."""
    async with asyncio.timeout(10):
        while not (found := await numbers(client, **TOKEN)).get(key):
            await asyncio.sleep(0.05)
    return found


async def both_forms(client: RawClient) -> tuple[bytes, bytes]:
    """A scrape as Prometheus text, and one as OpenMetrics."""
    _, text = await client.request("GET", b"", "/metrics", **TOKEN)
    _, other = await client.request("GET", b"", "/metrics", accept="application/openmetrics-text", **TOKEN)
    return text, other


class Caller:
    """A client of one server, with a credential."""

    def __init__(self, client: RawClient, path: str) -> None:
        self.client = client
        self.path = path

    async def rpc(self, method: str, /, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        head, body = await self.client.request("POST", orjson.dumps(message), self.path, **TOKEN)
        if method == "initialize":
            self.client.session = head["mcp-session-id"]
        answer: dict[str, Any] = orjson.loads(body)
        found: dict[str, Any] = answer.get("result") or answer["error"]
        return found

    async def open(self) -> None:
        info = {"name": "tests", "version": "1"}
        await self.rpc("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)

    async def tool(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.rpc("tools/call", name=name, arguments=arguments)


@asynccontextmanager
async def served(
    place: Path, up: RawUpstream, collector: Collector, store: ReplicaStore
) -> AsyncIterator[int]:
    app = build(settings(place, up, collector), store=store)
    async with running(app) as (_, port):
        yield port


async def use_everything(
    port: int, up: RawUpstream, tools: Tools, store: ReplicaStore
) -> tuple[Numbers, tuple[bytes, bytes]]:
    """Calls of every kind, files both ways, drift, an outage of the store, and hostile requests; then a scrape."""
    async with RawClient(port) as client, RawClient(port) as other, RawClient(port) as third:
        raw, folded, shop = Caller(client, "/mcp"), Caller(other, "/folded"), Caller(third, "/shop")
        for each in (raw, folded, shop):
            await each.open()
        listed = await raw.rpc("tools/list")
        assert {tool["name"] for tool in listed["tools"]} > set(NAMES)
        assert text_of(await raw.tool("plain", word=SECRETS[1])) == "done"
        assert text_of(await raw.tool("limited")) == "done"
        for number in range(30):
            await raw.tool(f"{SECRETS[3]}-{number}")
        await folded.tool("folded_call_tool", name="plain", arguments={})
        await shop.tool("echo")
        path = "/explorer/raw/tools/plain/call"
        head, _ = await other.request("POST", b"{}", path, content_type="application/json", **TOKEN)
        assert head.status == 200, path
        # Files: with a signed URL, which is good once, and back.
        offer = await raw.tool("raw_get_upload_url")
        url = offer["structuredContent"]["upload_url"].partition("/upload/")[2]
        async with RawClient(port) as uploader:
            for status in (200, 401):
                body = form(b"x" * 1000, SECRETS[2])
                head, answer = await uploader.request("POST", body, f"/upload/{url}", content_type=FORM)
                assert head.status == status, answer
        written = await raw.tool("write")
        head, chart = await client.request("GET", path=link_of(written))
        assert chart == b"chart"
        read = await raw.rpc("resources/read", uri=written["_meta"]["artifact"]["artifact_uri"])
        assert read["contents"][0]["text"] == "chart"
        await client.request("GET", path="/artifacts/raw/stranger/none/x.txt")
        # A stranger, an upstream that forgot the session, and other tools than before.
        await client.request("POST", b"{}")
        await client.request("GET", path=f"/{SECRETS[3]}")
        up.sessions.clear()
        await raw.tool("plain")
        tools.changed = True
        up.sessions.clear()
        await raw.tool("plain")
        await raw.rpc("tools/list")
        await until(client, "adapter_upstream_ping_total", "success", "raw")
        store.down = True
        await third.request("DELETE", b"", "/shop", **TOKEN)
        await until(client, "adapter_persistence_policy_transitions_total", "fallback_activated", "runtime")
        store.down = False
        await until(client, "adapter_persistence_policy_transitions_total", "fallback_ended", "runtime")
        return await until(client, "adapter_cleanup_removed_records_total", "files"), await both_forms(client)


async def test_everything_is_counted(
    collector: Collector, tmp_path: Path, upstream: StartUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each metric of the reference has numbers that fit what was done, in a scrape and at a collector."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(CODE)
    tools, store, files = Tools(), SharedMemory().replica(), tmp_path / "files"
    async with upstream(tools) as up, served(files, up, collector, store) as port:
        found, scrapes = await use_everything(port, up, tools, store)
    assert_plausible(found)
    shown = {name for name, *_ in found}
    assert {name for name in REFERENCE if shown.isdisjoint({name, f"{name}_count"})} == set()
    counted = {each.name for each in CATALOGUE if not shown.isdisjoint({each.name, f"{each.name}_count"})}
    assert {each.name for each in CATALOGUE} - counted == ELSEWHERE
    pushed = {metric.name for metric in collector.metrics()}
    assert pushed >= {each.name_over_otlp for each in CATALOGUE if each.name in counted}
    assert_no_secrets(collector, scrapes)


def assert_plausible(found: Numbers) -> None:
    """The numbers are those of what was done."""
    calls = {key[1:]: value for key, value in found.items() if key[0] == "adapter_upstream_tool_calls_total"}
    assert calls == {
        ("ok", "raw", "plain"): 4,
        ("ok", "raw", "limited"): 1,
        ("ok", "raw", "write"): 1,
        ("ok", "raw", "raw_get_upload_url"): 1,
        ("ok", "folded", "plain"): 1,
        ("ok", "shop", "echo"): 1,
        ("rpc_error", "raw", "other"): 30,
    }
    for name, count in {
        ("adapter_upload_batches_total", "raw"): 1,
        ("adapter_upload_files_total", "raw"): 1,
        ("adapter_upload_bytes_total", "raw"): 1000,
        ("adapter_upload_failures_total", "credential_refused", "raw"): 1,
        ("adapter_upload_credentials_total", "issue", "ok", "raw"): 1,
        ("adapter_upload_credentials_total", "validate", "refused", "raw"): 1,
        ("adapter_nonce_operations_total", "disk", "spend", "ok", "raw"): 1,
        ("adapter_artifact_downloads_total", "ok", "raw"): 2,
        ("adapter_artifact_download_duration_seconds_count", "ok", "raw"): 2,
        ("adapter_auth_rejections_total", "unauthorized", "mcp", "raw"): 1,
        ("adapter_request_rejections_total", "not_found", "other", ""): 1,
        ("adapter_sessions_lifecycle_total", "renewed", "raw"): 2,
        ("adapter_sessions_lifecycle_total", "ended", "shop"): 1,
        ("adapter_tool_definition_drift_total", "found", "warn", "raw"): 1,
        ("adapter_adapter_wiring_runs_total", "ready", "raw"): 1,
        ("adapter_adapter_wiring_not_ready_servers",): 0,
        ("adapter_upstream_circuit_breaker_state", "raw"): 0,
        ("adapter_http_requests_total", "POST", "api", "raw", "2xx"): 1,
        ("adapter_sessions_open",): 3,
    }.items():
        assert found[name] == count, name
    assert found["adapter_http_request_body_bytes_total", "upload", "raw"] > 1000


def assert_no_secrets(collector: Collector, scrapes: tuple[bytes, bytes]) -> None:
    """No label is anything that a stranger chose, in either form, or over OTLP."""
    parsers: Any = (text_string_to_metric_families, openmetrics.text_string_to_metric_families)
    for scrape, parse in zip(scrapes, parsers, strict=True):
        labels = [each.labels for family in parse(scrape.decode()) for each in family.samples]
        assert {name for each in labels for name in each} <= LABELS | {"le"}
        assert max(len(value) for each in labels for value in each.values()) < 40
        assert not any(secret.encode() in scrape for secret in SECRETS)
    for metric in collector.metrics():
        points = getattr(metric, metric.WhichOneof("data") or "").data_points
        told = [values(point.attributes) for point in points]
        assert not any(secret in str(told) for secret in SECRETS)
