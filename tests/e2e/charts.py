"""The chart of deploy/helm as Helm renders it, and what a test looks up in the manifests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from adapter.settings.file.load import load
from adapter.settings.root import Settings
from tests.e2e.provision import ROOT, helm

HELM = ROOT / "deploy" / "helm"
CHART = HELM / "mcp-adapter"

BASES = ("quickstart", "standalone-durable", "ha-adapter", "distributed-platform")
"""Value files that stand alone."""

OVERLAYS = ("browser-facing", "observability")
"""Value files that are put after another."""

STACKS = tuple(
    (base, *overlay) for base in BASES for overlay in ((), *((each,) for each in OVERLAYS), OVERLAYS)
)
"""Every way to put the value files on top of each other."""

RELEASE = "r"
NAME = "r-mcp-adapter"
HELM_TIMEOUT = 30.0
"""Seconds one rendering may take."""

Manifest = dict[str, Any]


class Refused(Exception):
    """Helm's words about values that it does not take."""


@dataclass(frozen=True)
class Rendered:
    """The manifests of one release, as Kubernetes would get them."""

    manifests: Sequence[Manifest]

    def kinds(self) -> list[str]:
        """The kinds of all manifests, sorted."""
        return sorted(manifest["kind"] for manifest in self.manifests)

    def only(self, kind: str) -> Manifest:
        """The one manifest of a kind."""
        (found,) = [manifest for manifest in self.manifests if manifest["kind"] == kind]
        return found

    @property
    def pod(self) -> Manifest:
        """``spec`` of the pods."""
        spec: Manifest = self.only("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def containers(self) -> list[Manifest]:
        """The containers of the pods, also those that start before the adapter."""
        return [*self.pod.get("initContainers", ()), *self.pod["containers"]]

    def container(self, name: str = "adapter") -> Manifest:
        """A container of the pods."""
        (found,) = [each for each in self.containers if each["name"] == name]
        return found

    @property
    def settings_map(self) -> Manifest:
        """The ConfigMap that the pods mount."""
        (found,) = [each for each in self._config_maps() if "config.yaml" in each["data"]]
        return found

    @property
    def dashboards(self) -> list[Manifest]:
        """The ConfigMaps that the pods do not mount."""
        return [each for each in self._config_maps() if "config.yaml" not in each["data"]]

    def _config_maps(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] == "ConfigMap"]

    def settings_text(self) -> str:
        """The settings file that the pods mount."""
        text: str = self.settings_map["data"]["config.yaml"]
        return text

    def variables(self) -> dict[str, str]:
        """A value for each variable that the adapter's container has, from the Secret or in plain text."""
        container = self.container()
        secret = dict.fromkeys(
            ("MCP_ADAPTER_TOKEN", "MCP_ADAPTER_SIGNING_SECRET", "REDIS_PASSWORD"), "s" * 40
        )
        named = {each["name"]: each.get("value", "s" * 40) for each in container.get("env", ())}
        return {**(secret if container.get("envFrom") else {}), **named}

    def settings(self, place: Path) -> Settings:
        """The settings as the adapter reads them in its container. Raises SettingsError."""
        path = place / "config.yaml"
        path.write_text(self.settings_text())
        return load(path, environ=self.variables())


def rendered(*stack: str, sets: Sequence[str] = (), release: str = RELEASE, major: int = 3) -> Rendered:
    """The chart with value files by name, and after them assignments such as ``config.core.port=9000``.

    Raises Missing and Refused.
    """
    command = [str(helm(major)), "template", release, str(CHART)]
    return Rendered(list(_manifests(_output(command, stack, sets))))


def notes(*stack: str, sets: Sequence[str] = ()) -> str:
    """The text that an installation ends with."""
    # Helm 3 would ask a cluster first.
    command = [str(helm(4)), "install", RELEASE, str(CHART), "--dry-run=client"]
    return _output(command, stack, sets).partition("\nNOTES:\n")[2]


def lint(*stack: str, major: int = 3) -> str:
    """Helm's opinion of the chart. Raises Refused for an error or a warning."""
    return _output([str(helm(major)), "lint", "--strict", str(CHART)], stack, ())


@lru_cache
def default_values() -> Manifest:
    """Every key of the chart with its default."""
    values: Manifest = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def _output(command: Sequence[str], stack: Sequence[str], sets: Sequence[str]) -> str:
    files = [f"--values={HELM / 'values' / name}.yaml" for name in stack]
    last = yaml.safe_dump(_tree(sets))
    ran = subprocess.run(
        [*command, *files, "--values=-"],
        input=last,
        capture_output=True,
        text=True,
        timeout=HELM_TIMEOUT,
        check=False,
    )
    if ran.returncode:
        raise Refused(ran.stderr + ran.stdout)
    return ran.stdout


def _tree(sets: Sequence[str]) -> Manifest:
    """One value file of assignments, whose values are YAML."""
    tree: Manifest = {}
    for each in sets:
        path, _, value = each.partition("=")
        *sections, key = path.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = yaml.safe_load(value)
    return tree


def _manifests(text: str) -> Iterator[Manifest]:
    return (manifest for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader) if manifest is not None)
