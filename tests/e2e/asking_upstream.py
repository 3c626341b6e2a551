"""An MCP server of the era with sessions that asks its client for everything: forms, links, a model, folders. It has
prompts and resources too, and all its words are markup where a server may choose them.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web

from tests.e2e.console_tools import HOSTILE_TEXT, Json
from tests.e2e.web_pages import any_of, served

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LINK = "https://sign.example/authorize/x?state=0123456789&next=%2Fhome"
FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 20},
        "mail": {"type": "string", "title": "E-mail", "format": "email", "description": HOSTILE_TEXT},
        "site": {"type": "string", "format": "uri"},
        "born": {"type": "string", "format": "date"},
        "meet": {"type": "string", "format": "date-time"},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "share": {"type": "number", "default": 0.5},
        "quiet": {"type": "boolean", "default": True},
        "room": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "default": "l"},
        "view": {
            "type": "string",
            "oneOf": [{"const": "sea", "title": "The sea"}, {"const": "hill", "title": "Hills"}],
        },
        "extras": {"type": "array", "items": {"type": "string", "enum": ["bike", "boat"]}},
        "colours": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {
                "anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}, {"const": "b"}]
            },
            "default": ["r"],
        },
    },
    "required": ["name", "age", "view"],
}
FILES: Json = {
    "type": "object",
    "properties": {
        "job": {
            "type": "object",
            "properties": {
                "sources": {
                    "type": "array",
                    "items": {"type": "string", "description": "The files to weigh."},
                },
                "title": {"type": "string"},
            },
            "required": ["sources"],
        }
    },
    "required": ["job"],
}
NAGS = 30
"""Times that a server says the same, or asks for what nobody has."""

PLAIN = ("form", "aside", "link", "blocked", "model", "nag", "grow")
TOOLS = [
    *({"name": name, "inputSchema": {"type": "object"}} for name in PLAIN),
    {"name": "weigh", "description": "Weighs files.", "inputSchema": FILES},
]
PROMPT = {
    "name": "greet",
    "title": "A greeting",
    "description": HOSTILE_TEXT,
    "arguments": [{"name": "whom", "required": True, "description": "Who is greeted"}, {"name": "tone"}],
}
RESOURCES: list[Json] = [
    {"uri": "asking://guide", "name": "guide", "mimeType": "text/markdown", "description": HOSTILE_TEXT},
    {"uri": "asking://page", "name": "page", "mimeType": "text/html"},
    {"uri": "asking://dot", "name": "dot", "mimeType": "image/png"},
    {"uri": "asking://bytes", "name": "bytes.bin", "mimeType": "application/octet-stream"},
]
TEMPLATE = {"uriTemplate": "asking://city/{name}{?lang}", "name": "city", "mimeType": "text/plain"}
WORDS = ["Lisbon", "Lima", "Linz"]


@dataclass
class _Session:
    aside: asyncio.Queue[Json] = field(default_factory=asyncio.Queue)
    waiting: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    prompts: list[Json] = field(default_factory=lambda: [PROMPT])

    def asked(self, method: str, params: Json) -> tuple[Json, asyncio.Future[Any]]:
        number = f"q{len(self.waiting)}"
        self.waiting[number] = asyncio.get_running_loop().create_future()
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, self.waiting[number]


@dataclass
class AskingUpstream:
    """``capabilities`` are those of the clients that came; ``answers`` is what they answered."""

    url: str = ""
    capabilities: list[Json] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    opened: bool = False
    _sessions: dict[str, _Session] = field(default_factory=dict)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await self._post(request, await request.json())
        session = self._sessions.get(request.headers.get("Mcp-Session-Id", ""))
        if request.method == "GET" and session is not None:
            return await _listen(request, session)
        return web.Response(status=200 if request.method == "DELETE" else 405)

    async def _post(self, request: web.Request, message: Json) -> web.StreamResponse:
        if message.get("method") == "initialize":
            name = uuid4().hex
            self._sessions[name] = _Session()
            self.capabilities.append(message["params"]["capabilities"])
            said = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {
                    "tools": {},
                    "prompts": {"listChanged": True},
                    "resources": {},
                    "completions": {},
                },
                "serverInfo": {"name": "asking", "version": "1"},
            }
            return _json(message, said, {"Mcp-Session-Id": name})
        session = self._sessions.get(request.headers.get("Mcp-Session-Id", ""))
        if session is None:
            return web.Response(status=404 if "Mcp-Session-Id" in request.headers else 400)
        if "method" not in message:
            self.answers.append(message.get("result", message.get("error")))
            session.waiting[message["id"]].set_result(self.answers[-1])
            return web.Response(status=202)
        if "id" not in message:
            return web.Response(status=202)
        params = message.get("params") or {}
        if message["method"] == "tools/call":
            return await self._call(request, message, session, params)
        result = self._result(message["method"], session, params)
        if result is None:
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return _json(message, result)

    def _result(self, method: str, session: _Session, params: Json) -> Json | None:
        match method:
            case "tools/list":
                return {"tools": TOOLS}
            case "prompts/list":
                return {"prompts": session.prompts}
            case "prompts/get":
                text = f"Say **hello** to {params['arguments']['whom']}. {HOSTILE_TEXT}"
                contents = [
                    {"type": "text", "text": text},
                    {"type": "image", "mimeType": "image/png", "data": PNG},
                ]
                return {"messages": [{"role": "user", "content": each} for each in contents]}
            case "resources/list":
                # Two pages.
                if "cursor" not in params:
                    return {"resources": RESOURCES[:2], "nextCursor": "2"}
                return {"resources": RESOURCES[2:]}
            case "resources/templates/list":
                return {"resourceTemplates": [TEMPLATE]}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], **_content(params["uri"])}]}
            case "completion/complete":
                begin = params["argument"]["value"]
                return {"completion": {"values": [word for word in WORDS if word.startswith(begin)]}}
        return None

    async def _call(
        self, request: web.Request, message: Json, session: _Session, params: Json
    ) -> web.StreamResponse:
        name = params["name"]
        if name == "blocked" and not self.opened:
            links = [{"mode": "url", "elicitationId": "e1", "url": LINK, "message": "Sign in first."}]
            error = {"code": -32042, "message": "Please sign in.", "data": {"elicitations": links}}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        said = await self._run(name, stream, session, params.get("arguments") or {})
        result = {"content": [{"type": "text", "text": json.dumps(said)}]}
        await _say(stream, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        return stream

    async def _run(self, name: str, stream: web.StreamResponse, session: _Session, arguments: Json) -> Any:
        match name:
            case "form" | "aside":
                asked, answer = session.asked(
                    "elicitation/create", {"mode": "form", "message": HOSTILE_TEXT, "requestedSchema": FORM}
                )
                await (session.aside.put(asked) if name == "aside" else _say(stream, asked))
                return await answer
            case "link":
                params = {"mode": "url", "elicitationId": "e0", "url": LINK, "message": "Please sign in."}
                asked, answer = session.asked("elicitation/create", params)
                await _say(stream, asked)
                result = await answer
                done = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e0"}}
                await _say(stream, {"jsonrpc": "2.0", **done})
                return result
            case "model":
                answers = []
                for method in ("sampling/createMessage", "roots/list"):
                    asked, answer = session.asked(method, {})
                    await _say(stream, asked)
                    answers.append(await answer)
                return answers
            case "nag":
                for number in range(NAGS):
                    asked, answer = session.asked(f"nag/{number}", {})
                    await _say(stream, asked)
                    await answer
                return "nagged"
            case "grow":
                changed: Json = {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}
                for each in self._sessions.values():
                    for _ in range(NAGS):
                        await each.aside.put(changed)
                # Sessions that nobody listens to keep theirs.
                for _ in range(50):
                    if all(each.aside.empty() for each in self._sessions.values()):
                        break
                    await asyncio.sleep(0.01)
                for each in self._sessions.values():
                    each.prompts.append({"name": "later"})
                    await each.aside.put(changed)
                return "grown"
            case "weigh":
                return [Path(path).read_text() for path in arguments["job"]["sources"]]
        return "ran"


async def _listen(request: web.Request, session: _Session) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    # One that was left does not take what belongs to the next.
    aside: asyncio.Queue[Json] = asyncio.Queue()
    session.aside = aside
    while True:
        await _say(stream, await aside.get())


async def _say(stream: web.StreamResponse, message: Json) -> None:
    await stream.write(b"data: " + json.dumps(message).encode() + b"\n\n")


def _json(message: Json, result: Json, fields: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=fields)


def _content(uri: str) -> Json:
    match uri:
        case "asking://guide":
            return {
                "mimeType": "text/markdown",
                "text": f"# A guide\n\n{HOSTILE_TEXT}\n\n[bad](javascript:alert(1))",
            }
        case "asking://page":
            return {"mimeType": "text/html", "text": f"<h1>Page</h1>{HOSTILE_TEXT}"}
        case "asking://dot":
            return {"mimeType": "image/png", "blob": PNG}
        case "asking://bytes":
            return {
                "mimeType": "application/octet-stream",
                "blob": base64.b64encode(bytes(range(64))).decode(),
            }
    return {"mimeType": "text/plain", "text": f"You read {uri}"}


@asynccontextmanager
async def asking_upstream() -> AsyncIterator[AskingUpstream]:
    """One on 127.0.0.1."""
    upstream = AskingUpstream()
    async with served(any_of("/mcp", upstream.serve)) as base:
        upstream.url = f"{base}/mcp"
        yield upstream
