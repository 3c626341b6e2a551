"""Alert rules and dashboards that the chart installs: as others read them, where the Operator and Grafana look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.charts import CHART, NAME, Rendered, rendered
from tests.e2e.provision import ROOT
from tests.metric_queries import RULES, rules
from tests.prometheus import promtool

pytestmark = pytest.mark.e2e

STACK = ("ha-adapter", "observability")
DASHBOARDS = {file.name: file.read_text() for file in (CHART / "dashboards").iterdir()}
CASES = (ROOT / "tests" / "deploy_alerts.yaml").read_text()
LARGEST_CONFIG_MAP = 1 << 20
"""Bytes of all its values, by Kubernetes."""


def monitored(*sets: str, major: int = 3) -> Rendered:
    """The chart with alert rules and dashboards."""
    on = ("prometheusRule.enabled=true", "grafanaDashboards.enabled=true")
    return rendered(*STACK, sets=[*on, *sets], major=major)


def groups(release: Rendered) -> list[dict[str, Any]]:
    """The groups of the PrometheusRule, which has nothing else."""
    spec = release.only("PrometheusRule")["spec"]
    assert spec.keys() == {"groups"}
    found: list[dict[str, Any]] = spec["groups"]
    return found


def rule_file(release: Rendered, place: Path) -> Path:
    """The groups as the Operator gives them to Prometheus."""
    path = place / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups(release)}))
    return path


def test_nobody_gets_them_unasked() -> None:
    """Without the switches there is no rule, and no ConfigMap but that of the settings."""
    release = rendered(*STACK)
    assert "PrometheusRule" not in release.kinds()
    assert release.dashboards == []


@pytest.mark.parametrize("major", [3, 4])
def test_they_are_the_files_of_the_chart(major: int) -> None:
    """Both versions of Helm leave the rules and each byte of the dashboards as they are, braces too."""
    release = monitored(major=major)
    assert groups(release) == yaml.safe_load(RULES.read_text())["groups"]
    assert "{{ $labels.instance }}" in json.dumps(groups(release))
    assert dict(item for each in release.dashboards for item in each["data"].items()) == DASHBOARDS
    assert '"legendFormat": "{{job}}"' in DASHBOARDS["mcp-adapter-files.json"]


def test_prometheus_accepts_and_fires_the_installed_rules(tmp_path: Path) -> None:
    """promtool finds no mistake in them, and each fires in the case that it has."""
    installed = rule_file(monitored(), tmp_path)
    checked = promtool("check", "rules", installed)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{len(rules())} rules found" in checked.stdout
    fires(installed, CASES)


@pytest.mark.parametrize("name", ["gateway", "mcp-adapter-of-a-team"])
def test_an_adapter_of_any_name_is_missed_when_it_is_down(name: str, tmp_path: Path) -> None:
    """The job is the name of the Service, which the release may choose."""
    release = monitored(f"fullnameOverride={name}", "serviceMonitor.enabled=true")
    job = release.only("Service")["metadata"]["name"]
    assert job == name
    cases = CASES.replace("monitoring/mcp-adapter", "mcp-adapter").replace("mcp-adapter", job)
    fires(rule_file(release, tmp_path), cases)


def fires(installed: Path, cases: str) -> None:
    """Let promtool compare what the rules say in each case with what they should."""
    path = installed.with_name("cases.yaml")
    path.write_text(cases.replace("RULES", str(installed)))
    tested = promtool("test", "rules", path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_an_alert_is_replaced_by_one_with_another_threshold(tmp_path: Path) -> None:
    """A disabled alert is left out, a group without any too, and groups of the values are added as they are."""
    own = {"alert": "Slow", "expr": "a > 60", "annotations": {"summary": "{{ $value }}"}}
    files = ["QuotaNearlyFull", "UploadsFailing", "StateStoreFailing", "WithoutStateStore", "CleanupFailing"]
    disabled = [f"McpAdapter{name}" for name in ("CallsSlow", *files)]
    release = monitored(
        f"prometheusRule.disabled={disabled}",
        f"prometheusRule.extraGroups={json.dumps([{'name': 'mine', 'rules': [own]}])}",
    )
    assert [group["name"] for group in groups(release)] == [
        "mcp-adapter-availability",
        "mcp-adapter-upstreams",
        "mine",
    ]
    installed = [rule for group in groups(release) for rule in group["rules"]]
    assert installed == [*(rule for rule in rules() if rule["alert"] not in disabled), own]
    assert promtool("check", "rules", rule_file(release, tmp_path)).returncode == 0


def test_the_operator_finds_the_rules() -> None:
    """They have the labels that its Prometheus asks for, beside those of the release."""
    metadata = monitored("prometheusRule.labels={release: prometheus}").only("PrometheusRule")["metadata"]
    assert metadata["name"] == NAME
    assert metadata["labels"]["release"] == "prometheus"
    assert metadata["labels"]["app.kubernetes.io/name"] == "mcp-adapter"


def test_the_sidecar_finds_each_dashboard() -> None:
    """Each is alone in a ConfigMap with the sidecar's usual label, in the namespace of the release."""
    found = monitored().dashboards
    names = [each["metadata"]["name"] for each in found]
    assert names == [f"{NAME}-dashboard-{name}" for name in ("files", "overview", "process", "upstreams")]
    for each in found:
        assert len(each["data"]) == 1
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"].keys() == {"name", "labels"}


@pytest.mark.parametrize("major", [3, 4])
def test_a_sidecar_may_look_elsewhere(major: int) -> None:
    """Label, folder and namespace are those of the values."""
    release = monitored(
        "grafanaDashboards.namespace=monitoring",
        "grafanaDashboards.labels={grafana_dashboard: null, dashboards: mine}",
        "grafanaDashboards.annotations={grafana_folder: MCP}",
        major=major,
    )
    for each in release.dashboards:
        metadata = each["metadata"]
        assert metadata["namespace"] == "monitoring"
        assert metadata["annotations"] == {"grafana_folder": "MCP"}
        assert metadata["labels"]["dashboards"] == "mine"
        assert "grafana_dashboard" not in metadata["labels"]
    assert "namespace" not in release.settings_map["metadata"]


def test_a_config_map_holds_a_dashboard() -> None:
    """Each is far below the megabyte that Kubernetes allows, and the quarter that `kubectl apply` can compare."""
    sizes = [sum(len(text.encode()) for text in each["data"].values()) for each in monitored().dashboards]
    assert 0 < max(sizes) < LARGEST_CONFIG_MAP / 4
