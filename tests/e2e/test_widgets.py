"""The upload widget in the system's chromium, inside a host of MCP Apps that keeps to its published contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapter.edge.files.pages import upload_widget
from adapter.relay.files.artifact_resources import iso
from adapter.rules.access.principals import Scope
from adapter.rules.files.mcp_apps import UPLOAD_WIDGET, widget_contents
from tests.e2e.console_house import Theatre, theatre
from tests.e2e.web_pages import page_served
from tests.e2e.widget_host import chat_page
from tests.edge.filing import SERVER, Desk, filed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCENES = Path(__file__).parent / "console" / "link_pages.mjs"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(
    node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Theatre]:
    async with theatre(node, chromium, tmp_path_factory.mktemp("theatre"), SCENES) as opened:
        yield opened


def result_of(desk: Desk, scope: Scope) -> dict[str, Any]:
    """The members of the helper tool's result that the widget reads."""
    url = f"http://127.0.0.1:{desk.port}{desk.upload_path(scope)}"
    return {
        "server_id": SERVER,
        "upload_url": url,
        "expires_at": iso(desk.clock() + 100),
        "max_file_bytes": 4096,
        "supports_multiple_files": True,
        "sha256_required": False,
    }


async def play(
    browser: Theatre, desk: Desk, scene: str, said: dict[str, Any], *, refuses: bool = False
) -> dict[str, Any]:
    contents = widget_contents(UPLOAD_WIDGET, upload_widget(), f"http://127.0.0.1:{desk.port}")
    result = {"content": [{"type": "text", "text": "{}"}], "structuredContent": said}
    async with page_served(chat_page(contents, result, refuses=refuses)) as chat:
        return await browser.play(scene, chat, words=[])


async def test_the_widget_uploads_and_tells_the_model(browser: Theatre, tmp_path: Path) -> None:
    """Sandboxed, under the policy that it declares; in the host's theme, and accessible."""
    async with filed(tmp_path) as (desk, scope):
        seen = await play(browser, desk, "widget", result_of(desk, scope))
        assert sorted(path.read_bytes() for path in desk.files()) == [b"one", b"two"]
    methods = [method for method, _ in seen["heard"]]
    assert methods[:2] == ["ui/initialize", "ui/notifications/initialized"]
    assert "ui/notifications/size-changed" in methods
    (message,) = [params for method, params in seen["heard"] if method == "ui/message"]
    (block,) = message["content"]
    assert message["role"] == "user" and block["type"] == "text"
    assert all(handle in block["text"] for handle in seen["handles"]) and len(seen["handles"]) == 2
    assert "<b>one</b>.txt: upload://" in block["text"]
    assert seen["status"] == "Your assistant was told." and seen["paper"] == "rgb(18, 22, 20)"
    assert (seen["wrong"], seen["errors"], seen["dialogs"]) == ([], [], [])


async def test_a_host_that_refuses_the_message_leaves_it_to_be_copied(
    browser: Theatre, tmp_path: Path
) -> None:
    """The handles stand in the widget all the same."""
    async with filed(tmp_path) as (desk, scope):
        seen = await play(browser, desk, "widget", result_of(desk, scope), refuses=True)
    assert seen["status"] == "Copy this for the chat." and len(seen["handles"]) == 2


async def test_the_link_can_be_opened_outside(browser: Theatre, tmp_path: Path) -> None:
    """By the host, where its frame has no choice of files; the longer link, where there is one."""
    async with filed(tmp_path) as (desk, scope):
        said = result_of(desk, scope)
        said |= {"open_in_browser": said["upload_url"] + "&page=1", "page_expires_at": said["expires_at"]}
        seen = await play(browser, desk, "opened_elsewhere", said)
    assert ["ui/open-link", {"url": said["open_in_browser"]}] in seen["heard"]
