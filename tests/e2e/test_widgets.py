"""The widgets in the system's chromium, inside a host that speaks by the reference bridge."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapter.edge.files.pages import files_widget, upload_widget
from adapter.relay.files.artifact_resources import iso
from adapter.rules.access.principals import Scope
from adapter.rules.clients.hosts import FILES_WIDGET, UPLOAD_WIDGET, widget_contents
from tests.e2e.console_house import Theatre, theatre
from tests.e2e.widget_host import Chat, bridge_script, chat_served
from tests.edge.filing import SERVER, Desk, filed

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCENES = Path(__file__).parent / "console" / "link_pages.mjs"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    script = await bridge_script(node, tmp_path_factory.mktemp("bridge"))
    async with theatre(node, chromium, tmp_path_factory.mktemp("theatre"), SCENES) as opened:
        yield Stage(opened, script)


def result_of(desk: Desk, scope: Scope) -> dict[str, Any]:
    """The members of the helper tool's result that the widget reads."""
    url = f"http://127.0.0.1:{desk.port}{desk.upload_path(scope)}"
    return {
        "server_id": SERVER,
        "upload_url": url,
        "expires_at": iso(desk.clock() + 100),
        "max_file_bytes": 4096,
        "max_files": 5,
        "sha256_required": False,
    }


@dataclass(frozen=True)
class Stage:
    """A browser and the script of a host."""

    browser: Theatre
    script: str

    async def play(
        self, desk: Desk, scene: str, said: dict[str, Any], *, refuses: bool = False
    ) -> dict[str, Any]:
        """What happened in a chat whose tool said this in structured content."""
        contents = widget_contents(UPLOAD_WIDGET, upload_widget(), f"http://127.0.0.1:{desk.port}")
        result = {"content": [{"type": "text", "text": "{}"}], "structuredContent": said}
        return await self.play_in(Chat(contents, result, refuses=refuses), scene)

    async def play_in(self, chat: Chat, scene: str) -> dict[str, Any]:
        async with chat_served(chat, self.script) as address:
            return await self.browser.play(scene, address, words=[])


async def test_the_widget_uploads_and_tells_the_model(stage: Stage, tmp_path: Path) -> None:
    """Sandboxed, under the policy that it declares; in the host's theme, and accessible."""
    async with filed(tmp_path) as (desk, scope):
        seen = await stage.play(desk, "widget", result_of(desk, scope))
        assert sorted(path.read_bytes() for path in desk.files()) == [b"one", b"two"]
    assert "ui/notifications/size-changed" in [method for method, _ in seen["heard"]]
    (message,) = [params for method, params in seen["heard"] if method == "ui/message"]
    (block,) = message["content"]
    assert message["role"] == "user" and block["type"] == "text"
    assert all(handle in block["text"] for handle in seen["handles"]) and len(seen["handles"]) == 2
    assert "<b>one</b>.txt: upload://" in block["text"]
    assert seen["status"] == "Your assistant was told." and seen["paper"] == "rgb(18, 22, 20)"
    assert (seen["wrong"], seen["errors"], seen["dialogs"]) == ([], [], [])


async def test_a_host_that_refuses_the_message_leaves_it_to_be_copied(stage: Stage, tmp_path: Path) -> None:
    """The handles stand in the widget all the same."""
    async with filed(tmp_path) as (desk, scope):
        seen = await stage.play(desk, "widget", result_of(desk, scope), refuses=True)
    assert seen["status"] == "Copy this for the chat." and len(seen["handles"]) == 2


async def test_the_link_can_be_opened_outside(stage: Stage, tmp_path: Path) -> None:
    """By the host, where its frame has no choice of files; the longer link, where there is one."""
    async with filed(tmp_path) as (desk, scope):
        said = result_of(desk, scope)
        said |= {"open_in_browser": said["upload_url"] + "&page=1", "page_expires_at": said["expires_at"]}
        seen = await stage.play(desk, "opened_elsewhere", said)
    assert ["ui/open-link", {"url": said["open_in_browser"]}] in seen["heard"]


# --- what tools wrote -----------------------------------------------------------------------------------------

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TABLE = b'name,"the ""other"", one"\r\n<b>x</b>,2\n'


@pytest.mark.parametrize("downloads", [True, False])
async def test_the_widget_shows_what_a_tool_wrote(stage: Stage, tmp_path: Path, downloads: bool) -> None:
    """A picture, a table and a name, each as text and by its link; the host saves it, or opens the link."""
    async with filed(tmp_path) as (desk, scope):
        told, urls = [], []
        for content, name in ((PIXEL, "<b>a</b>.png"), (TABLE, "t.csv"), (b"PK\x03\x04", "x.zip")):
            record = await desk.artifact(scope, content, name)
            urls.append(f"http://127.0.0.1:{desk.port}{desk.artifact_path(record)}")
            kind = record.content.media_type
            told.append(
                {"filename": name, "mime_type": kind, "size_bytes": len(content), "download_url": urls[-1]}
            )
        contents = widget_contents(FILES_WIDGET, files_widget(), f"http://127.0.0.1:{desk.port}")
        capabilities: dict[str, Any] = {"downloadFile": {}} if downloads else {"openLinks": {}}
        result = {"content": [], "_meta": {"artifact": told[0], "artifacts": told}}
        seen = await stage.play_in(Chat(contents, result, capabilities), "files")
    assert [name.split("\n")[0] for name in seen["names"]] == ["<b>a</b>.png", "t.csv", "x.zip"]
    assert (seen["width"], seen["made"]) == (1, 0)
    assert seen["cells"] == [["name", 'the "other", one'], ["<b>x</b>", "2"]]
    if downloads:
        assert [
            params["contents"][0]["uri"] for method, params in seen["heard"] if method == "ui/download-file"
        ] == urls
    else:
        assert seen["heard"] == [["ui/open-link", {"url": url}] for url in urls]
    assert (seen["wrong"], seen["errors"], seen["dialogs"]) == ([], [], [])
