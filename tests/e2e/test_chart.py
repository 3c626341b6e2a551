"""The chart of deploy/helm, rendered by Helm: what Kubernetes gets from each shape, and under each switch."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from adapter.version import VERSION
from tests.e2e.charts import (
    BASES,
    CHART,
    HELM,
    NAME,
    OVERLAYS,
    STACKS,
    Rendered,
    default_values,
    lint,
    notes,
    rendered,
)
from tests.e2e.provision import HERE, ROOT

pytestmark = pytest.mark.e2e

SCHEMAS = files("kubernetes_validate") / "kubernetes-json-schema"

KUBERNETES = ("1.29", "1.37")
"""The oldest version that the chart names, and the newest whose schemas there are."""

OF_THE_OPERATOR = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus Operator, which is no part of Kubernetes."""

METRICS = "config.telemetry.prometheus={enabled: true, host: 0.0.0.0, port: 9464}"

SWITCHES = {
    "ingress": (
        ["ingress.enabled=false"],
        ["ingress={enabled: true, hosts: [{host: a.example.com}], tls: []}"],
    ),
    "monitor": (["serviceMonitor.enabled=false"], ["serviceMonitor.enabled=true", METRICS]),
    "rules": (["prometheusRule.enabled=false"], ["prometheusRule.enabled=true", METRICS]),
    "dashboards": (
        ["grafanaDashboards.enabled=false"],
        ["grafanaDashboards={enabled: true, namespace: monitoring, annotations: {grafana_folder: MCP}}"],
    ),
    "policy": (["networkPolicy.enabled=false"], ["networkPolicy={enabled: true, egress: {enabled: true}}"]),
    "account": (["serviceAccount.create=false"], ["serviceAccount.create=true"]),
    "claim": (
        ["persistence.existingClaim=mine"],
        ["persistence={existingClaim: '', accessModes: [ReadWriteMany]}"],
    ),
    "apart": (["strictAntiAffinity=false"], ["strictAntiAffinity=true"]),
    "budget": (
        ["podDisruptionBudget.enabled=false"],
        ["podDisruptionBudget={enabled: true, minAvailable: 50%}"],
    ),
    "hosts": (["config.core.allowed_hosts=null"], ["config.core.allowed_hosts=[a.example.com]"]),
    "secret": (["environment.envFromSecret.name=''"], ["environment.envFromSecret={name: s, keys: []}"]),
}
"""Switches of the chart, each off and on."""


@lru_cache
def pairs() -> list[tuple[int, ...]]:
    """Settings of all switches, of which some show each two switches in each of their four combinations."""
    missing = {
        ((one, first), (other, second))
        for one, other in itertools.combinations(range(len(SWITCHES)), 2)
        for first, second in itertools.product((0, 1), repeat=2)
    }
    chosen = []
    while missing:
        best = max(
            itertools.product((0, 1), repeat=len(SWITCHES)), key=lambda row: len(missing & covered(row))
        )
        missing -= covered(best)
        chosen.append(best)
    return chosen


def covered(row: Sequence[int]) -> set[tuple[tuple[int, int], ...]]:
    return set(itertools.combinations(enumerate(row), 2))


def valid(release: Rendered, versions: Sequence[str] = KUBERNETES) -> None:
    """Hold each manifest against the schemas of Kubernetes, which know no key besides their own."""
    for manifest, version in itertools.product(release.manifests, versions):
        if manifest["kind"] not in OF_THE_OPERATOR:
            validator(version, manifest["apiVersion"], manifest["kind"]).validate(manifest)


@lru_cache
def validator(version: str, api: str, kind: str) -> Draft202012Validator:
    """A kind as a version of Kubernetes describes it. Raises FileNotFoundError where it does not."""
    group, _, rest = api.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], rest) if part)
    schema = json.loads((SCHEMAS / f"v{version}.0-local-strict" / f"{name}.json").read_text())
    return Draft202012Validator(schema, registry=definitions(version))


@lru_cache
def definitions(version: str) -> Registry[Any]:
    text = (SCHEMAS / f"v{version}.0-local-strict" / "_definitions.json").read_text()
    # Crawled once: it would else be at each reference, which takes longer than all the rest.
    return (DRAFT202012.create_resource(json.loads(text)) @ Registry()).crawl()


def joined(release: Rendered) -> None:
    """Find each port, volume, claim and label by the name that another manifest has for it."""
    pod, deployment = release.pod, release.only("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {
        port["name"]
        for container in release.containers
        for port in container.get("ports", ())
        if "name" in port
    }
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    for container in release.containers:
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(set(mounted)) == len(mounted)
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    service = release.only("Service")
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for selector in selectors(release):
        assert selector.items() <= labels.items()
    config = next(volume for volume in pod["volumes"] if volume["name"] == "config")
    assert config["configMap"]["name"] == release.settings_map["metadata"]["name"]
    for manifest in release.manifests:
        match manifest["kind"]:
            case "Ingress":
                backends = [
                    path["backend"]["service"]
                    for rule in manifest["spec"]["rules"]
                    for path in rule["http"]["paths"]
                ]
                assert {backend["name"] for backend in backends} == {service["metadata"]["name"]}
                assert {backend["port"]["name"] for backend in backends} == {"http"}
            case "NetworkPolicy":
                opened = [port["port"] for rule in manifest["spec"]["ingress"] for port in rule["ports"]]
                assert set(opened) == ports
            case "HorizontalPodAutoscaler":
                assert manifest["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
            case "ServiceMonitor":
                (endpoint,) = manifest["spec"]["endpoints"]
                assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def selectors(release: Rendered) -> Iterator[dict[str, str]]:
    deployment = release.only("Deployment")["spec"]
    yield deployment["selector"]["matchLabels"]
    yield release.only("Service")["spec"]["selector"]
    for constraint in deployment["template"]["spec"].get("topologySpreadConstraints", ()):
        yield constraint["labelSelector"]["matchLabels"]
    for manifest in release.manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] in ("PodDisruptionBudget", "ServiceMonitor"):
            yield spec["selector"]["matchLabels"]
        if manifest["kind"] == "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_every_shape_is_valid(stack: tuple[str, ...]) -> None:
    """Each stack of value files gives manifests that Kubernetes knows and that find each other."""
    release = rendered(*stack)
    valid(release)
    joined(release)


@pytest.mark.parametrize("stack", [stack for stack in STACKS if len(stack) != 2], ids="+".join)
def test_every_shape_is_valid_under_every_two_switches(stack: tuple[str, ...]) -> None:
    """The same holds with every two switches of the chart on and off."""
    for row in pairs():
        sets = [each for values, on in zip(SWITCHES.values(), row, strict=True) for each in values[on]]
        release = rendered(*stack, sets=sets)
        valid(release, KUBERNETES[:1])
        joined(release)


def test_a_misspelled_key_is_found() -> None:
    """These schemas refuse a key that Kubernetes would only leave out."""
    release = rendered("quickstart")
    release.container()["livenessProbe"]["periodSecs"] = 1
    with pytest.raises(ValidationError, match="periodSecs"):
        valid(release)


def test_helm_4_renders_what_helm_3_renders() -> None:
    """Both versions of Helm in use give the same manifests, and have nothing to say against the chart."""
    for stack in STACKS:
        assert rendered(*stack, major=4).manifests == rendered(*stack).manifests
    for base in BASES:
        assert "0 chart(s) failed" in lint(base)
        assert "0 chart(s) failed" in lint(base, major=4)


def test_every_value_file_is_a_shape() -> None:
    """No value file is left out of these tests."""
    assert {path.stem for path in (HELM / "values").iterdir()} == {*BASES, *OVERLAYS}


def test_the_chart_is_of_this_version() -> None:
    """The image that is run by default has the version of this source."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["apiVersion"], chart["appVersion"]) == ("v2", VERSION)
    assert rendered("quickstart").container()["image"] == f"mcp-adapter:{VERSION}"


def test_an_image_by_digest() -> None:
    """A digest says more than a tag."""
    digest = f"sha256:{'a' * 64}"
    release = rendered(
        "quickstart", sets=[f'image={{"repository": "h:5000/m", "tag": "1", "digest": "{digest}"}}']
    )
    assert release.container()["image"] == f"h:5000/m@{digest}"


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_no_container_may_do_more_than_it_needs(stack: tuple[str, ...]) -> None:
    """Nobody is root, gains rights, keeps a capability or gets the pod's credentials; the adapter writes to volumes
    only."""
    release = rendered(*stack)
    pod = release.pod
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    for container in release.containers:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    adapter = release.container()
    assert adapter["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["mountPath"] for mount in adapter["volumeMounts"] if mount.get("readOnly")] == [
        "/etc/mcp-adapter"
    ]
    assert adapter["resources"]["requests"].keys() == {"cpu", "memory"}


def test_the_image_is_used_as_it_was_built() -> None:
    """User, entry point, and place of the settings file are those of the Dockerfile."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    release = rendered("quickstart")
    assert release.pod["securityContext"]["runAsUser"] == int(re.findall(r"--uid[= ](\d+)", dockerfile)[0])
    assert 'ENTRYPOINT ["mcp-adapter"]' in dockerfile
    args = release.container()["args"]
    assert f"CMD {args}".replace("'", '"') in dockerfile
    (config,) = [mount for mount in release.container()["volumeMounts"] if mount["name"] == "config"]
    assert PurePosixPath(args[-1]) == PurePosixPath(config["mountPath"]) / "config.yaml"


@pytest.mark.parametrize("base", ["quickstart", "standalone-durable"])
def test_standalone_is_one_process(base: str) -> None:
    """A new pod starts when the old one has ended, and nothing counts pods that are always one."""
    release = rendered(base)
    spec = release.only("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert not {"HorizontalPodAutoscaler", "PodDisruptionBudget"} & set(release.kinds())
    claim = release.only("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert {"name": "data", "persistentVolumeClaim": {"claimName": NAME}} in release.pod["volumes"]


def test_distributed_grows_and_survives_a_drain() -> None:
    """The tier has two to six pods on different nodes, of which one at a time may be drained."""
    release = rendered("ha-adapter")
    spec = release.only("Deployment")["spec"]
    assert "replicas" not in spec
    assert spec["strategy"]["type"] == "RollingUpdate"
    scaler = release.only("HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)
    assert scaler["metrics"][0]["containerResource"]["container"] == "adapter"
    assert release.only("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    nodes, zones = release.pod["topologySpreadConstraints"]
    assert (nodes["topologyKey"], nodes["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert (zones["topologyKey"], zones["whenUnsatisfiable"]) == (
        "topology.kubernetes.io/zone",
        "ScheduleAnyway",
    )
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "mcp-adapter-rwx"}} in release.pod[
        "volumes"
    ]


def test_pods_are_spread_without_being_asked() -> None:
    """Distributed pods avoid the node and zone of another, and never share a node if that is asked for."""
    spread = rendered("distributed-platform").pod["topologySpreadConstraints"]
    assert [each["whenUnsatisfiable"] for each in spread] == ["ScheduleAnyway", "ScheduleAnyway"]
    strict = rendered("distributed-platform", sets=["strictAntiAffinity=true"])
    (term,) = strict.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    # One pod more than there are nodes would wait for ever.
    assert strict.only("Deployment")["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }


@pytest.mark.parametrize(
    ("sets", "seconds"),
    [
        ([], 5 + 10 + 30),
        (["config.core.shutdown_grace_seconds=60"], 5 + 60 + 30),
        (['config.core.shutdown_grace_seconds="90s"', "preStopSleepSeconds=0"], 90 + 30),
        (["config.core.shutdown_grace_seconds=0.5"], 5 + 1 + 30),
        (['config.core.shutdown_grace_seconds="2m"', "terminationGracePeriodSeconds=200"], 200),
    ],
)
def test_a_pod_has_the_time_that_the_adapter_needs(sets: list[str], seconds: int) -> None:
    """Kubernetes kills a pod only after running calls had their time and the rest had thirty seconds."""
    assert rendered("quickstart", sets=sets).pod["terminationGracePeriodSeconds"] == seconds


def test_load_balancers_forget_a_pod_before_it_stops() -> None:
    """A stopping pod serves on for five seconds, or not, as is asked for."""
    asleep = rendered("quickstart").container()["lifecycle"]["preStop"]["exec"]["command"]
    assert asleep == ["sleep", "5"]
    assert "lifecycle" not in rendered("quickstart", sets=["preStopSleepSeconds=0"]).container()


def test_changed_settings_replace_the_pods() -> None:
    """The pods' annotation changes with the settings, and with nothing else."""
    before, same, other = (
        rendered("quickstart", sets=sets).only("Deployment")["spec"]["template"]["metadata"]["annotations"]
        for sets in ([], ["replicaCount=1", "service.port=80"], ["config.sessions.max_active=3"])
    )
    assert before == same
    assert before.keys() == other.keys() == {"checksum/config"}
    assert before != other


def test_the_port_is_that_of_the_settings() -> None:
    """Container, probes, service and policy follow config.core.port, whatever the service is called outside."""
    release = rendered("quickstart", sets=["config.core.port=9000", "service.port=80"])
    adapter = release.container()
    assert adapter["ports"] == [{"name": "http", "containerPort": 9000}]
    assert {adapter[probe]["httpGet"]["port"] for probe in PROBES} == {"http"}
    (port,) = release.only("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, "http")


PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_an_ingress_streams() -> None:
    """Answers, uploads and silences pass ingress-nginx as the adapter would have them without it."""
    ingress = rendered("standalone-durable").only("Ingress")
    asked = {key.rpartition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
    assert (asked["proxy-buffering"], asked["proxy-request-buffering"]) == ("off", "off")
    assert asked["proxy-body-size"] == "0"
    assert (asked["proxy-read-timeout"], asked["proxy-send-timeout"]) == ("3600", "3600")
    # As in deploy/nginx.conf: what has reached a pod is never sent again.
    assert asked["proxy-next-upstream"] == "error timeout"
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"secretName": "mcp-adapter-tls", "hosts": ["mcp-adapter.example.com"]}]


def test_an_ingress_of_another_kind() -> None:
    """Annotations can be taken away one by one, and replaced."""
    given = {**dict.fromkeys(default_values()["ingress"]["annotations"]), "a/b": "c"}
    sets = [f"ingress={json.dumps({'annotations': given, 'className': 'traefik'})}"]
    ingress = rendered("standalone-durable", sets=sets).only("Ingress")
    assert (ingress["metadata"]["annotations"], ingress["spec"]["ingressClassName"]) == (
        {"a/b": "c"},
        "traefik",
    )


def test_secrets_are_named_and_never_shown() -> None:
    """The Secret's keys become variables of the container, and the settings file holds their names only."""
    release = rendered("standalone-durable")
    variables = [(each["name"], each["valueFrom"]["secretKeyRef"]) for each in release.container()["env"]]
    assert variables == [
        (key, {"name": "mcp-adapter-env", "key": key})
        for key in ("MCP_ADAPTER_TOKEN", "MCP_ADAPTER_SIGNING_SECRET")
    ]
    assert yaml.safe_load(release.settings_text())["core"]["auth"] == {
        "enabled": True,
        "token": "${MCP_ADAPTER_TOKEN}",
        "signing_secret": "${MCP_ADAPTER_SIGNING_SECRET}",
    }
    assert "Secret" not in release.kinds()


def test_all_keys_of_a_secret() -> None:
    """Without keys, each key of the Secret is a variable."""
    container = rendered("standalone-durable", "browser-facing").container()
    assert container["envFrom"] == [{"secretRef": {"name": "mcp-adapter-env"}}]
    assert "env" not in container


def test_plain_variables_are_text() -> None:
    """Kubernetes takes only text as the value of a variable."""
    container = rendered("quickstart", sets=['environment.env={"A": 1, "B": true, "C": "x: y"}']).container()
    assert [each["value"] for each in container["env"]] == ["1", "true", "x: y"]


def test_a_server_beside_the_adapter_shares_its_files_and_nothing_else() -> None:
    """The browser has the files at the same path, and neither the sessions nor the settings."""
    release = rendered("quickstart")
    (files,) = release.container("playwright")["volumeMounts"]
    assert files == {"name": "data", "mountPath": "/data", "subPath": "files"}
    assert files in release.container()["volumeMounts"]
    (state,) = [mount for mount in release.container()["volumeMounts"] if mount.get("subPath") == "state"]
    assert state["mountPath"] == "/var/lib/mcp-adapter"


def test_a_server_beside_the_adapter_outlives_it() -> None:
    """Running calls find their server until the adapter has ended, and spans their collector."""
    release = rendered("quickstart", "observability")
    assert [each["name"] for each in release.pod["containers"]] == ["adapter"]
    beside = {each["name"]: each["restartPolicy"] for each in release.pod["initContainers"]}
    assert beside == {"collector": "Always", "playwright": "Always"}


def test_a_server_beside_the_adapter_as_it_is_asked_for() -> None:
    """Command, variables, probes, mounts and rights of a server are those of its entry."""
    entry = {
        "name": "s",
        "image": {"repository": "i", "tag": "1"},
        "startCommand": ["run"],
        "args": ["a"],
        "port": 1234,
        "environment": {"env": {"A": "b"}, "envFromSecret": {"name": "x", "keys": ["K"]}},
        "readinessProbe": {"tcpSocket": {"port": 1234}},
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/t"}],
    }
    server = rendered("quickstart", sets=[f"upstreamServers={json.dumps([entry])}"]).container("s")
    assert (server["image"], server["command"], server["args"]) == ("i:1", ["run"], ["a"])
    assert server["ports"] == [{"containerPort": 1234}]
    assert [each["name"] for each in server["env"]] == ["A", "K"]
    assert server["readinessProbe"] == {"tcpSocket": {"port": 1234}}
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert [mount["mountPath"] for mount in server["volumeMounts"]] == ["/data", "/t"]


def test_the_browser_is_the_one_that_tests_know() -> None:
    """The version of Playwright MCP in the shapes is that of the end-to-end tests."""
    pinned = yaml.safe_load((HERE / "package.json").read_text())["dependencies"]["@playwright/mcp"]
    for base in ("quickstart", "standalone-durable"):
        assert (
            rendered(base).container("playwright")["image"] == f"mcr.microsoft.com/playwright/mcp:v{pinned}"
        )


def test_only_named_ports_are_open() -> None:
    """The policy leaves out the ports of servers beside the adapter, and names who may come."""
    sets = [METRICS, 'networkPolicy.metricsFrom=[{"namespaceSelector": {}}]']
    policy = rendered("quickstart", sets=sets).only("NetworkPolicy")["spec"]
    clients, metrics, replicas = policy["ingress"]
    assert policy["policyTypes"] == ["Ingress"]
    assert clients["ports"] == [{"port": "http"}]
    assert clients["from"][0]["podSelector"]["matchLabels"] == {"mcp-adapter.example.com/client": "true"}
    assert metrics == {"ports": [{"port": "metrics"}], "from": [{"namespaceSelector": {}}]}
    assert replicas["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "r"


def test_the_way_out_can_be_closed() -> None:
    """With egress, pods reach names, each other, and what the rules name."""
    rule: Any = '{"ports": [{"port": 443}]}'
    sets = [f'networkPolicy.egress={{"enabled": true, "rules": [{rule}]}}']
    policy = rendered("ha-adapter", sets=sets).only("NetworkPolicy")["spec"]
    names, own, ours = policy["egress"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert "podSelector" in own["to"][0]
    assert ours == {"ports": [{"port": 443}]}


def test_metrics_are_scraped_on_their_own_port_or_with_a_token() -> None:
    """The ServiceMonitor goes where config.telemetry.prometheus serves."""
    own = rendered("ha-adapter", sets=["serviceMonitor.enabled=true", METRICS])
    (endpoint,) = own.only("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "30s"}
    assert {"name": "metrics", "containerPort": 9464} in own.container()["ports"]
    token = '{"type": "Bearer", "credentials": {"name": "s", "key": "k"}}'
    sets = [f'serviceMonitor={{"enabled": true, "authorization": {token}}}']
    shared = rendered(
        "ha-adapter", sets=[*sets, 'config.telemetry.prometheus={"enabled": true, "path": "/m"}']
    )
    (endpoint,) = shared.only("ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/m")
    assert endpoint["authorization"]["credentials"] == {"name": "s", "key": "k"}


def test_additions_are_passed_on() -> None:
    """Containers, volumes, annotations, labels and places of the user's own are in the pods as they were written."""
    stack = ("ha-adapter", "observability")
    sets = [
        'podAnnotations={"a": "b"}',
        'podLabels={"c": "d"}',
        'nodeSelector={"e": "f"}',
        'priorityClassName="p"',
    ]
    more = ['tolerations=[{"key": "k", "operator": "Exists"}]', 'imagePullSecrets=[{"name": "r"}]']
    release = rendered(
        *stack, sets=[*sets, *more, 'volumeMounts=[{"name": "otel-collector", "mountPath": "/x"}]']
    )
    valid(release)
    metadata = release.only("Deployment")["spec"]["template"]["metadata"]
    assert (metadata["annotations"]["a"], metadata["labels"]["c"]) == ("b", "d")
    pod = release.pod
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"e": "f"}, "p")
    assert (pod["tolerations"], pod["imagePullSecrets"]) == (
        [{"key": "k", "operator": "Exists"}],
        [{"name": "r"}],
    )
    assert release.container("collector")["volumeMounts"] == [
        {"name": "otel-collector", "mountPath": "/etc/otel", "readOnly": True}
    ]
    assert {"name": "otel-collector", "mountPath": "/x"} in release.container()["volumeMounts"]


@pytest.mark.parametrize(
    ("release", "sets", "name"),
    [
        ("r", [], "r-mcp-adapter"),
        ("mcp-adapter", [], "mcp-adapter"),
        ("r", ['nameOverride="m"'], "r-m"),
        ("r", ['fullnameOverride="f"'], "f"),
        ("r" * 53, [], f"{'r' * 53}-mcp-adapt"),
    ],
)
def test_names_fit(release: str, sets: list[str], name: str) -> None:
    """Everything of a release has one name, of 63 characters at most."""
    manifests = rendered("standalone-durable", release=release, sets=sets).manifests
    assert {manifest["metadata"]["name"] for manifest in manifests} == {name}
    assert len(name) <= 63


def test_the_notes_say_where_and_warn() -> None:
    """An installation ends with the addresses for clients, and with a word on what is open or will be lost."""
    told = notes("quickstart", sets=["persistence.enabled=false"])
    assert "http://r-mcp-adapter.default.svc:8932/mcp/playwright" in told
    assert "port-forward service/r-mcp-adapter 8932:8932" in told
    assert "no token is required" in told
    assert "sessions and files end with the pod" in told
    quiet = notes("standalone-durable")
    assert "https://mcp-adapter.example.com/mcp/playwright" in quiet
    assert "the Secret mcp-adapter-env may be missing" in quiet
    assert "Caution" not in quiet
    assert "each pod has its own documents" in notes("distributed-platform")
    servers = "config.servers=[{id: docs, upstream: {transport: stdio, command: npx}}]"
    assert "The image must have npx, which starts docs: it is in the target full" in notes(
        "quickstart", sets=[servers]
    )
