"""Values of the chart that Helm refuses, and the sentence that an operator then reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter.settings.root import Settings
from tests.e2e.charts import CHART, Refused, default_values, rendered

pytestmark = pytest.mark.e2e

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

WRONG = [
    # Values of another form.
    ("replicas=2", "replicas"),
    ("config.sesions={max_active: 1}", "sesions"),
    ("config={config.yaml: {core: {}}}", "config.yaml"),
    ("config.core.port=0", "config.core.port"),
    ("config.core.port=null", "port is required"),
    ("config.core.allowed_hosts=a.example.com", "config.core.allowed_hosts"),
    ("config.storage.root=./data", "config.storage.root"),
    ("config.state_persistence.disk.local_path=state.sqlite3", "config.state_persistence.disk.local_path"),
    ("config.servers=[{mount_path: /mcp}]", "id is required"),
    ("image.tag=1.0", "image.tag"),
    ("image.digest=abc", "image.digest"),
    ("deploymentMode=cluster", "deploymentMode"),
    ("livenessProbe.httpGet={path: /healthz}", "httpGet"),
    ("persistence.size=10 GB", "persistence.size"),
    ("persistence.subPath=/files", "persistence.subPath"),
    ("service.type=ExternalName", "service.type"),
    ("upstreamServers=[{name: Browser_1, image: {repository: a, tag: b}}]", "upstreamServers.0.name"),
    ("podAnnotations.prometheus\\.io/scrape=true", "podAnnotations"),
    ("prometheusRule.extraGroups=[{rules: []}]", "name is required"),
    ("grafanaDashboards.labels.grafana_dashboard=1", "grafanaDashboards.labels"),
    ("grafanaDashboards.namespace=Monitoring", "grafanaDashboards.namespace"),
    # Secrets in what becomes a ConfigMap.
    ("config.core.auth.token=abcdefgh", "config.core.auth.token"),
    ("config.core.auth.token=${TOKEN:-abcdefgh}", "config.core.auth.token"),
    ("config.state_persistence.redis.url=redis://:secret@redis:6379", "config.state_persistence.redis.url"),
    ("config.servers=[{id: a, upstream: {static_headers: {Authorization: Bearer x}}}]", "Authorization"),
    ("config.servers=[{id: a, upstream: {env: {API_KEY: x}}}]", "API_KEY"),
    ("config.telemetry.headers={x-api: abc}", "config.telemetry.headers"),
    # Values that contradict each other.
    ("config.servers=[]", "config.servers is empty"),
    ("config.core.host=127.0.0.1", "config.core.host is a loopback address"),
    ("environment.env.ADAPTER_CORE__PORT=9000", "environment.env.ADAPTER_CORE__PORT would change"),
    ("replicaCount=2", "deploymentMode standalone is one pod"),
    ("autoscaling.enabled=true", "deploymentMode standalone is one pod"),
    ("deploymentMode=distributed", "Set config.state_persistence.type to redis"),
    ("ingress.enabled=true", "ingress.hosts is empty"),
    ("serviceMonitor.enabled=true", "Set config.telemetry.prometheus.enabled"),
    ("prometheusRule.enabled=true", "prometheusRule needs metrics"),
    (
        "config.telemetry.prometheus={enabled: true, port: 9464}",
        "config.telemetry.prometheus.host is a loopback",
    ),
    ("config.core.shutdown_grace_seconds=2m", "set terminationGracePeriodSeconds"),
    ("terminationGracePeriodSeconds=14", "a stopping pod needs 15"),
]

WRONG_OF_SEVERAL = [
    (["persistence.enabled=false"], "Set persistence.enabled"),
    (["persistence.existingClaim=''"], "Set persistence.accessModes to [ReadWriteMany]"),
    (["autoscaling.minReplicas=7"], "autoscaling.minReplicas is above autoscaling.maxReplicas"),
    (["autoscaling.targetCPUUtilizationPercentage=null"], "autoscaling has nothing to look at"),
    (["podDisruptionBudget.maxUnavailable=200%"], "podDisruptionBudget.maxUnavailable"),
    (
        ["serviceMonitor.enabled=true", "config.telemetry.prometheus={enabled: true}"],
        "Metrics on config.core.port need the operator's token",
    ),
    (
        ["config.telemetry.enabled=true", "prometheusRule={enabled: true, disabled: [McpAdapterGone]}"],
        "prometheusRule.disabled names McpAdapterGone",
    ),
]
"""The same, for several pods."""


@pytest.mark.parametrize("major", [3, 4])
def test_wrong_values_are_refused_by_name(major: int) -> None:
    """Helm installs nothing with them, and its last words name the value, in both versions."""
    for stack, sets, words in [
        *(("quickstart", [each], words) for each, words in WRONG),
        *(("ha-adapter", each, words) for each, words in WRONG_OF_SEVERAL),
    ]:
        with pytest.raises(Refused) as refused:
            rendered(stack, sets=sets, major=major)
        assert words in spelled(str(refused.value)), sets


def spelled(words: str) -> str:
    """Helm 4's words with its paths as Helm 3 writes them."""
    paths = re.sub(r"at '/([^']*)'", lambda found: found[1].replace("/", "."), words)
    return re.sub(r"missing property '(\w+)'", r"\1 is required", paths)


def test_every_default_has_a_place_in_the_schema() -> None:
    """The schema knows the keys of values.yaml, and values.yaml shows each key of the schema."""
    assert default_values().keys() == SCHEMA["properties"].keys() - {"global"}
    for key, value in default_values().items():
        known = SCHEMA["properties"][key]
        if isinstance(value, dict) and known.get("additionalProperties") is False and key != "config":
            # Helm deletes a key whose value is null, so the schema never sees it.
            assert value.keys() == known["properties"].keys(), key


def test_the_sections_are_those_of_the_settings() -> None:
    """A section that the adapter has can be written, and one that it has not is refused."""
    assert SCHEMA["properties"]["config"]["properties"].keys() == Settings.model_fields.keys()


def test_the_chart_reads_only_settings_that_exist() -> None:
    """Each key of config in the schema is one of the settings, so that a renamed one is noticed."""
    written = SCHEMA["properties"]["config"]
    assert {path for path in paths_below(written) if not exists(path)} == set()


def paths_below(node: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in node.get("properties", {}).items():
        path = f"{above}{key}"
        yield path
        yield from paths_below(value, f"{path}.")
        yield from paths_below(value.get("items", {}), f"{path}.")


RAW = Settings.model_json_schema()


def exists(path: str) -> bool:
    return any(found == path for found, _ in described())


def described() -> list[tuple[str, bool]]:
    """Each setting by its path, and True for a secret."""
    return list(_described(RAW, (), ()))


def _described(
    node: dict[str, Any], above: tuple[str, ...], seen: tuple[str, ...]
) -> Iterator[tuple[str, bool]]:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from _described(RAW["$defs"][name], above, (*seen, name))
    if node.get("writeOnly"):
        yield ".".join(above), True
    for key, value in node.get("properties", {}).items():
        yield ".".join((*above, key)), False
        yield from _described(value, (*above, key), seen)
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _described(choice, above, seen)
    if isinstance(node.get("items"), dict):
        yield from _described(node["items"], above, seen)


def test_no_secret_can_be_written_into_the_settings() -> None:
    """Each secret of the settings must be a variable, and so must headers and variables that name one."""
    guards = {f"#/definitions/{name}" for name in ("secret", "address")}
    secrets = {path for path, is_secret in described() if is_secret}
    assert len(secrets) > 8
    assert {path for path in secrets if node_at(path).get("$ref") not in guards} == set()


def node_at(path: str) -> dict[str, Any]:
    node: dict[str, Any] = SCHEMA["properties"]["config"]
    for key in path.split("."):
        node = node.get("properties", node.get("items", {}).get("properties", {})).get(key, {})
    return node


@pytest.mark.parametrize(
    "assignment",
    [
        "config.core.auth={enabled: true, token: '${TOKEN}'}",
        "config.core.auth={enabled: true, tokens: [{name: a, sha256: 'aa'}]}",
        "config.state_persistence.redis.url=redis://redis:6379/0",
        "config.state_persistence.redis.url=redis://:${PASSWORD}@redis:6379/0",
        "config.telemetry.headers={Authorization: 'Bearer ${TOKEN}'}",
        "config.connectors=[{name: a, connector: sqlite, connection_string: /data/shop.sqlite3}]",
        "config.connectors=[{name: a, connector: postgres, connection_string: 'postgres://u:{{ env.PASSWORD }}@h/d'}]",
        "config.servers=[{id: a, upstream: {static_headers: {X-Tenant: a}}}]",
    ],
)
def test_references_to_secrets_are_taken(assignment: str) -> None:
    """A variable, alone or within a text, and an address without a password, are what belongs there."""
    key, _, value = assignment.partition("=")
    settings: Any = yaml.safe_load(rendered("quickstart", sets=[assignment]).settings_text())
    for step in key.split(".")[1:]:
        settings = settings[step]
    assert settings == yaml.safe_load(value)
