"""``python -m tests.e2e.console_backend [PORT]``: the console's page with scripted servers behind it, for tests of the
page and for its screenshots. It speaks the tool API and the console's data as the adapter does, and holds nothing else.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from adapter.edge.console.page_files import PageFiles
from adapter.errors import NotFound
from tests.e2e import console_results as results
from tests.e2e import console_script as script
from tests.e2e.console_tools import TOOLS, Json
from tests.e2e.web_pages import served

PATH = "/explorer"
OPERATOR = "olga"
PRINCIPALS = {"token-of-olga": OPERATOR, "token-of-vic": "vic"}


@dataclass
class Backend:
    """``auth``: tokens are asked for. ``rough``: the hostile server is there too.

    ``calls`` tell a test what reached it.
    """

    auth: bool = False
    rough: bool = False
    allow_execute: bool = True
    calls: list[tuple[str, Json]] = field(default_factory=list)
    happened: list[Json] = field(default_factory=list)
    files: PageFiles = field(default_factory=PageFiles)

    def __post_init__(self) -> None:
        now = time.time()
        self.happened = [script.exchange(number, now - 9 * (24 - number)) for number in range(24)]

    def routes(self) -> list[web.RouteDef]:
        data: dict[str, Callable[[str], Any]] = {
            "me": self._me,
            "servers": lambda _: script.servers(rough=self.rough),
            "mounts": lambda _: script.mounts(),
            "sessions": script.sessions,
            "files": lambda _: script.files(),
            "activity": lambda _: script.activity(),
            "config": lambda _: {"yaml": script.CONFIG},
        }
        return [
            web.get(f"{PATH}/", self._page),
            web.get(f"{PATH}/assets/{{path:.+}}", self._asset),
            *(web.get(f"{PATH}/-/{name}", self._data(told)) for name, told in data.items()),
            web.get(f"{PATH}/-/exchanges", self._exchanges),
            web.get(f"{PATH}/-/connect/{{server}}", self._connect),
            web.get(f"{PATH}/-/pins/{{server}}", self._pins),
            web.get(f"{PATH}/{{server}}/tools", self._tools),
            web.get(f"{PATH}/{{server}}/prompts", self._prompts),
            web.get(f"{PATH}/{{server}}/resources", self._resource),
            web.post(f"{PATH}/{{server}}/tools/{{name:.+}}/call", self._call),
            web.post(f"{PATH}/{{server}}/tools/{{name:.+}}/validate", self._validate),
            web.get(f"{PATH}/{{server}}/tools/{{name:.+}}", self._tool),
            web.get(f"{PATH}/{{server}}", self._page),
            web.get("/artifacts/{name}", self._artifact),
        ]

    # --- the page ---------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        return _sent(await self.files.page(request.headers))

    async def _asset(self, request: web.Request) -> web.Response:
        try:
            return _sent(await self.files.file(tuple(request.match_info["path"].split("/")), request.headers))
        except NotFound:
            return web.Response(status=404)

    # --- the console's data -----------------------------------------------------------------------------------

    def _who(self, request: web.Request) -> str:
        if not self.auth:
            return "anonymous"
        principal = PRINCIPALS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if principal is None:
            raise web.HTTPUnauthorized(
                text='{"detail": "A token is needed."}', content_type="application/json"
            )
        return principal

    def _operates(self, who: str) -> bool:
        return not self.auth or who == OPERATOR

    def _me(self, who: str) -> Json:
        seen = {
            "principal": who,
            "operator": self._operates(who),
            "title": "Studio tools",
            "version": "0.1.0",
        }
        return {**seen, "allow_execute": self.allow_execute, "auth": self.auth}

    def _data(self, told: Callable[[str], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response(told(self._who(request)))

        return answer

    async def _exchanges(self, request: web.Request) -> web.StreamResponse:
        self._who(request)
        if "text/event-stream" not in request.headers.get("Accept", ""):
            return web.json_response(self.happened[::-1])
        stream = await _stream(request)
        for number in range(24, 10_000):
            await asyncio.sleep(0.25)
            one = script.exchange(number, time.time())
            await _event(stream, "exchange", one)
        return stream

    async def _connect(self, request: web.Request) -> web.Response:
        self._who(request)
        server = request.match_info["server"]
        return web.json_response(script.connect(server, f"https://tools.example.com/{server}/mcp"))

    async def _pins(self, request: web.Request) -> web.Response:
        self._who(request)
        return web.json_response(script.pins(drifted=request.match_info["server"] == "studio"))

    # --- the tool API -----------------------------------------------------------------------------------------

    async def _tools(self, request: web.Request) -> web.Response:
        listed = TOOLS.get(request.match_info["server"], [])
        return web.json_response(
            [{name: tool[name] for name in tool if name != "inputSchema"} for tool in listed]
        )

    async def _prompts(self, request: web.Request) -> web.Response:
        self._who(request)
        return web.json_response({"detail": script.NO_GRANT}, status=403)

    def _found(self, request: web.Request) -> Json:
        for tool in TOOLS.get(request.match_info["server"], []):
            if tool["name"] == request.match_info["name"]:
                return tool
        raise web.HTTPNotFound(text='{"error": "Tool not found"}', content_type="application/json")

    async def _tool(self, request: web.Request) -> web.Response:
        return web.json_response(self._found(request))

    async def _validate(self, request: web.Request) -> web.Response:
        tool, given = self._found(request), await request.json()
        properties = tool["inputSchema"].get("properties", {})
        errors = [
            {
                "path": f"/{name}",
                "message": f"{json.dumps(given.get(name))} is no {properties[name].get('type')}",
                "keyword": "type",
            }
            for name in tool["inputSchema"].get("required", [])
            if given.get(name) is None
        ]
        return web.json_response({"valid": False, "errors": errors} if errors else {"valid": True})

    async def _call(self, request: web.Request) -> web.StreamResponse:
        if not self.allow_execute:
            return web.json_response({"error": "Tool execution is disabled."}, status=403)
        tool, who = self._found(request), self._who(request)
        assert who
        given = await request.json()
        self.calls.append((tool["name"], given))
        own = {
            "own": True,
            "call": request.headers.get("X-Adapter-Call"),
            "tool": tool["name"],
            "entrance": "http",
        }
        server = {"server": request.match_info["server"], "outcome": "ok", "status": 200}
        self.happened.append({**script.exchange(0, time.time()), **own, **server})
        if "text/event-stream" not in request.headers.get("Accept", ""):
            status, body = await self._result(request, tool["name"], given)
            return web.json_response(body, status=status)
        stream = await _stream(request)
        status, body = await self._result(request, tool["name"], given)
        await _event(stream, "result", {"status": status, "body": body})
        return stream

    async def _result(self, request: web.Request, name: str, given: Json) -> tuple[int, Json]:
        base = f"{request.scheme}://{request.host}"
        if name == "strike":
            return 500, results.strike()
        if name == "say_no":
            return 500, {"content": [results.text("No, and that is all it says.")], "isError": True}
        made: dict[str, Callable[[], Json]] = {
            "draw_landscape": lambda: results.landscape(given["filename"], base),
            "report/weekly": results.weekly,
            "list_orders": results.orders,
        }
        if name in made:
            return 200, made[name]()
        counted = {"lines": 4042, "words": 31_971, "characters": 179_000, "given": given}
        return 200, {
            "content": [results.text(json.dumps(counted))],
            "structuredContent": counted,
            "isError": False,
        }

    # --- files ------------------------------------------------------------------------------------------------

    async def _resource(self, request: web.Request) -> web.Response:
        self._who(request)
        if request.query["uri"] != results.PICTURE_URI:
            return web.json_response({"detail": "Resource not found."}, status=404)
        return web.Response(body=results.PICTURE, content_type="image/png")

    async def _artifact(self, request: web.Request) -> web.Response:
        fields = {"Content-Disposition": 'attachment; filename="morning.png"'}
        return web.Response(body=results.PICTURE, content_type="image/png", headers=fields)


def _sent(answer: tuple[int, list[tuple[str, str]], bytes]) -> web.Response:
    status, fields, body = answer
    return web.Response(status=status, headers=dict(fields), body=body)


async def _stream(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await stream.prepare(request)
    return stream


async def _event(stream: web.StreamResponse, name: str, data: Any) -> None:
    await stream.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())


@asynccontextmanager
async def serving(backend: Backend, port: int = 0) -> AsyncIterator[str]:
    """The backend on 127.0.0.1; the URL of its page."""
    # A reader that goes away ends its request here as it does at the adapter.
    async with served(*backend.routes(), port=port, handler_cancellation=True) as base:
        yield f"{base}{PATH}/"


async def main() -> None:
    """Serves until it is stopped; ``rough`` and ``auth`` among the arguments turn those on."""
    words = sys.argv[1:]
    port = next((int(word) for word in words if word.isdigit()), 8099)
    async with serving(Backend(auth="auth" in words, rough="rough" in words), port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
