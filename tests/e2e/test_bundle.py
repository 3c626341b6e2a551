"""The bundle for Claude Desktop, as its own tool checks it and as a host starts what is in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from adapter.version import VERSION
from deploy.bundle import write
from tests.e2e.filing import ADAPTERS
from tests.e2e.processes import Server, adapter
from tests.e2e.provision import ROOT

pytestmark = pytest.mark.e2e

_CONFIG = """
import { readFileSync } from "node:fs";
const [library, folder, set] = process.argv.slice(2);
const { getMcpConfigForManifest } = await import(library);
const manifest = JSON.parse(readFileSync(`${folder}/manifest.json`));
const options = { manifest, extensionPath: folder, systemDirs: {}, userConfig: JSON.parse(set), pathSeparator: "/" };
console.log(JSON.stringify(await getMcpConfigForManifest(options)));
"""


@pytest.fixture
def unpacked(node: Path, bundle_packages: Path, tmp_path: Path) -> Path:
    """The folder of a bundle that its tool has found valid and unpacked."""
    wheel = tmp_path / f"mcp_file_adapter-{VERSION}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    write(wheel, tmp_path / "a.mcpb")
    tool = [str(node), str(bundle_packages / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js")]
    for words in (("unpack", "a.mcpb", "unpacked"), ("validate", "unpacked/manifest.json")):
        ran = subprocess.run([*tool, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return tmp_path / "unpacked"


@pytest.mark.parametrize("sets_all", [False, True])
async def test_a_host_starts_the_bundle(
    sets_all: bool, unpacked: Path, node: Path, bundle_packages: Path, tmp_path: Path
) -> None:
    """With the address alone, and with folders, whose values are put in by the code that hosts use."""
    shared = tmp_path / "a folder"
    shared.mkdir()
    (shared / "a.txt").write_text("x")
    (tmp_path / "config.mjs").write_text(_CONFIG)
    library = (bundle_packages / "@anthropic-ai" / "mcpb" / "dist" / "index.js").as_uri()
    async with (
        Server("tests.e2e.files_server", tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS) as front,
    ):
        values: dict[str, Any] = {"url": front.url}
        if sets_all:
            values |= {"folders": [str(shared)], "save_to": str(tmp_path / "saved")}
        command = [str(node), "config.mjs", library, str(unpacked), json.dumps(values)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
        config = json.loads(ran.stdout)
        assert [config["command"], *config["args"][:3]] == ["uv", "run", "--directory", str(unpacked)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **config["env"]}
        host = StdioServerParameters(
            command=sys.executable, args=config["args"][3:], env=environ, cwd=unpacked
        )
        async with Client(stdio_client(host)) as client:
            await client.list_tools()
            done = await client.call_tool("digest", {"path": str(shared / "a.txt")})
            assert done.is_error is not sets_all, done
            if sets_all:
                await client.call_tool("draw", {"seed": 1, "size": 10, "filename": "a.bin"})
                assert (tmp_path / "saved" / "a.bin").stat().st_size == 10
