"""A legacy session without an SDK: it goes on when the adapter comes back, and many are cheap."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

Json = dict[str, Any]


@dataclass
class JsonSession:
    """A session; ``id`` is known where it was opened before, and ``fields`` go with each request."""

    http: aiohttp.ClientSession
    url: str
    id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        client = {"name": "json", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        await self.answer("initialize", params)
        await self._send("notifications/initialized", {})

    async def close(self) -> None:
        async with self.http.delete(self.url, headers=self.headers) as response:
            assert response.status == 200

    async def answer(self, method: str, params: Json) -> Json:
        """The response to a request. Raises ClientError when there is none."""
        text = await self._send(method, params, id=next(self.ids))
        for line in text.splitlines():
            message: Json = (
                json.loads(line.removeprefix("data: ")) if line.startswith(("data: {", "{")) else {}
            )
            if "result" in message or "error" in message:
                return message
        raise aiohttp.ClientPayloadError("the stream ended before the answer")

    async def ask(self, method: str, **params: Any) -> Json:
        """The result of a request."""
        message = await self.answer(method, params)
        assert "result" in message, message
        result: Json = message["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> Json:
        """The result of a call, which is no error."""
        result = await self.ask("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        return result

    async def _send(self, method: str, params: Json, **more: Any) -> str:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        async with self.http.post(self.url, json=message, headers=self.headers) as response:
            assert response.status in (200, 202), await response.text()
            self.id = response.headers.get("Mcp-Session-Id", self.id)
            return await response.text()

    @property
    def headers(self) -> dict[str, str]:
        accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        return {**accept, **self.fields, **({"Mcp-Session-Id": self.id} if self.id else {})}
