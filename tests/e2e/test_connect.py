"""``mcp-adapter connect`` as a server over stdio of the official SDK's client, in both eras."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

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
