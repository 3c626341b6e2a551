"""The health check of the compose files, beside a real adapter in a namespace of processes of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.missing import Missing
from tests.ports import free_port

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
