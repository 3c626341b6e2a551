"""The settings that the chart gives to its pods, read and served by the adapter itself."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import aiohttp
import pytest

from adapter.settings.root import Settings
from tests.e2e.charts import STACKS, Rendered, rendered
from tests.e2e.pods import fields, local, serving, settings_file
from tests.e2e.processes import START_TIMEOUT, Server, start
from tests.ports import free_port

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.upstream_server"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
"""In the order in which a pod needs them."""


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_the_adapter_takes_the_settings_of_every_shape(stack: tuple[str, ...], tmp_path: Path) -> None:
    """Each variable has its value, each section its form, and whatever is written lies on a volume."""
    release = rendered(*stack)
    settings = release.settings(tmp_path)
    assert settings.servers
    assert settings.core.port == release.container()["ports"][0]["containerPort"]
    assert ("browser-facing" in stack) <= settings.core.cors.enabled
    assert ("observability" in stack) <= (
        settings.telemetry.enabled and settings.telemetry.prometheus.enabled
    )
    assert settings.core.shutdown_grace_seconds + 30 <= release.pod["terminationGracePeriodSeconds"]
    for path in written(settings):
        assert on_a_volume(release, path), path


def written(settings: Settings) -> list[Path]:
    """The places where the adapter writes."""
    places = [settings.storage.root]
    return places if settings.state_persistence.type == "redis" else [*places, settings.state_path]


def on_a_volume(release: Rendered, path: Path) -> bool:
    """Tell whether the container can write there, to a volume that is not gone with the next restart."""
    mounts = [mount for mount in release.container()["volumeMounts"] if mount["name"] == "data"]
    return any(PurePosixPath(path).is_relative_to(mount["mountPath"]) for mount in mounts)


@pytest.mark.parametrize(
    ("sets", "folders"),
    [
        ([], {"/data": "files", "/var/lib/mcp-adapter": "state"}),
        (["config.state_persistence.disk.local_path=null"], {"/data": "files"}),
        (["config.state_persistence.disk.local_path=/data/state/a.sqlite3"], {"/data": "files"}),
        (
            ["config.state_persistence.disk.local_path=/database/a.sqlite3"],
            {"/data": "files", "/database": "state"},
        ),
        (["config.storage.root=/srv/files"], {"/srv/files": "files", "/var/lib/mcp-adapter": "state"}),
        (
            ["persistence.subPath=''", "persistence.stateSubPath=''"],
            {"/data": None, "/var/lib/mcp-adapter": None},
        ),
        (["config.state_persistence={type: redis, redis: {host: redis}}"], {"/data": "files"}),
    ],
)
def test_volumes_follow_the_settings(sets: list[str], folders: dict[str, str | None], tmp_path: Path) -> None:
    """Files and state are mounted where the settings have them, in folders of their own."""
    release = rendered("quickstart", sets=sets)
    mounts = [mount for mount in release.container()["volumeMounts"] if mount["name"] == "data"]
    assert {mount["mountPath"]: mount.get("subPath") for mount in mounts} == folders
    assert all(on_a_volume(release, path) for path in written(release.settings(tmp_path)))


async def test_check_and_the_probes_find_the_adapter_fine(tmp_path: Path) -> None:
    """``mcp-adapter check`` takes the file, and a served one answers each probe of the pod with 200.

    The settings serve one public name only, so a probe without its Host would get 421 and the pod be restarted.
    """
    async with Server(UPSTREAM, tmp_path) as upstream:
        port = free_port()
        release = local("standalone-durable", place=tmp_path, port=port, upstream=upstream.url)
        checked = await start(
            [sys.executable, "-m", "adapter", "check", "--config", settings_file(tmp_path, release)],
            tmp_path / "check.log",
            release.variables(),
        )
        assert (await checked.line(START_TIMEOUT)).endswith("is fine: 1 server.")
        async with serving(release, tmp_path, port), aiohttp.ClientSession() as http:
            for probe in PROBES:
                asked = release.container()[probe]["httpGet"]
                url = f"http://127.0.0.1:{port}{asked['path']}"
                async with http.get(url, headers=fields(asked)) as answer:
                    assert answer.status == 200, probe
                async with http.get(url) as answer:
                    assert answer.status == 421, probe


async def test_prometheus_finds_the_metrics(tmp_path: Path) -> None:
    """Where the ServiceMonitor and the annotations send Prometheus, the adapter tells what it has served."""
    stack = ("standalone-durable", "observability")
    port, metrics = free_port(), free_port()
    sets = [f"config.telemetry.prometheus.port={metrics}", "serviceMonitor.enabled=true"]
    async with Server(UPSTREAM, tmp_path) as upstream:
        release = local(*stack, place=tmp_path, port=port, upstream=upstream.url, sets=sets)
        (endpoint,) = release.only("ServiceMonitor")["spec"]["endpoints"]
        (target,) = [each for each in release.container()["ports"] if each["name"] == endpoint["port"]]
        annotations = release.only("Deployment")["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/path"] == endpoint["path"]
        async with (
            serving(release, tmp_path, port),
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{target['containerPort']}{endpoint['path']}") as answer,
        ):
            assert answer.status == 200
            assert "adapter_http_requests_total{" in await answer.text()


def test_annotations_and_port_agree() -> None:
    """The port that pods are annotated with is the one of their metrics."""
    release = rendered("ha-adapter", "observability")
    annotations = release.only("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert {
        "name": "metrics",
        "containerPort": int(annotations["prometheus.io/port"]),
    } in release.container()["ports"]
