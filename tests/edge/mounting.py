"""A merged mount on a real socket, in front of several raw upstreams."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from adapter.app import App, build, running
from adapter.settings.root import Settings
from adapter.state.port import Store
from tests.edge.conftest import merged
from tests.edge.raw import INITIALIZE, Exchange, Head, RawClient, RawUpstream, Script

ALL = "/mcp/all"
"""The path of the mount."""


def tooled(name: str, *tools: str) -> Script:
    """Lists these tools; a call tells in its text who ran which tool."""

    async def script(exchange: Exchange) -> None:
        message = exchange.message
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
        elif "method" not in message:
            await exchange.answer(202, b"")
        elif message["method"] == "tools/list":
            found: dict[str, Any] = {"tools": [{"name": tool, "inputSchema": {}} for tool in tools]}
            await answered(exchange, found)
        elif message["method"] == "tools/call":
            said = f"{name} ran {message['params']['name']}"  # type: ignore[index]  # as clients write it
            await answered(exchange, {"content": [{"type": "text", "text": said}]})
        else:
            await no_such_method(exchange)

    return script


async def answered(exchange: Exchange, found: Mapping[str, Any]) -> None:
    """Answer with this result."""
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": found}))


async def no_such_method(exchange: Exchange) -> None:
    """Refuse a request as servers do that do not know its method."""
    error = {"code": -32601, "message": "Method not found"}
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error}))


class MountClient(RawClient):
    """A client of the mount."""

    async def rpc(
        self, method: str, params: object = None, number: int = 1, fields: Mapping[str, str] | None = None
    ) -> Any:
        """The response to a request; ``fields`` are header fields as ``send`` takes them."""
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        head, body = await self.request("POST", orjson.dumps(asked), ALL, **(fields or {}))
        assert head.status == 200, body
        return orjson.loads(body)

    async def tell(self, **message: object) -> Head:
        """Send a message that has no answer."""
        head, _ = await self.request("POST", orjson.dumps({"jsonrpc": "2.0", **message}), ALL)
        return head

    async def open(self, body: bytes = INITIALIZE, fields: Mapping[str, str] | None = None) -> Any:
        """Open a session at the mount, go on in it, and return what ``initialize`` said."""
        self.session = None
        head, answer = await self.request("POST", body, ALL, **(fields or {}))
        assert head.status == 200, answer
        self.session = head["mcp-session-id"]
        return orjson.loads(answer)["result"]

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[MountClient]:
        """Another connection in the same session."""
        async with MountClient(self.port) as other:
            other.session = self.session
            yield other

    async def begin(self, tool: str, number: int = 1) -> None:
        """Send a call, and read nothing of its answer."""
        params = {"name": tool, "arguments": {}}
        asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        await self.send("POST", orjson.dumps(asked), ALL)

    async def listen(self, **fields: str) -> None:
        """Open the stream of the session."""
        await self.send("GET", b"", ALL, accept="text/event-stream", **fields)
        assert (await self.head()).status == 200

    async def cancel(self, number: int) -> None:
        """Withdraw a request."""
        head = await self.tell(method="notifications/cancelled", params={"requestId": number})
        assert head.status == 202

    async def names(self) -> list[str]:
        """The names of all tools."""
        listed = await self.rpc("tools/list")
        return [tool["name"] for tool in listed["result"]["tools"]]

    async def text(self, tool: str, number: int = 1) -> str:
        """The text of a call's result."""
        found = await self.rpc("tools/call", {"name": tool, "arguments": {}}, number)
        text: str = found["result"]["content"][0]["text"]
        return text


@contextlib.asynccontextmanager
async def mounted(
    root: Path, upstreams: Mapping[str, str], store: Store | None = None, **more: Any
) -> AsyncIterator[int]:
    """The adapter with the servers at these URLs, by their ids, merged at ``/mcp/all``; its port.

    The adapter itself goes to the end of ``apps``.
    """
    apps: list[App] = more.pop("apps", [])
    settings = {
        "core": {
            "port": 0,
            "shutdown_grace_seconds": 0,
            "upstream_ping": {"enabled": False},
            "tool_definition_pinning": {"mode": "off"},
        },
        "storage": {"root": str(root)},
        "servers": [{"id": name, "upstream": {"url": url}} for name, url in upstreams.items()],
        "mounts": [{"id": "all", "servers": ["*"], "list_timeout_seconds": 20}],
    }
    app = build(Settings.model_validate(merged(settings, more)), None, store)
    apps.append(app)
    async with running(app) as (_, port):
        yield port


@contextlib.asynccontextmanager
async def entered(
    root: Path, upstreams: Mapping[str, str], store: Store | None = None, **more: Any
) -> AsyncIterator[MountClient]:
    """A client that has opened a session at such a mount."""
    async with mounted(root, upstreams, store, **more) as port, MountClient(port) as client:
        await client.open()
        yield client


@contextlib.asynccontextmanager
async def mount(
    root: Path, scripts: Mapping[str, Script], **more: Any
) -> AsyncIterator[tuple[dict[str, RawUpstream], MountClient]]:
    """Upstreams with these scripts, merged, and a client that has opened a session at the mount."""
    async with contextlib.AsyncExitStack() as stack:
        upstreams = {
            name: await stack.enter_async_context(RawUpstream(script)) for name, script in scripts.items()
        }
        urls = {name: upstream.url for name, upstream in upstreams.items()}
        yield upstreams, await stack.enter_async_context(entered(root, urls, **more))
