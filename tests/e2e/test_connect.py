"""``mcp-adapter connect`` as a server over stdio of the official SDK's client, in both eras."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from tests.e2e.filing import ADAPTERS, MIB
from tests.e2e.processes import Server, adapter

pytestmark = pytest.mark.e2e

ERAS = ("legacy", "2026-07-28")


def host_of(place: Path, url: str, *flags: str, **variables: str) -> StdioServerParameters:
    """What a host's settings have for ``connect``, whose own data stays in ``place``."""
    environ = {**os.environ, "HOME": str(place), "XDG_DATA_HOME": "", **variables}
    arguments = ["-m", "adapter", "connect", url, *flags]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environ)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_host_uses_a_mount_over_stdio(mode: str, tmp_path: Path) -> None:
    """Tools are listed and called, and a question within a call is answered by the host."""

    async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        name = next(iter(params.requested_schema["properties"]))
        return ElicitResult(action="accept", content={name: "Dawn"})

    async with (
        Server("tests.e2e.asking_server", tmp_path) as upstream,
        adapter(tmp_path, upstream.url) as front,
    ):
        transport = stdio_client(host_of(tmp_path, front.url))
        async with Client(transport, mode=mode, elicitation_callback=answer) as client:
            assert "paint" in [tool.name for tool in (await client.list_tools()).tools]
            target = tmp_path / "painted.txt"
            done = await client.call_tool("paint", {"seed": 7, "filename": str(target)})
            assert not done.is_error, done
            assert target.read_text() == "7 Dawn Dawn"


@pytest.mark.parametrize("mode", ERAS)
async def test_files_go_up_and_come_back(mode: str, tmp_path: Path) -> None:
    """A file beside the folder stays here, and the model is told so; what a tool writes is saved on this machine."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "large.bin").write_bytes(os.urandom(9 * MIB))
    (shared / "small.txt").write_text("x")
    (tmp_path / "key").write_text("secret")
    async with (
        Server("tests.e2e.files_server", tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS) as front,
    ):
        saved = tmp_path / "saved"
        host = host_of(tmp_path, front.url, "--folder", str(shared), "--save-to", str(saved))
        async with Client(stdio_client(host), mode=mode) as client:
            await client.list_tools()
            for name in ("large.bin", "small.txt"):
                digest = hashlib.sha256((shared / name).read_bytes()).hexdigest()
                done = await client.call_tool("digest", {"path": str(shared / name)})
                assert digest in repr(done.content), done
            refused = await client.call_tool("digest", {"path": str(tmp_path / "key")})
            assert refused.is_error and "go up only from" in repr(refused.content)
            drawn = await client.call_tool("draw", {"seed": 1, "size": MIB, "filename": "a.bin"})
            assert f"Saved on this machine: {saved / 'a.bin'}" in repr(drawn.content), drawn
            assert (saved / "a.bin").stat().st_size == MIB
