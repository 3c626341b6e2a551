"""Somebody's page in the system's chromium, and a server behind the adapter that answers with pages of its own.

Neither gets a script to run at the adapter's address, where it would be the operator: read the console, call the tools
of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.console_house import Theatre, theatre
from tests.e2e.hostile_page import Site, hostile_site, old_browser
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


async def played(opened: Theatre, site: Site, address: str) -> dict[str, Any]:
    """Attack the adapter at ``address``, and return what the browser saw."""
    site.mount = f"{address}/mcp/evil"
    return await opened.play("attacked", f"{site.url}/", mount=site.mount)


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
        seen = await played(opened, site, front.base)
        assert site.told == []
        assert (site.asked, victim.seen) == (0, [])
        posts = {status for method, status, _ in seen["answers"] if method == "POST"}
        gets = {status for method, status, _ in seen["answers"] if method == "GET"}
        assert posts <= {403, 415} and 403 in posts
        assert gets <= {400, 403} and 403 in gets
        # A page is not told the fields of what it fetched without being allowed to look.
        told = [fields for *_, fields in seen["answers"] if fields]
        assert told and all(fields["x-content-type-options"] == "nosniff" for fields in told)


@pytest.mark.parametrize("console", [True, False], ids=["console", "no console"])
async def test_no_answer_of_a_server_runs_as_a_page(
    node: Path, chromium: Path, tmp_path: Path, console: bool
) -> None:
    """Also where a browser says nothing of what it asks for: the server's page is shown, and its script stays dead."""
    async with (
        theatre(node, chromium, tmp_path) as opened,
        hostile_site() as site,
        behind_the_adapter(tmp_path, site, console=console) as (front, victim),
        old_browser(front.base) as address,
    ):
        seen = await played(opened, site, address)
        assert site.asked > 0, "the server's page was to be shown"
        assert (site.told, victim.seen) == ([], [])
        pages = [
            fields for *_, fields in seen["answers"] if fields.get("content-type", "").startswith("text/html")
        ]
        assert pages
        assert "null" in seen["frames"], "a sandboxed page has no origin"
        for fields in pages:
            assert fields["content-security-policy"] == "sandbox; default-src 'none'"
            assert "set-cookie" not in fields and "refresh" not in fields
