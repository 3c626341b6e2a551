"""The workflows of .github/, and what their steps do as far as that needs no network."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.version import VERSION
from deploy.registry import IMAGE, NAME, OWNER, REPOSITORY, ROOT
from deploy.release import CHARTS, problems
from tests.e2e.provision import helm, venv

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TIMEOUT = 300.0

pytestmark = pytest.mark.xdist_group("package")


def steps() -> Iterator[dict[str, Any]]:
    """All steps of all jobs."""
    for workflow in WORKFLOWS:
        for job in yaml.safe_load(workflow.read_text())["jobs"].values():
            yield from job.get("steps", ())


@pytest.mark.deep
def test_actionlint_finds_nothing() -> None:
    """Forms, expressions, permissions and the scripts of all steps are as GitHub takes them."""
    program = venv("release").with_name("actionlint")
    done = subprocess.run([program, *WORKFLOWS], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_what_is_run_of_others_cannot_change() -> None:
    """Actions are named by their commit, with their version beside it, and images by their digest."""
    text = "".join(workflow.read_text() for workflow in WORKFLOWS)
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert len(used) > 10
    for action, comment in used:
        assert action.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
        assert action.startswith("./") or re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    digests = re.findall(r"python:3\S*@(sha256:[0-9a-f]{64})", text)
    base = re.findall(
        r"(?m)^ARG PYTHON=3\S*@(sha256:[0-9a-f]{64})$", (ROOT / "deploy/Dockerfile").read_text()
    )
    assert digests == base and len(base) == 1
    froms = re.findall(r"(?m)^FROM (\S+)", (ROOT / "deploy/Dockerfile").read_text())
    assert set(froms) == {"python:${PYTHON}", "slim"}


def test_steps_are_targets_of_the_makefile() -> None:
    """What a step makes is in the Makefile, so that it can be done on any machine."""
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    made = [word for step in steps() for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))]
    assert {"lint", "test", "release", "release-check", "push-images", "push-chart"} <= set(made) <= targets
    # It has a token for the package index or the registry: no code of the repository or of others runs there.
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    guarded = {name: job for name, job in jobs.items() if "environment" in job}
    assert set(guarded) == {"package", "release"}
    assert not any("checkout" in str(job["steps"]) for job in guarded.values())


def test_a_tag_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing that the tag or the repository contradicts has its sentence."""
    monkeypatch.setenv("GITHUB_REPOSITORY", f"{OWNER}/{REPOSITORY}")
    # The versions of the files agree; the day stands in the notes when there is one.
    assert [each for each in problems(f"v{VERSION}") if "CHANGELOG.md" not in each] == []
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/else")
    found = "\n".join(problems("v9"))
    assert f"the tag is v9, and adapter/version.py says {VERSION}" in found
    assert "this repository is somebody/else" in found


DOCKER = """#!/bin/sh
echo "$@" >> "$TOLD"
while [ $# -gt 1 ]; do
  case "$1" in --metadata-file) echo '{"containerimage.digest": "sha256:'"$FAKE_DIGEST"'"}' > "$2";; esac
  shift
done
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A repository with the tracked files as they are."""
    place = tmp_path / "sources"
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).strip("\0").split("\0")
    for name in listed:
        if (ROOT / name).exists() and not name.startswith(("docs/images/", "tests/e2e/")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=place, check=True, timeout=TIMEOUT)
    return place


def made(sources: Path, *arguments: str, **variables: str) -> None:
    """Run make there, with the packages of these tests."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))
    }
    where = [f"BIN={Path(sys.executable).parent}", f"PYTHON={sys.executable}", f"HELM={helm(3)}"]
    done = subprocess.run(
        ["make", "--old-file=.venv/.ready", "--old-file=.venv/.dev", *where, *arguments],
        cwd=sources,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.deep
def test_the_steps_of_a_release_work(sources: Path, tmp_path: Path) -> None:
    """``make release`` fills dist/ and its checksums fit; the pushes name both images, their labels and the chart."""
    made(sources, "release", "ARGS=--no-isolation")
    dist = sources / "dist"
    names = {path.name for path in dist.iterdir()}
    chart = f"mcp-adapter-{VERSION}.tgz"
    assert {chart, "server.json", "sbom.cdx.json", f"mcp_file_adapter-{VERSION}.tar.gz"} <= names
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names - {"SHA256SUMS"}
    }
    with tarfile.open(dist / chart) as archive:
        assert "mcp-adapter/alerts/mcp-adapter.yaml" in archive.getnames()

    tools, told, outputs = tmp_path / "tools", tmp_path / "told", tmp_path / "outputs"
    tools.mkdir()
    (tools / "docker").write_text(DOCKER)
    (tools / "docker").chmod(0o755)
    (tools / "helm").symlink_to(tools / "docker")
    variables = {"PATH": f"{tools}:{os.environ['PATH']}", "TOLD": str(told), "GITHUB_OUTPUT": str(outputs)}
    made(sources, "push-images", **variables, FAKE_DIGEST="ab" * 32)
    made(sources, "push-chart", "HELM=helm", **variables)
    slim, full, pushed = told.read_text().splitlines()
    for build, target, tag in ((slim, "slim", VERSION), (full, "full", f"{VERSION}-full")):
        assert f"--target {target} --tag {IMAGE}:{tag} " in build
        assert f"SERVER_NAME={NAME}" in build and "--platform linux/amd64,linux/arm64" in build
        assert "--sbom=true" in build and "--provenance=mode=max" in build and "--push" in build
    assert pushed == f"push dist/{chart} {CHARTS}"
    digest = f"sha256:{'ab' * 32}"
    assert outputs.read_text().splitlines() == [f"name={IMAGE}", f"slim={digest}", f"full={digest}"]
