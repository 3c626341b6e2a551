"""Several servers at one address, for clients and a suite that nobody here wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conformance import FAILED, REVISIONS, run, scenarios
from tests.e2e.processes import Adapter, Server, adapter

pytestmark = [pytest.mark.e2e, pytest.mark.timed]


def merged(place: Path, urls: dict[str, str], **mount: Any) -> Adapter:
    """The adapter with these servers, by their ids, merged at ``/mcp/all``."""
    servers = [
        {"id": name, "mount_path": f"/mcp/{name}", "upstream": {"url": url}} for name, url in urls.items()
    ]
    return adapter(place, "", servers=servers, mounts=[{"id": "all", "servers": ["*"], **mount}])


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
