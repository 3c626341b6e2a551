"""The page on Kubernetes: its commands are Helm's, its values render, and its tables name what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.doc_blocks import blocks_of
from tests.e2e.charts import BASES, HELM, HELM_TIMEOUT, OVERLAYS, default_values, rendered
from tests.e2e.provision import ROOT, helm

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "kubernetes.md"

YQ = f"""#!{sys.executable}
import sys, yaml
assert sys.argv[1:] == ["-r", '.data["config.yaml"]']
print(yaml.safe_load(sys.stdin)["data"]["config.yaml"])
"""
"""The one filter of the page; yq itself is no package of Debian's base."""


def helm_blocks() -> list[str]:
    return [each.text for each in blocks_of(PAGE) if each.language == "sh" and "helm " in each.text]


def test_the_commands_render_and_check(tmp_path: Path) -> None:
    """Each block with Helm runs as it is pasted, without a cluster: ``install`` only renders, and kubectl is away."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script(
        programs / "helm",
        f'#!/bin/sh\ntest "$1" = install && shift && set -- template "$@"\nexec {helm(3)} "$@"\n',
    )
    script(programs / "yq", YQ)
    script(programs / "kubectl", "#!/bin/sh\n")
    script(programs / "mcp-adapter", f'#!/bin/sh\nexec {sys.executable} -m adapter "$@"\n')
    (tmp_path / "deploy").symlink_to(HELM.parent)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for block in helm_blocks():
        ran = subprocess.run(
            ["/bin/sh", "-euc", block],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HELM_TIMEOUT,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    assert len(helm_blocks()) == 3
    # The warning is that of an address that the network reaches, without a token.
    assert "settings.yaml is fine: 1 server, 1 warning." in ran.stdout


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_values_on_the_page_render() -> None:
    """Each YAML block is values of the chart, which Helm takes after those of a shape."""
    found = [yaml.safe_load(each.text) for each in blocks_of(PAGE) if each.language == "yaml"]
    assert len(found) == 3
    for values in found:
        assignments = [
            f"{key}={yaml.safe_dump(value, default_flow_style=True)}" for key, value in values.items()
        ]
        assert rendered("standalone-durable", sets=assignments)


def test_the_table_has_every_key() -> None:
    """No key of values.yaml is missing on the page, and none is there that the chart does not have."""
    rows = PAGE.read_text().partition("<!-- begin: keys -->")[2].partition("<!-- end: keys -->")[0]
    cells = re.findall(r"^\| ([^|]+) \|", rows, re.MULTILINE)[1:]
    assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == default_values().keys()


def test_the_table_has_every_value_file() -> None:
    """Each shape is described, and told of to those who know it by another name."""
    page = PAGE.read_text()
    for name in (*BASES, *OVERLAYS):
        assert len(re.findall(rf"^\|.*`{name}\.yaml` \|", page, re.MULTILINE)) == 2, name
