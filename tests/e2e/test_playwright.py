"""A real server with real browsers behind it: Playwright MCP with the system's chromium, through the adapter."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.e2e.browsers import playwright_argv
from tests.e2e.processes import adapter, listens, start
from tests.e2e.replicas import serving
from tests.e2e.talk import Talk, connected
from tests.e2e.web_pages import page_served
from tests.ports import free_port

pytestmark = pytest.mark.e2e

BROWSER_TIMEOUT = 30.0
"""Seconds the first call of a client may take: a browser is started for it."""

PAGE = """<!doctype html><title>Clicks</title><h1>Clicks</h1><button>Click me</button><p></p>
<script>
const show = () => { document.querySelector('p').textContent = `clicked ${localStorage.clicks ?? 0} times`; };
document.querySelector('button').onclick = () => {
  localStorage.clicks = Number(localStorage.clicks ?? 0) + 1;
  show();
};
show();
</script>"""

PATIENT = {"PLAYWRIGHT_MCP_PING_TIMEOUT_MS": "60000"}
"""By default it gives up a session after five seconds, which an adapter may need to start on a busy machine."""


@pytest.fixture
async def page() -> AsyncIterator[str]:
    """The address of a page that counts clicks in its browser's storage."""

    async with page_served(PAGE) as url:
        yield url


@pytest.fixture
async def playwright(node: Path, chromium: Path, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of Playwright MCP, which starts a browser of its own for every session."""
    port = free_port()
    # It serves the name localhost only, though it is bound to the address.
    where = ["--host", "127.0.0.1", "--port", str(port), "--allowed-hosts", f"127.0.0.1:{port}"]
    argv = [*playwright_argv(node, chromium, tmp_path), *where]
    async with await start(argv, tmp_path / "playwright.log", PATIENT) as running:
        await listens(port, running)
        yield f"http://127.0.0.1:{port}/mcp"


def visitor(url: str, place: Path) -> AbstractAsyncContextManager[Talk]:
    """A connected client of the SDK, in the era that Playwright MCP speaks."""
    argv: list[str | Path] = [sys.executable, "-m", "tests.e2e.clients.python_v2"]
    return connected(lambda _: argv, "python_v2 legacy", url, place)


async def browse(client: Talk, tool: str, **arguments: str) -> str:
    """What the tool says, which it must say without an error."""
    told = await client.ask("call", tool=tool, arguments=arguments, timeout=BROWSER_TIMEOUT)
    assert told["ok"], told
    return str(told["text"])


@pytest.mark.parametrize("shape", [{}, {"replicas": 3}, {"workers": 3}], ids=["one", "replicas", "workers"])
async def test_two_clients_have_two_browsers(
    shape: dict[str, int], replicas_programs: None, playwright: str, page: str, tmp_path: Path
) -> None:
    """What one client's browser stored, the other's does not know; each call meets the browser that the one before
    it left, also where it reaches another replica or worker."""
    async with (
        serving(tmp_path, playwright, **shape) as front,
        visitor(front.url, tmp_path) as ada,
        visitor(front.url, tmp_path) as ben,
    ):
        await browse(ada, "browser_navigate", url=page)
        await browse(ada, "browser_click", element="the button", target="button")
        await browse(ben, "browser_navigate", url=page)
        assert "clicked 0 times" in await browse(ben, "browser_snapshot")
        assert "clicked 1 times" in await browse(ada, "browser_snapshot")
        await browse(ada, "browser_navigate", url=page)
        assert "clicked 1 times" in await browse(ada, "browser_snapshot")


async def test_browser_outlives_the_session_of_its_host(playwright: str, page: str, tmp_path: Path) -> None:
    """With one session for each principal, a host that opens one for every call finds the page it left."""
    shared = {"upstream": "principal"}
    async with adapter(tmp_path, playwright, sessions=shared) as front:
        async with visitor(front.url, tmp_path) as client:
            await browse(client, "browser_navigate", url=page)
        async with visitor(front.url, tmp_path) as client:
            await browse(client, "browser_click", element="the button", target="button")
        await front.kill()
        await front.start()
        async with visitor(front.url, tmp_path) as client:
            assert "clicked 1 times" in await browse(client, "browser_snapshot")
