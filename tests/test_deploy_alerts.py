"""The alert rules of the chart: Prometheus accepts them, they fire when they should, and each one is explained."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from adapter import errors
from adapter.errors import AdapterError, AdapterStopping
from deploy.dashboards.overview import FAILURES
from tests.metric_queries import RULES, mistakes, rules
from tests.prometheus import promtool

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "observability.md"


def test_prometheus_accepts_the_rules() -> None:
    """promtool finds no mistake."""
    checked = promtool("check", "rules", RULES)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{len(rules())} rules found" in checked.stdout


def test_they_fire_when_they_should(tmp_path: Path) -> None:
    """Each rule has a case in which it fires, and none fires for an adapter that works."""
    cases = (TESTS / "deploy_alerts.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(cases.replace("RULES", str(RULES)))
    tested = promtool("test", "rules", tmp_path / "cases.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert [rule["alert"] for rule in rules() if rule["alert"] not in cases] == []


def test_they_ask_for_what_is_there() -> None:
    """Metrics of the catalogue, with labels and values that they have."""
    assert [mistake for rule in rules() for mistake in mistakes(rule["expr"])] == []


def test_each_says_what_is_wrong_and_what_to_do() -> None:
    """A duration, a severity, a sentence, and a section of the documentation with more than one line."""
    page = PAGE.read_text()
    for rule in rules():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["runbook"] == f"docs/observability.md#{rule['alert'].lower()}"
        section = page.partition(f"\n### {rule['alert']}\n")[2].partition("\n#")[0]
        assert len(section) > 80, rule["alert"]
    assert set(re.findall(r"^### (McpAdapter\w+)$", page, re.MULTILINE)) == {
        rule["alert"] for rule in rules()
    }


def test_they_become_a_resource_of_kubernetes() -> None:
    """The command of the documentation writes a PrometheusRule with all groups."""
    command = re.findall(r"^\(\n.+?^\)(?= \| kubectl apply)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    made = subprocess.run(
        ["sh", "-c", *command], cwd=TESTS.parent, capture_output=True, text=True, check=True
    )
    rule = yaml.safe_load(made.stdout)
    assert (rule["kind"], rule["apiVersion"]) == ("PrometheusRule", "monitoring.coreos.com/v1")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())


def test_a_failure_is_no_mistake_of_a_caller() -> None:
    """The share of failures counts every code whose status is a server's, but no regular stop."""
    known = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, AdapterError)
    ]
    codes = {each.code for each in known if each.http >= 500 and each is not AdapterStopping}
    assert {each.code for each in known if re.fullmatch(FAILURES, each.code)} == codes
    (rule,) = [rule for rule in rules() if rule["alert"] == "McpAdapterErrorRatio"]
    assert f'outcome=~"{FAILURES}"' in rule["expr"]
