"""Pages of signed links in the system's chromium: a person sends files, and opens a file that a tool wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapter.rules.access.principals import Scope
from tests.e2e.console_house import Theatre, theatre
from tests.e2e.web_pages import page_served
from tests.edge.filing import MIB, Desk, filed, filing

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCENES = Path(__file__).parent / "console" / "link_pages.mjs"
CALM: dict[str, list[str]] = {"wrong": [], "dialogs": [], "errors": [], "elsewhere": []}
"""What a browser reports of a good page: it is accessible and keeps its policy, and asks nobody else for anything."""
HOSTILE = "<img src=x onerror=alert(1)><b>a\u202egnp.png"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(
    node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Theatre]:
    async with theatre(node, chromium, tmp_path_factory.mktemp("theatre"), SCENES) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with filing(tmp_path) as desk:
        yield desk


@pytest_asyncio.fixture(loop_scope="module")
async def scope(desk: Desk) -> Scope:
    return (await desk.session())[1]


def url(desk: Desk, path: str) -> str:
    return f"http://127.0.0.1:{desk.port}{path}"


def link(desk: Desk, scope: Scope) -> str:
    """A fresh link to upload."""
    return url(desk, desk.upload_path(scope))


def kept(desk: Desk) -> dict[str, bytes]:
    """The files on disk, by name."""
    return {path.name: path.read_bytes() for path in desk.files()}


def calm(seen: dict[str, Any]) -> bool:
    return {name: seen[name] for name in CALM} == CALM


async def test_two_photographs_leave_a_phone(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """By touch on 390 pixels; a second visit finds the link used, and says what to ask for."""
    seen = await browser.play("phone", link(desk, scope), words=[])
    assert len(seen["handles"]) == 2 and all(each.startswith("upload://") for each in seen["handles"])
    assert sorted(kept(desk)) == ["one.png", "two.png"]
    assert seen["wide"] == [390, 390] and "ask your assistant" in seen["again"]
    assert seen["statuses"] == [200, 200, 401] and calm(seen)


async def test_a_keyboard_is_enough(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """Files are chosen, removed, sent and copied by it, and the focus is where the reader goes on."""
    seen = await browser.play("keyboard", link(desk, scope), words=[])
    assert seen["names"][:2] == ["Remove one.txt", "Upload"]
    assert seen["focused"] == "done" and calm(seen)
    assert kept(desk) == {"two.txt": b"two"}


async def test_a_plain_form_is_enough(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """Without JavaScript the answer is a page with the handles, in which names are text."""
    seen = await browser.play("plain", link(desk, scope), words=["<b>one</b>.txt"])
    assert len(seen["handles"]) == 2 and "<b>one</b>.txt" in seen["told"]
    assert sorted(kept(desk).values()) == [b"one", b"two"]
    assert "ask your assistant" in seen["again"] and seen["controls"] == 0 and calm(seen)


async def test_the_dark_is_readable(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """The colours of a dark page have contrast enough."""
    seen = await browser.play("dark", link(desk, scope), words=[])
    assert seen["paper"] == "rgb(18, 22, 20)" and calm(seen)


async def test_names_are_never_markup(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """A file that is called like an element makes none."""
    seen = await browser.play("hostile", link(desk, scope), words=[HOSTILE])
    assert (
        seen["made"] == 0
        and "<img src=x" in seen["listed"]
        and "<img src=x" in seen["arrived"]
        and calm(seen)
    )


async def test_a_failed_upload_can_be_tried_again(browser: Theatre, tmp_path: Path) -> None:
    """A full disk, a lost connection and a cancelled upload are told in plain words, and spend nothing."""
    async with filed(tmp_path, total=MIB) as (desk, scope):
        seen = await browser.play("retried", link(desk, scope), words=[str(MIB + 5)])
        assert "no space left" in seen["told"][0] and "storage.max_size" in seen["told"][0]
        assert "connection was lost" in seen["told"][1] and "cancelled" in seen["told"][2]
        assert kept(desk) == {"small.txt": b"small"} and calm(seen)


async def test_a_file_that_is_too_large_is_not_sent(browser: Theatre, tmp_path: Path) -> None:
    """The page names the file and the limit before a byte leaves."""
    async with filed(tmp_path, max_file_bytes=1024) as (desk, scope):
        seen = await browser.play("fault", link(desk, scope), words=["2048"])
        assert "large.bin has 2 KB. One file may have 1 KB" in seen["told"]
        assert seen["statuses"] == [200] and calm(seen)


async def test_files_are_dropped_and_pasted(browser: Theatre, tmp_path: Path) -> None:
    """Each counts as chosen; where digests are required the page makes them."""
    async with filed(tmp_path, require_sha256=True) as (desk, scope):
        seen = await browser.play("dropped", link(desk, scope), words=[])
        assert kept(desk) == {"dropped.txt": b"dropped.txt", "pasted.txt": b"pasted.txt"}
        assert calm(seen)


async def test_no_other_page_frames_it(browser: Theatre, desk: Desk, scope: Scope) -> None:
    """A page elsewhere that has it in a frame shows nothing of it."""
    async with page_served(f'<title>x</title><iframe src="{link(desk, scope)}"></iframe>') as elsewhere:
        seen = await browser.play("framed", elsewhere, words=[])
    assert seen["framed"] == 0


async def test_a_sandboxed_page_elsewhere_uploads_by_the_link(
    browser: Theatre, desk: Desk, scope: Scope
) -> None:
    """Its origin is null. Cookies are never sent along, and without the link nothing is to be had."""
    frame = '<iframe sandbox="allow-scripts" srcdoc="<p>widget"></iframe>'
    async with page_served(frame) as elsewhere:
        seen = await browser.play("elsewhere", elsewhere, words=[link(desk, scope)])
    assert seen == {
        "origin": "null",
        "included": ["blocked", 0],
        "bare": ["blocked", 0],
        "sandboxed": [200, 1],
    }


@pytest.mark.parametrize("cut", ["&sig=x", "?", "expired"])
async def test_a_link_that_is_not_good_says_what_to_ask(
    browser: Theatre, desk: Desk, scope: Scope, cut: str
) -> None:
    """Expired, incomplete or changed: one page, with nothing to fill in."""
    address = link(desk, scope)
    if cut == "expired":
        desk.clock.ahead = 3600
    address = address.partition("?")[0] if cut == "?" else address + (cut if cut != "expired" else "")
    seen = await browser.play("failed", address, words=[])
    assert "ask your assistant for a new upload link" in seen["told"]
    assert (seen["statuses"], seen["controls"]) == ([401], 0) and calm(seen)


async def test_a_file_that_is_not_safe_to_open_is_shown_first(
    browser: Theatre, desk: Desk, scope: Scope
) -> None:
    """Name, size and type, and a button that saves it; a picture is saved at once, as by programs."""
    record = await desk.artifact(scope, b"<script>alert(1)</script>", "<i>page</i>.html")
    seen = await browser.play("file", url(desk, desk.artifact_path(record)), words=[])
    for fact in ("<i>page</i>.html", "25 bytes", "text/html"):
        assert fact in seen["told"]
    assert seen["content"] == "<script>alert(1)</script>" and calm(seen)
    picture = await desk.artifact(scope, b"\x89PNG\r\n\x1a\n", "shot.png")
    seen = await browser.play("saved", url(desk, desk.artifact_path(picture)), words=[])
    assert seen["name"] == "shot.png"
