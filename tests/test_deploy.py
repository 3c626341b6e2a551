"""What deploy/ promises, as far as it can be told without a container engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.serve import RETRY_VARIABLE
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.version import VERSION
from deploy.sbom import OF_DEVELOPERS
from tests.dockerfile import Stage, last, let_through, stages

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
