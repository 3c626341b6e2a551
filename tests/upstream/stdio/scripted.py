"""A server over stdio that does what a test tells it, and clients that speak to it through a StdioServer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson
from structlog import get_logger

from adapter.rules.access.principals import Caller
from adapter.settings.servers.server import ProcessMode, UpstreamSettings
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.upstream.stdio.child import ChildProcess, ChildSpec
from adapter.upstream.stdio.server import SPARE, StdioServer
from adapter.upstream.stdio.supervisor import Supervisor

PATIENCE = 20.0
"""Seconds that an answer may take on a busy machine."""

MODES = get_args(ProcessMode)

SERVER = r"""
import json, os, sys, time
held = {}
asking = {}
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
def answer(number, result): say({"jsonrpc": "2.0", "id": number, "result": result})
def tell(method, **params): say({"jsonrpc": "2.0", "method": method, "params": params})
def call(number, params):
    name, given = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    if name == "who": answer(number, {"pid": os.getpid(), "seen": given})
    elif name == "hold": held[number] = token; tell("notifications/message", data="holding")
    elif name == "release":
        for each, its in list(held.items()): answer(each, {"released": True})
        held.clear(); answer(number, {})
    elif name == "progress":
        text = "x" * given.get("size", 0)
        for n in range(given["n"]): tell("notifications/progress", progressToken=token, progress=n, message=text)
        answer(number, {"done": True})
    elif name == "log":
        for n in range(given["n"]): tell("notifications/message", data=n)
        answer(number, {})
    elif name == "raw": sys.stdout.write(given["line"] + "\n"); sys.stdout.flush()
    elif name == "tell": tell(given["method"]); answer(number, {})
    elif name == "ask":
        asking[given.get("id", "q")] = number
        say({"jsonrpc": "2.0", "id": given.get("id", "q"), "method": given["method"], "params": {}})
    elif name == "update": tell("notifications/resources/updated", uri=given["uri"]); answer(number, {})
    elif name == "exit": sys.stderr.write("the last words\n"); sys.stderr.flush(); os._exit(given["code"])
    elif name == "sleep": time.sleep(given["seconds"]); answer(number, {})
    else: say({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "no such tool"}})
for line in sys.stdin:
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method is None:
        if number in asking: answer(asking.pop(number), {"answered": message.get("result", message.get("error"))})
    elif method == "initialize":
        if "--mute" in sys.argv: continue
        if "crash" in params["capabilities"]: sys.exit(1)
        if "--refuse" in sys.argv: say({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": "no"}})
        else: answer(number, {"protocolVersion": params["protocolVersion"], "capabilities": params["capabilities"]})
    elif method == "tools/call": call(number, params)
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
        answer(number, {"tools": [{"name": "who", "inputSchema": schema}]})
    elif method == "subscriptions/listen":
        held[number] = None
        tell("notifications/subscriptions/acknowledged", _meta={"io.modelcontextprotocol/subscriptionId": number})
    elif method == "notifications/cancelled":
        known = " known" if params["requestId"] in held else ""
        tell("notifications/message", data="cancelled " + json.dumps(params["requestId"]) + known)
    elif number is not None: answer(number, {"method": method})
"""
"""Tools: who, hold and release, progress, log, raw, tell, ask, update, exit, sleep."""

LEGACY = SERVER.replace(
    'method == "initialize":',
    """method == "server/discover":
        say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})
    elif method == "initialize":""",
)
"""One that knows no other era."""


class Client:
    """One client of a principal, in the session of its ``initialize``."""

    def __init__(self, upstream: LocalUpstream[StdioServer], principal: str = "ada") -> None:
        self.upstream = upstream
        self.caller = Caller(principal)
        self.session: str | None = None

    async def send(
        self, body: bytes, *, streams: bool = True, modern: str | None = None, **more: str
    ) -> UpstreamReply:
        """Send a body as it is. ``modern`` is the method of a request of 2026-07-28, ``more`` are Mcp-Param fields."""
        accept = "application/json, text/event-stream" if streams else "application/json"
        fields = [("Accept", accept)]
        if modern is not None:
            fields += [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", modern)]
            fields += [(f"Mcp-Param-{name}", value) for name, value in more.items()]
            if modern == "tools/call":
                fields.append(("Mcp-Name", orjson.loads(body)["params"]["name"]))
        elif self.session is not None:
            fields.append(("Mcp-Session-Id", self.session))
        return await self.upstream.send(UpstreamRequest("POST", fields, body, self.caller), PATIENCE)

    async def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> UpstreamReply:
        """Open a session."""
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test"}}
        reply = await self.send(message("initialize", 0, params))
        self.session = header(reply.headers, "mcp-session-id")
        if self.session is not None:
            await self.send(message("notifications/initialized"))
        return reply

    async def call(self, tool: str, number: Any = 1, *, token: Any = None, **arguments: Any) -> UpstreamReply:
        """Call a tool."""
        return await self.send(call(tool, number, token=token, **arguments))

    async def result(self, tool: str, number: Any = 1, **arguments: Any) -> Any:
        """The result of a call that is answered by one message."""
        reply = await self.call(tool, number, **arguments)
        return orjson.loads(await read(reply))["result"]

    async def listen(self, last_event_id: str | None = None) -> UpstreamReply:
        """Open a GET stream."""
        fields = [("Mcp-Session-Id", self.session or "")]
        if last_event_id is not None:
            fields.append(("Last-Event-ID", last_event_id))
        return await self.upstream.send(UpstreamRequest("GET", fields), PATIENCE)

    async def delete(self) -> int:
        """End the session."""
        fields = [("Mcp-Session-Id", self.session or "")]
        return (await self.upstream.send(UpstreamRequest("DELETE", fields), PATIENCE)).status


@dataclass(frozen=True)
class Setup:
    """A server that is to be started: see ``running``."""

    mode: str = "per_session"
    limits: Mapping[str, Any] = field(default_factory=dict)
    spare: float = SPARE
    start_timeout: float = PATIENCE
    arguments: tuple[str, ...] = ()
    program: str = SERVER
    line_bytes: int = 16 << 20


@asynccontextmanager
async def running(supervisor: Supervisor, setup: Setup) -> AsyncIterator[LocalUpstream[StdioServer]]:
    """An upstream whose processes run the scripted server, until the block ends."""
    argv = (sys.executable, "-S", "-c", setup.program, *setup.arguments)
    settings = UpstreamSettings.model_validate(
        {
            "transport": "stdio",
            "command": argv[0],
            "args": argv[1:],
            "process": setup.mode,
            "start_timeout_seconds": setup.start_timeout,
            "stop_grace_seconds": 1,
            "idle_ttl_seconds": None,
            **setup.limits,
        }
    )
    spec, log = ChildSpec.of(settings, setup.line_bytes), get_logger()
    server = StdioServer(
        "scripted", settings, lambda owner: ChildProcess.start(supervisor, spec, owner, log), log, setup.spare
    )
    upstream = LocalUpstream(server)
    try:
        yield upstream
    finally:
        await upstream.close()


async def opened(upstream: LocalUpstream[StdioServer], principal: str = "ada") -> Client:
    """A client with a session."""
    client = Client(upstream, principal)
    await client.initialize()
    assert client.session is not None
    return client


def message(method: str, number: Any = None, params: Any = None) -> bytes:
    """A request, or with no number a notification."""
    value = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        value["id"] = number
    return orjson.dumps(value if params is None else {**value, "params": params})


def call(tool: str, number: Any = 1, *, token: Any = None, modern: bool = False, **arguments: Any) -> bytes:
    """A ``tools/call``."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    meta = dict(MODERN_META) if modern else {}
    if token is not None:
        meta["progressToken"] = token
    if meta:
        params["_meta"] = meta
    return message("tools/call", number, params)


MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def read(reply: UpstreamReply) -> bytes:
    """The whole body of a reply."""
    pieces = []
    while piece := await reply.read(PATIENCE):
        pieces.append(piece)
    return b"".join(pieces)


def events(body: bytes) -> list[Any]:
    """The messages of an event stream."""
    lines = body.split(b"\n")
    return [orjson.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]


async def next_events(reply: UpstreamReply, most: int = 1) -> list[Any]:
    """At least so many messages of a stream that goes on."""
    found: list[Any] = []
    while len(found) < most:
        found += events(await reply.read(PATIENCE))
    return found
