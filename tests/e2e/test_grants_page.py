"""A real browser goes from the link to the grant: its rules for cookies, forms and redirects hold on the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.console_house import played
from tests.edge.conftest import adapter, upstream
from tests.edge.granting import TOKENS, StartScene, scene_of
from tests.ports import free_port

SCRIPTS = Path(__file__).parent / "console"
TIMEOUT = 60.0

__all__ = ["adapter", "upstream"]


@pytest.fixture
def scene(upstream: Any, adapter: Any) -> StartScene:
    """See ``scene_of``."""
    return scene_of(upstream, adapter)


async def seen_by(node: Path, chromium: Path, place: Path, script: str, *words: str) -> dict[str, Any]:
    """What a browser saw that does what a script says; all pages behaved."""
    seen = await played(node, chromium, place, SCRIPTS / script, *words, within=TIMEOUT)
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
        seen = await seen_by(node, chromium, tmp_path, "grant.mjs", link, TOKENS["bob"])
        assert seen["titles"][-1] == "No access was given"
        seen = await seen_by(node, chromium, tmp_path, "grant.mjs", link, TOKENS["alice"])
        assert seen["titles"] == ["Give access?", "Access given"]
        assert (await it.call("alice"))["result"]["content"][0]["text"] == "alice"


async def test_an_operator_revokes_a_grant_on_the_console(
    node: Path, chromium: Path, tmp_path: Path, scene: StartScene
) -> None:
    """The row says whose it is; after the button the next call asks the person anew."""
    async with scene(console={"enabled": True, "path": "/explorer", "operators": ["bob"]}) as it:
        await it.grant("alice")
        url = f"http://127.0.0.1:{it.front.port}/explorer/"
        seen = await seen_by(node, chromium, tmp_path, "revoke.mjs", url, TOKENS["bob"])
        assert "alice" in seen["row"]
        assert "Revoked" in seen["said"]
        assert (await it.call("alice"))["result"]["isError"]
