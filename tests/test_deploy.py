"""What deploy/ promises, as far as it can be told without a container engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import errors
from adapter.cli import BAD_SETTINGS
from adapter.commands.serve import RETRY_VARIABLE
from adapter.errors import AdapterError, AdapterStopping
from adapter.settings.core import Core
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.version import VERSION
from adapter.workers.fleet import STOP_SECONDS
from deploy.bundle import STARTED, manifest, write
from deploy.dashboards.overview import FAILURES
from deploy.sbom import OF_DEVELOPERS
from tests.dockerfile import Stage, last, let_through, stages
from tests.metric_queries import RULES, mistakes, rules
from tests.missing import Missing
from tests.ports import free_port
from tests.prometheus import promtool

DEPLOY = Path(__file__).parents[1] / "deploy"
IGNORED = (DEPLOY.parent / ".dockerignore").read_text()


@pytest.fixture
def services() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in composed["services"].values():
        named = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith(".")}
        assert named <= set(composed["volumes"])
    services: dict[str, Any] = composed["services"]
    return services


@pytest.fixture
def settings() -> Settings:
    return load(DEPLOY / "config.yaml", environ={"MCP_ADAPTER_TOKEN": "a-long-random-text"})


def test_no_token_no_start() -> None:
    """Without the token's variable the configuration is refused instead of served openly."""
    with pytest.raises(SettingsError, match="MCP_ADAPTER_TOKEN"):
        load(DEPLOY / "config.yaml", environ={})


def test_state_and_files_lie_on_volumes(services: dict[str, Any], settings: Settings) -> None:
    """What has to survive a container lies on a volume, and the browser's shares only the files."""
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in services["adapter"]["volumes"]}
    assert mounted[str(settings.state_path.parent)] == "state"
    assert mounted[str(settings.storage.root)] == "files"
    assert services["playwright"]["volumes"] == ["files:/data"]


def test_the_browser_reaches_the_files_and_no_more(services: dict[str, Any], settings: Settings) -> None:
    """The browser's file access is the store's root, and a file:// URL is none of its pages."""
    command = services["playwright"]["command"]
    assert command[command.index("--output-dir") + 1] == str(settings.storage.root)
    assert command[command.index("--file-paths") + 1] == "absolute"
    assert "--allow-unrestricted-file-access" not in command
    assert "ports" not in services["playwright"]


@pytest.fixture
def image() -> list[Stage]:
    return stages((DEPLOY / "Dockerfile").read_text())


def test_the_image_runs_as_nobody_special(services: dict[str, Any], image: list[Stage]) -> None:
    """The last stage has its own user, by the number that Kubernetes can judge, and owns nothing but the volumes."""
    user = last(image[-1], "USER")
    made = " ".join(next(step.rest for step in image[-1].steps if step.word == "RUN").split())
    assert user == "1000:1000" and "useradd --uid 1000 --gid 1000" in made
    assert re.findall(r"install -d [^&]+", made) == [
        "install -d -o 1000 -g 1000 -m 0750 /data /var/lib/mcp-adapter ",
        "install -d -m 0755 /etc/mcp-adapter",
    ]
    assert last(image[-1], "STOPSIGNAL") == "SIGTERM"
    # An orchestrator is to see why a start fails, not that containers end.
    assert f"{RETRY_VARIABLE}=1" in last(image[-1], "ENV").split()
    command = [*json.loads(last(image[-1], "ENTRYPOINT")), *json.loads(last(image[-1], "CMD"))]
    assert command == ["mcp-adapter", "serve", "--config", "/etc/mcp-adapter/config.yaml"]
    assert "./config.yaml:/etc/mcp-adapter/config.yaml:ro" in services["adapter"]["volumes"]
    assert (DEPLOY.parent / services["adapter"]["build"]["dockerfile"]).exists()


def test_a_build_without_a_target_is_slim(image: list[Stage]) -> None:
    """The full image adds what starts servers to it, with a home on the volume, and keeps its user and its command."""
    named = {stage.name: stage for stage in image}
    assert image[-1].steps == named["slim"].steps
    full = named["full"].steps[len(named["slim"].steps) :]
    assert [step.word for step in full] == ["COPY", "ENV"]
    assert "HOME=/var/lib/mcp-adapter" in full[-1].rest.split()


@pytest.mark.deep
def test_the_programs_of_the_full_image_run(image: list[Stage], tmp_path: Path) -> None:
    """The step that fetches them leaves node, npx and uvx of the versions that it names."""
    (stage,) = [stage for stage in image if stage.name == "programs"]
    versions = dict(step.rest.split("=") for step in stage.steps if step.word == "ARG")
    script = last(stage, "RUN").replace("/opt/programs", str(tmp_path / "programs"))
    script = script.replace("pip install", f"{shlex.quote(sys.executable)} -m pip install --quiet", 1)
    subprocess.run(["sh", "-ec", script], env={**os.environ, **versions}, timeout=300, check=True)
    path = f"{tmp_path}/programs/bin:/usr/bin:/bin"
    told = {
        name: subprocess.check_output(
            [name, "--version"], env={"PATH": path, "HOME": str(tmp_path)}, text=True
        )
        for name in ("node", "npm", "npx", "uv", "uvx")
    }
    assert told["node"].strip() == f"v{versions['NODE']}" and told["npm"] == told["npx"]
    assert told["uvx"].split()[1] == told["uv"].split()[1] == versions["UV"]


async def test_the_health_check_of_the_image_tells(image: list[Stage]) -> None:
    """It succeeds where /livez is 200 on the port of the environment, and fails where it is not or nobody listens."""
    command = json.loads(last(image[-1], "HEALTHCHECK").partition("CMD ")[2])
    told = iter((200, 503))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).partition(b" HTTP")[0]
        status = next(told) if asked == b"GET /livez" else 404
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    statuses = []
    for _ in range(2):
        statuses.append(await _status(command, port))
    server.close()
    await server.wait_closed()
    assert [*statuses, await _status(command, port)] == [0, 1, 1]


async def _status(command: list[str], port: int) -> int | None:
    proxied = {"http_proxy": "http://127.0.0.1:9", "ADAPTER_CORE__PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command[1:], env={**os.environ, **proxied}, stderr=asyncio.subprocess.DEVNULL
    )
    return await asyncio.wait_for(process.wait(), 20)


def test_the_image_has_every_extra(image: list[Stage]) -> None:
    """What the documentation says of databases and telemetry holds in the image: it lacks no extra of the package."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    (default,) = [step.rest for stage in image for step in stage.steps if step.rest.startswith("EXTRAS=")]
    extras = project["optional-dependencies"]
    assert default == "EXTRAS=all"
    (everything,) = extras["all"]
    named = everything.removeprefix("mcp-file-adapter[").removesuffix("]").split(",")
    assert set(named) == set(extras) - OF_DEVELOPERS


def test_the_labels_are_those_of_the_package(image: list[Stage]) -> None:
    """Licence, description and version of the image are those of the package."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    labels = dict(each.split("=", 1) for each in shlex.split(last(image[-1], "LABEL")))
    told = {name.removeprefix("org.opencontainers.image."): text for name, text in labels.items()}
    assert (told["licenses"], told["description"]) == (project["license"], project["description"])
    assert f"VERSION={VERSION}" in [step.rest for step in image[-1].steps if step.word == "ARG"]
    assert told["version"] == "${VERSION}"


def test_a_build_is_sent_what_it_copies_and_no_more(image: list[Stage]) -> None:
    """Every COPY from the context finds its source; secrets, histories and environments stay where they are."""
    root = DEPLOY.parent
    files = [str(path.relative_to(root)) for path in (root / "adapter").rglob("*") if path.is_file()]
    files += [
        *(path.name for path in root.iterdir() if path.is_file()),
        "deploy/constraints.txt",
        "config.yaml",
    ]
    sent = let_through(
        [*files, ".env", ".git/config", ".venv/bin/python", "deploy/.env", "data/secret"], IGNORED
    )
    copied = [step.rest.split()[:-1] for stage in image for step in stage.steps if step.word == "COPY"]
    sources = [source for each in copied if not each[0].startswith("--from") for source in each]
    for source in sources:
        assert [name for name in sent if name == source or name.startswith(f"{source}/")], source
    assert [name for name in sent if not any(f"{name}/".startswith(f"{source}/") for source in sources)] == []
    assert [name for name in sent if name.endswith(".pyc")] == []


# --- the unit of deploy/, as far as systemd can judge a file ------------------------------------------------------


UNIT = Path(__file__).parents[1] / "deploy" / "systemd" / "mcp-adapter.service"
MOST_EXPOSED = 1.5
"""Of 10; systemd calls everything below 2 fine."""


@pytest.fixture
def service() -> dict[str, list[str]]:
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if (program := shutil.which("systemd-analyze")) is None:
        raise Missing("systemd-analyze is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every line is known, once the program is where it says."""
    unit = tmp_path / UNIT.name
    program = tmp_path / "mcp-adapter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(UNIT.read_text().replace("/opt/mcp-adapter/bin/mcp-adapter", str(program)))
    found = analyzed("verify", unit)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_a_service_is_little_exposed() -> None:
    """systemd's own figure for everything that a break-in could reach."""
    found = analyzed("security", "--offline=true", UNIT)
    (exposure,) = re.findall(r"Overall exposure level for \S+ ([0-9.]+)", found.stdout)
    assert float(exposure) <= MOST_EXPOSED


def test_a_service_may_use_nothing_but_its_own(service: dict[str, list[str]]) -> None:
    """It has no right of root, writes its own directory only, and reads no home."""
    one = {name: values[0] for name, values in service.items()}
    assert one["DynamicUser"] == one["NoNewPrivileges"] == one["ProtectHome"] == one["PrivateTmp"] == "yes"
    assert (one["ProtectSystem"], one["CapabilityBoundingSet"]) == ("strict", "")
    assert one["WorkingDirectory"] == f"/var/lib/{one['StateDirectory']}"
    assert "@system-service" in service["SystemCallFilter"]


def test_the_times_and_statuses_are_those_of_the_adapter(service: dict[str, list[str]]) -> None:
    """A stop is not cut short, settings that cannot be used are not tried again, and a silent loop is noticed."""
    one = {name: values[0] for name, values in service.items()}
    assert one["Type"] == "notify" and float(one["WatchdogSec"]) == 30
    assert float(one["TimeoutStopSec"]) >= Core().shutdown_grace_seconds + STOP_SECONDS
    assert (one["RestartPreventExitStatus"], one["Restart"]) == (str(BAD_SETTINGS), "on-failure")
    assert "-HUP $MAINPID" in one["ExecReload"]


# --- the health check of the compose files, beside a real adapter in a namespace of processes of its own ----------


ROOT = Path(__file__).parents[1]
ALIVE = ROOT / "deploy" / "alive.py"
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
CONTAINER = """
alive() { "$python" -I "$alive"; }
alive; echo "nobody listens: $?"
"$@" >log 2>&1 &
until alive; do sleep 0.1; done
echo "it serves: $?"
kill -STOP $!
alive; echo "it stands still: $?"
wait $!; echo "it ended: $?"
"""
"""What an engine does: process 1, the adapter as its child, and the check again and again."""


@pytest.mark.deep
async def test_an_adapter_that_stands_still_is_killed(tmp_path: Path) -> None:
    """Only then: one that has not started yet is unhealthy, and one that serves is healthy."""
    port = str(free_port())
    server = {"id": "none", "mount_path": "/mcp", "upstream": {"url": "http://127.0.0.1:9/mcp"}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"servers": [server], "storage": {"root": str(tmp_path / "data")}}))
    program = Path(sys.executable).with_name("mcp-adapter")
    process = await asyncio.create_subprocess_exec(
        *(*NAMESPACE, "sh", "-c", CONTAINER, "sh", program, "serve", "--config", config),
        cwd=tmp_path,
        env={**os.environ, "ADAPTER_CORE__PORT": port, "python": sys.executable, "alive": str(ALIVE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            told, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if b"unshare failed" in errors:
        raise Missing("this system gives nobody a namespace of processes")
    assert told.decode().splitlines() == [
        "nobody listens: 1",
        "it serves: 0",
        "it stands still: 1",
        "it ended: 137",
    ], errors


@pytest.mark.parametrize("name", ["compose.yaml", "compose.replicas.yaml"])
def test_the_compose_files_let_it_end_the_adapter(name: str) -> None:
    """Each adapter has it, with more time than it waits, is not process 1, and is started again."""
    services = yaml.safe_load((ROOT / "deploy" / name).read_text())["services"]
    adapters = [service for service in services.values() if "build" in service]
    assert adapters
    for service in adapters:
        mounted = next(volume for volume in service["volumes"] if volume.startswith("./alive.py:"))
        check = service["healthcheck"]
        assert check["test"] == ["CMD", "python", "-I", mounted.split(":")[1]]
        assert int(check["timeout"].rstrip("s")) > 10
        assert service["init"] and service["restart"] == "unless-stopped"


# --- what Prometheus fires by the chart's alerts ------------------------------------------------------------------


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


# --- the bundle for hosts -----------------------------------------------------------------------------------------


WHEEL = f"mcp_file_adapter-{VERSION}-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    file = tmp_path / WHEEL
    file.write_bytes(b"a wheel")
    return file


def test_the_same_wheel_gives_the_same_bundle(wheel: Path, tmp_path: Path) -> None:
    """Whenever and wherever it is made."""
    made = [tmp_path / "a.mcpb", tmp_path / "b.mcpb"]
    write(wheel, made[0])
    command = [sys.executable, "-m", "deploy.bundle", str(wheel), str(made[1])]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_bundle_has_what_uv_installs(wheel: Path, tmp_path: Path) -> None:
    """The wheel itself, so that no index has to have this version, and the program that the manifest names."""
    write(wheel, tmp_path / "a.mcpb")
    with zipfile.ZipFile(tmp_path / "a.mcpb") as bundle:
        told = json.loads(bundle.read("manifest.json"))
        project = tomllib.loads(bundle.read("pyproject.toml").decode())
        assert bundle.read(WHEEL) == b"a wheel" and told["server"]["entry_point"] in bundle.namelist()
    assert told == manifest()
    assert project["project"]["dependencies"] == ["mcp-file-adapter[client]"]
    assert project["tool"]["uv"]["sources"] == {"mcp-file-adapter": {"path": WHEEL}}


@pytest.mark.parametrize(
    ("values", "token", "words"),
    [
        (["${user_config.save_to}"], "${user_config.token}", []),
        (["${user_config.save_to}", "${user_config.folders}"], "", []),
        (["/saved", "/a", "/b c"], "t", ["--save-to", "/saved", "--folder", "/a", "--folder", "/b c"]),
    ],
)
def test_what_is_not_set_is_left_out(values: list[str], token: str, words: list[str], tmp_path: Path) -> None:
    """Hosts pass the name of a setting that has no value; folders come one by one."""
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "__init__.py").touch()
    told = "import json, os, sys\ndef main(): print(json.dumps([sys.argv, os.environ.get('MCP_ADAPTER_TOKEN')]))\n"
    (tmp_path / "adapter" / "__main__.py").write_text(told)
    (tmp_path / "connect.py").write_text(STARTED)
    ran = subprocess.run(
        [sys.executable, "connect.py", "https://a.example/mcp", *values],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "", "MCP_ADAPTER_TOKEN": token},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout) == [
        ["mcp-adapter", "connect", *words, "--", "https://a.example/mcp"],
        "t" if token == "t" else None,
    ]
