"""Several servers at one address, for clients and a suite that nobody here wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conformance import FAILED, REVISIONS, run, scenarios
from tests.e2e.processes import Adapter, Server, adapter
from tests.e2e.talk import Command, connected

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

UPSTREAM = "tests.e2e.upstream_server"
LEGACY = ("python_v1", "python_v2 legacy", "ts_v1", "ts_v2 legacy")
MODERN = ("python_v2 2026-07-28", "ts_v2 2026-07-28", "python_v2 auto", "fastmcp4", "ts_v2 auto")


def merged(place: Path, urls: dict[str, str], **mount: Any) -> Adapter:
    """The adapter with these servers, by their ids, merged at ``/mcp/all``."""
    servers = [
        {"id": name, "mount_path": f"/mcp/{name}", "upstream": {"url": url}} for name, url in urls.items()
    ]
    return adapter(place, "", servers=servers, mounts=[{"id": "all", "servers": ["*"], **mount}])


@pytest.mark.parametrize("name", [*LEGACY, *MODERN])
async def test_official_clients_use_several_servers_at_one_address(
    name: str, command: Command, tmp_path: Path
) -> None:
    """Lists and calls tools of two servers, and reads why those of a dead one fail."""
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    async with Server(UPSTREAM, tmp_path / "one") as one, Server(UPSTREAM, tmp_path / "two") as two:
        urls = {"one": one.url, "two": two.url, "dead": "http://127.0.0.1:9/mcp"}
        async with (
            merged(tmp_path, urls) as front,
            connected(command, name, f"{front.base}/mcp/all", tmp_path) as client,
        ):
            listed = await client.ask("list")
            assert listed["text"] == "one_echo one_wait two_echo two_wait"
            called = await client.ask("call", tool="two_echo", arguments={"text": "hi"})
            assert called["text"] == "you said hi"
            refused = await client.ask("call", tool="dead_echo", arguments={"text": "hi"})
            assert not refused["ok"]
            assert "pstream" in refused["text"]
            assert (await client.ask("call", tool="one_echo", arguments={"text": "on"}))["ok"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_conformance_suite_passes_through_a_mount(
    revision: str, node: Path, tmp_path: Path
) -> None:
    """A mount of one server without prefixes is as good a server as that one."""
    async with (
        Server("tests.e2e.conformance_server", tmp_path) as upstream,
        merged(tmp_path, {"one": upstream.url}, prefix="none") as front,
    ):
        found = await run(f"{front.base}/mcp/all", revision, tmp_path / "results")
    assert set(found) == set(await scenarios(revision))
    checks = [check for each in found.values() for check in each]
    assert [check for check in checks if check.status in FAILED] == []
