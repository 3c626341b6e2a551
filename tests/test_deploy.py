"""What deploy/ promises, as far as it can be told without a container engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer

DEPLOY = Path(__file__).parents[1] / "deploy"


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


def test_the_configuration_loads(settings: Settings) -> None:
    """The container's configuration asks for a token, and for nothing this version cannot do."""
    assert settings.core.auth.enabled
    assert settings.core.allowed_hosts == ["127.0.0.1", "localhost"]
    assert settings.servers[0].upstream.url == "http://playwright:8931/mcp"


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


def test_files_go_both_ways(settings: Settings) -> None:
    """Tools that take files take handles, tools that write files are told where, and clients can fetch those."""
    [consumer, producer] = settings.servers[0].adapters
    assert isinstance(consumer, UploadConsumer)
    assert (consumer.tools, consumer.file_path_argument) == (["browser_file_upload", "browser_drop"], "paths")
    assert isinstance(producer, ArtifactProducer)
    assert (producer.output_path_argument, producer.output_locator.mode) == ("filename", "regex")
    assert settings.core.allow_artifacts_download


def test_only_loopback_is_published(services: dict[str, Any], settings: Settings) -> None:
    """The adapter is published on the host's loopback address; the browser is not published at all."""
    port = settings.core.port
    assert services["adapter"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert "ports" not in services["playwright"]


def test_the_image_runs_as_nobody_special(services: dict[str, Any]) -> None:
    """The last stage has its own user, a health check on /livez, and serves the mounted configuration."""
    lines = (DEPLOY / "Dockerfile").read_text()
    last_stage = lines.rpartition("\nFROM ")[2]
    assert re.search(r"^USER adapter$", last_stage, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n.*:8932/livez", last_stage, re.MULTILINE)
    assert '["serve", "--config", "/etc/mcp-adapter/config.yaml"]' in last_stage
    assert "./config.yaml:/etc/mcp-adapter/config.yaml:ro" in services["adapter"]["volumes"]
    assert (DEPLOY.parent / services["adapter"]["build"]["dockerfile"]).exists()


def test_the_image_has_every_extra() -> None:
    """What the documentation says of databases and telemetry holds in the image: it lacks no extra of the package."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    (installed,) = re.findall(r"pip install .*\[(.+)\]", (DEPLOY / "Dockerfile").read_text())
    assert set(installed.split(",")) == set(project["optional-dependencies"]) - {"dev"}
