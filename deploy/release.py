"""``python -m deploy.release check TAG | images | chart``: the steps of a release that depend on whose it is.

``check`` ends with an error for a tag that the files do not fit. ``images`` builds both images; with ``--push`` for two
architectures, with bills of materials and provenance, and their digests become outputs of the workflow's step.
``chart`` pushes the packed chart. The rest is in the Makefile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from adapter.version import VERSION
from deploy.registry import IMAGE, NAME, OWNER, REPOSITORY, ROOT, SOURCE

TAGS = {"slim": VERSION, "full": f"{VERSION}-full"}
"""Of the image by the target in the Dockerfile."""

CHARTS = f"oci://ghcr.io/{OWNER.lower()}/charts"
PLATFORMS = "linux/amd64,linux/arm64"


def problems(tag: str) -> Iterator[str]:
    """What does not fit a release under this tag, in the repository that the workflow runs in."""
    if tag != f"v{VERSION}":
        yield f"the tag is {tag}, and adapter/version.py says {VERSION}"
    chart = (ROOT / "deploy/helm/mcp-adapter/Chart.yaml").read_text()
    if re.findall(r"(?m)^(?:version|appVersion): \"?([^\"\n]+)", chart) != [VERSION, VERSION]:
        yield f"version and appVersion of Chart.yaml are not {VERSION}"
    if not re.search(
        rf"(?m)^## {re.escape(VERSION)} – \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text()
    ):
        yield f"CHANGELOG.md has no heading of {VERSION} with a day"
    here = os.environ.get("GITHUB_REPOSITORY", "")
    if here != f"{OWNER}/{REPOSITORY}":
        yield f"this repository is {here or 'nobody’s'}, and the Source in pyproject.toml is {SOURCE}"


def build(target: str, *, push: bool) -> str:
    """Build an image, and push it. Returns its digest, or nothing for one that stays here."""
    with tempfile.TemporaryDirectory() as place:
        told = Path(place) / "told.json"
        flags = ["--load"]
        if push:
            flags = ["--platform", PLATFORMS, "--sbom=true", "--provenance=mode=max", "--push"]
            flags += ["--metadata-file", str(told)]
        commit = _output("git", "rev-parse", "HEAD")
        for name, value in {
            "VERSION": VERSION,
            "REVISION": commit,
            "SOURCE": SOURCE,
            "SERVER_NAME": NAME,
        }.items():
            flags += ["--build-arg", f"{name}={value}"]
        command = ["docker", "buildx", "build", "--file", "deploy/Dockerfile", "--target", target]
        _run(*command, "--tag", f"{IMAGE}:{TAGS[target]}", *flags, ".")
        return str(json.loads(told.read_text())["containerimage.digest"]) if push else ""


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603  # commands of this module


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603  # the same


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one step. Returns the exit status. Raises CalledProcessError for a program that failed."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release")
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("check").add_argument("tag")
    steps.add_parser("images").add_argument("--push", action="store_true")
    chart = steps.add_parser("chart")
    chart.add_argument("package", type=Path)
    chart.add_argument("--helm", default="helm")
    given = parser.parse_args(arguments)
    if given.step == "check":
        found = [*problems(given.tag)]
        print("\n".join(found), file=sys.stderr)
        return 1 if found else 0
    if given.step == "chart":
        _run(given.helm, "push", str(given.package), CHARTS)
        return 0
    digests = {target: build(target, push=given.push) for target in TAGS}
    with Path(os.environ.get("GITHUB_OUTPUT", os.devnull)).open("a") as outputs:
        outputs.writelines(f"{name}={value}\n" for name, value in {"name": IMAGE, **digests}.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
