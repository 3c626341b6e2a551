"""Somebody's page in the system's chromium, whose own server behind the adapter would answer it with a page.

It gets no script to run at the adapter's address, where it would be the operator: read the console, call the tools of
others. What such an answer would be is in tests/edge/end_to_end/test_transparency_headers.py: sandboxed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.console_house import theatre
from tests.e2e.hostile_page import Site, hostile_site
from tests.e2e.processes import Adapter
from tests.edge.conftest import done
from tests.edge.raw import RawUpstream

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def behind_the_adapter(
    place: Path, site: Site, *, console: bool
) -> AsyncIterator[tuple[Adapter, RawUpstream]]:
    """The adapter with the site's server and a victim behind it, open to whoever is on this machine."""
    ping = {"enabled": False}
    async with RawUpstream(done) as victim:
        servers = [
            {"id": "evil", "upstream": {"url": f"{site.url}/upstream"}, "upstream_ping": ping},
            {"id": "victim", "upstream": {"url": victim.url}, "upstream_ping": ping},
        ]
        settings = {
            "core": {"tool_definition_pinning": {"mode": "off"}},
            "console": {"enabled": console, "allow_execute": console},
            "storage": {"root": str(place / "data")},
            "servers": [{"mount_path": f"/mcp/{server['id']}", **server} for server in servers],
        }
        async with Adapter(place, settings) as front:
            yield front, victim


@pytest.mark.parametrize("console", [True, False], ids=["console", "no console"])
async def test_no_page_gets_the_adapters_address(
    node: Path, chromium: Path, tmp_path: Path, console: bool
) -> None:
    """Forms, frames, fetches and navigations end at the adapter: the servers behind it hear nothing at all."""
    async with (
        theatre(node, chromium, tmp_path) as opened,
        hostile_site() as site,
        behind_the_adapter(tmp_path, site, console=console) as (front, victim),
    ):
        site.mount = f"{front.base}/mcp/evil"
        seen = await opened.play("attacked", f"{site.url}/", mount=site.mount)
        assert site.told == []
        assert (site.asked, victim.seen) == (0, [])
        posts = {status for method, status, _ in seen["answers"] if method == "POST"}
        gets = {status for method, status, _ in seen["answers"] if method == "GET"}
        assert posts <= {403, 415} and 403 in posts
        assert gets <= {400, 403} and 403 in gets
        # A page is not told the fields of what it fetched without being allowed to look.
        told = [fields for *_, fields in seen["answers"] if fields]
        assert told and all(fields["x-content-type-options"] == "nosniff" for fields in told)
