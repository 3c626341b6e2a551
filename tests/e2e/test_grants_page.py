"""A real browser goes from the link to the grant: its rules for cookies, forms and redirects hold on the pages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import start
from tests.e2e.provision import packages
from tests.edge.conftest import adapter, upstream
from tests.edge.granting import TOKENS, StartScene, scene_of
from tests.ports import free_port

SCRIPT = Path(__file__).parent / "console" / "grant.mjs"
TIMEOUT = 60.0

__all__ = ["adapter", "upstream"]


@pytest.fixture
def scene(upstream: Any, adapter: Any) -> StartScene:
    """See ``scene_of``."""
    return scene_of(upstream, adapter)


async def visited(node: Path, chromium: Path, place: Path, link: str, token: str) -> dict[str, Any]:
    """What the browser of a person with that token saw."""
    environment = {**os.environ, "NODE_MODULES": str(packages()), "CHROMIUM": str(chromium)}
    running = await start([node, SCRIPT, link, token], place / "grant.log", environment)
    try:
        seen: dict[str, Any] = json.loads(await running.line(TIMEOUT))
    finally:
        await running.stop()
    assert (seen["axe"], seen["violations"], seen["errors"]) == ([], [], [])
    return seen


async def test_a_person_gives_a_grant_in_a_browser(
    node: Path, chromium: Path, tmp_path: Path, scene: StartScene
) -> None:
    """The authorization server is another site, so the cookie comes back as SameSite=Lax lets it; afterwards the call
    goes on. Another person's token is refused, and the pages are accessible.
    """
    port = free_port()
    core = {"port": port, "public_base_url": f"http://127.0.0.1:{port}"}
    async with scene(core=core, issuer={"host": "localhost"}) as it:
        link = await it.link("alice")
        seen = await visited(node, chromium, tmp_path, link, TOKENS["bob"])
        assert seen["titles"][-1] == "No access was given"
        seen = await visited(node, chromium, tmp_path, link, TOKENS["alice"])
        assert seen["titles"] == ["Give access?", "Access given"]
        assert (await it.call("alice"))["result"]["content"][0]["text"] == "alice"
