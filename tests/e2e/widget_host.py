"""A host of MCP Apps: a page with a chat, in which a widget runs in a sandbox under the policy that it declares.

It speaks with the widget by ``AppBridge``, the reference implementation of that side. The policy is the one of
github.com/modelcontextprotocol/ext-apps, specification/2026-01-26/apps.mdx, "Content Security Policy Enforcement".
Unlike a real host it has no proxy between the two.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.e2e.provision import packages
from tests.e2e.web_pages import served

_ENTRY = "export { AppBridge, PostMessageTransport } from '@modelcontextprotocol/ext-apps/app-bridge';\n"
_PAGE = """<!doctype html><title>Chat</title><iframe sandbox="allow-scripts" width=400></iframe>
<script type="application/json" id=given>GIVEN</script>
<script src=/apps.js></script>
<script>
const { html, result, capabilities, refuses } = JSON.parse(document.getElementById('given').textContent);
const frame = document.querySelector('iframe');
window.heard = [];
const hear = (method) => async (params) => {
  heard.push([method, params]);
  return refuses ? { isError: true } : {};
};
const hostContext = { theme: 'dark' };
const bridge = new apps.AppBridge(null, { name: 'host', version: '1' }, capabilities, { hostContext });
bridge.onmessage = hear('ui/message');
bridge.onopenlink = hear('ui/open-link');
bridge.ondownloadfile = hear('ui/download-file');
bridge.onsizechange = hear('ui/notifications/size-changed');
bridge.oninitialized = () => {
  bridge.sendToolInput({ arguments: {} });
  bridge.sendToolResult(result);
};
const transport = new apps.PostMessageTransport(frame.contentWindow, frame.contentWindow);
bridge.connect(transport).then(() => { frame.srcdoc = html; });
</script>"""


@dataclass(frozen=True)
class Chat:
    """What the host has read (``contents`` of the widget), and the ``result`` of the tool that the widget belongs to.

    ``refuses``: the host lets the widget do nothing outside of its frame.
    """

    contents: dict[str, Any]
    result: dict[str, Any]
    capabilities: Mapping[str, Any] = field(default_factory=lambda: {"openLinks": {}})
    refuses: bool = False

    def page(self) -> str:
        told = self.contents["_meta"]["ui"]["csp"]
        connects = " ".join(told.get("connectDomains", ()))
        resources = " ".join(told.get("resourceDomains", ()))
        policy = (
            "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
            f"img-src 'self' data: {resources}; connect-src 'self' {connects}; base-uri 'self'; object-src 'none'"
        )
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        given = {
            "html": self.contents["text"].replace("<head>", f"<head>{meta}", 1),
            "result": self.result,
            "capabilities": dict(self.capabilities),
            "refuses": self.refuses,
        }
        return _PAGE.replace("GIVEN", json.dumps(given).replace("<", "\\u003c"))


async def bridge_script(node: Path, place: Path) -> str:
    """The reference implementation as one script, which defines ``apps``."""
    (place / "entry.mjs").write_text(_ENTRY)
    (place / "node_modules").symlink_to(packages())
    command: list[str | Path] = [
        packages() / ".bin" / "rolldown",
        "entry.mjs",
        "--format",
        "iife",
        "--name",
        "apps",
        "--file",
        "apps.js",
    ]
    building = await asyncio.create_subprocess_exec(
        node, *command, cwd=place, stdout=asyncio.subprocess.DEVNULL
    )
    assert await building.wait() == 0
    return (place / "apps.js").read_text()


@asynccontextmanager
async def chat_served(chat: Chat, script: str) -> AsyncIterator[str]:
    """The address of the chat."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=chat.page(), content_type="text/html")

    async def apps(_: web.Request) -> web.Response:
        return web.Response(text=script, content_type="text/javascript")

    async with served(web.get("/", page), web.get("/apps.js", apps)) as base:
        yield f"{base}/"
