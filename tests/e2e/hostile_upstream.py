"""MCP servers that nobody wants to meet, one at each path: ``/hostile``, whose every string is markup and whose answers
are long, and ``/vast``, which has thousands of tools.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from aiohttp import web

from tests.e2e import console_results as results
from tests.e2e.console_tools import HOSTILE_TEXT, TOOLS, Json
from tests.e2e.web_pages import any_of, served

_LINE = "Lorem <b>ipsum</b> dolor sit amet.\n"


def _called() -> Json:
    return {"content": [results.text(_LINE * (results.LONG // len(_LINE)))]}


def _answer(server: str, method: str, params: Json) -> Json:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": HOSTILE_TEXT, "version": HOSTILE_TEXT},
                "instructions": HOSTILE_TEXT,
            }
        case "tools/list":
            return {"tools": TOOLS[server]}
        case "tools/call":
            return _called()
        case _:
            return {}


async def _serve(request: web.Request) -> web.Response:
    if request.method != "POST":
        return web.Response(status=405 if request.method == "GET" else 200)
    message = await request.json()
    if "id" not in message:
        return web.Response(status=202)
    result = _answer(request.match_info["server"], message["method"], message.get("params") or {})
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


def hostile_upstreams() -> AbstractAsyncContextManager[str]:
    """Both on 127.0.0.1; the URL that their paths stand behind."""
    return served(any_of("/{server}", _serve))
