"""Every compose file of deploy/: its form, its mounts and health checks, and the settings that it leads to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from adapter.rules.metrics.catalogue import CATALOGUE
from adapter.settings.file.load import load
from tests.prometheus import promtool

DEPLOY = Path(__file__).parents[1] / "deploy"
FILES = sorted(DEPLOY.glob("compose*.yaml"))
VARIABLE = re.compile(r"\$\{\w+:(?:-([^}]*)|\?[^}]*)\}")
"""One of the environment, with its default where it has one."""

FOLDERS = {"./helm/mcp-adapter/dashboards", "./helm/mcp-adapter/alerts"}
"""Dashboards and rules, each with at least one file."""


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def composed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One file, with its anchors followed."""
    found: dict[str, Any] = yaml.safe_load(request.param.read_text())
    return found


def test_the_files_keep_the_specification(composed: dict[str, Any]) -> None:
    """No key, duration, port or mount is one that an engine would refuse, and every volume is declared."""
    PyCompose.from_json(VARIABLE.sub(lambda found: found[1] or "given", json.dumps(composed))).validate()


def test_everything_that_is_mounted_is_there(composed: dict[str, Any]) -> None:
    """A file of deploy/ is mounted for reading; a named volume is declared."""
    for service in composed["services"].values():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if not source.startswith("."):
                assert source in composed["volumes"], volume
            else:
                assert mode == ["ro"] and (DEPLOY / source).exists(), volume
                assert (DEPLOY / source).is_file() or (source in FOLDERS and any((DEPLOY / source).iterdir()))


def test_nothing_is_published_beyond_the_machine(composed: dict[str, Any]) -> None:
    """Whoever wants more puts a proxy with TLS in front."""
    for service in composed["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_a_container_that_keeps_something_is_watched(composed: dict[str, Any]) -> None:
    """The image of the adapter has its own check; stores and pages have one here, with a time limit."""
    for name in composed["services"].keys() & {"redis", "prometheus", "grafana"}:
        check = composed["services"][name]["healthcheck"]
        assert check["test"][0] == "CMD" and {"interval", "timeout"} <= check.keys()


def test_the_adapter_writes_its_volumes_only(composed: dict[str, Any]) -> None:
    """Its root is read-only, with /tmp in memory, and it has no capability."""
    for service in composed["services"].values():
        if "build" in service:
            assert service["read_only"] and service["tmpfs"] == ["/tmp"]
            assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]


def test_secrets_are_asked_for(composed: dict[str, Any]) -> None:
    """No token or password has a default."""
    for service in composed["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD|SECRET", name):
                assert re.fullmatch(r"\$\{\w+:\?.+\}", value), name


def test_telemetry_reaches_the_collector() -> None:
    """The variables that the adapter gets there are settings, and lead to the collector's port for them."""
    services = yaml.safe_load((DEPLOY / "compose.telemetry.yaml").read_text())["services"]
    environ = {"MCP_ADAPTER_TOKEN": "a-long-random-text", **services["adapter"]["environment"]}
    telemetry = load(DEPLOY / "config.yaml", environ=environ).telemetry
    assert (telemetry.enabled, telemetry.transport) == (True, "grpc")
    collector = yaml.safe_load((DEPLOY / "telemetry/collector.yaml").read_text())
    receiver = collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert telemetry.endpoint == f"http://collector:{receiver.rpartition(':')[2]}"


def test_what_is_collected_is_shown() -> None:
    """Each pipeline of the collector is made of parts that are there, and Prometheus and Grafana read from them."""
    collector = yaml.safe_load((DEPLOY / "telemetry/collector.yaml").read_text())
    services = yaml.safe_load((DEPLOY / "compose.telemetry.yaml").read_text())["services"]
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= collector[kind].keys()
    port = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    prometheus = yaml.safe_load((DEPLOY / "telemetry/prometheus.yaml").read_text())
    (targets,) = [each["targets"] for job in prometheus["scrape_configs"] for each in job["static_configs"]]
    assert targets == [f"collector:{port}"]
    sources = yaml.safe_load((DEPLOY / "telemetry/grafana-datasources.yaml").read_text())["datasources"]
    hosts = {re.split("[:/]+", source["url"])[1] for source in sources}
    assert hosts <= services.keys() and hosts == {"prometheus", "jaeger"}
    (provider,) = yaml.safe_load((DEPLOY / "telemetry/grafana-dashboards.yaml").read_text())["providers"]
    assert f"./helm/mcp-adapter/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]


def test_labels_are_those_of_a_scrape() -> None:
    """Prometheus gives the labels that have another name over OTLP the names that dashboards ask for."""
    (job,) = yaml.safe_load((DEPLOY / "telemetry/prometheus.yaml").read_text())["scrape_configs"]
    *renamed, dropped = job["metric_relabel_configs"]
    names = {rule["regex"]: rule["replacement"] for rule in renamed if rule["action"] == "labelmap"}
    assert names == {
        metric.attribute(label).replace(".", "_"): label
        for metric in CATALOGUE
        for label in metric.labels
        if metric.attribute(label).replace(".", "_") != label
    }
    assert dropped == {"action": "labeldrop", "regex": "|".join(names)}


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    """promtool finds no mistake, and the rules of the chart where they are mounted."""
    config = tmp_path / "prometheus.yaml"
    text = (DEPLOY / "telemetry/prometheus.yaml").read_text()
    config.write_text(text.replace("/etc/prometheus/rules", str(DEPLOY / "helm/mcp-adapter/alerts")))
    checked = promtool("check", "config", config)
    assert checked.returncode == 0 and "1 rule files found" in checked.stdout, checked.stdout + checked.stderr


def test_every_settings_file_loads() -> None:
    """Each config of deploy/ is one that the adapter serves, with the variables of its compose file."""
    environ = {"MCP_ADAPTER_TOKEN": "a-long-random-text", "REDIS_URL": "redis://redis:6379/0"}
    files = sorted(DEPLOY.glob("config*.yaml"))
    assert [file.name for file in files] == ["config.replicas.yaml", "config.yaml"]
    for file in files:
        assert load(file, environ=environ).servers
