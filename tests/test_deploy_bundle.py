"""The bundle for Claude Desktop: the same wheel gives the same bytes, and what its person sets reaches the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from adapter.version import VERSION
from deploy.bundle import STARTED, manifest, write

ROOT = Path(__file__).parents[1]
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
