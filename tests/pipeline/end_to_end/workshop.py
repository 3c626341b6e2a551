"""An upstream on a real socket whose tools do what a test says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.edge.raw import Exchange, RawUpstream
from tests.pipeline.end_to_end.living import ERAS, Living, Speaker, living

Work = Callable[[Exchange], Awaitable[None]]


@dataclass
class Workshop:
    """A script of a RawUpstream. ``tools`` are definitions by name, or just what each is to answer.

    A dict is the members of a result, bytes are the whole result as JSON, anything else answers the exchange by itself.
    """

    works: Mapping[str, dict[str, Any] | bytes | Work]
    definitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        params = message.get("params") or {}
        if message.get("method") == "tools/list":
            listed: dict[str, Any] = {"tools": [self._definition(name) for name in self.works]}
            if "_meta" in params:
                listed |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            await respond(exchange, orjson.dumps(listed))
        elif message.get("method") == "tools/call" and params.get("name") in self.works:
            work = self.works[params["name"]]
            if isinstance(work, bytes):
                await respond(exchange, work)
            elif isinstance(work, dict):
                await respond(exchange, orjson.dumps(complete(exchange, work)))
            else:
                await work(exchange)
        elif message.get("method") == "tools/call":
            error = {"code": -32602, "message": f"Unknown tool: {params.get('name')}"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            await exchange.json(orjson.dumps(answer))
        else:
            await exchange.answer(405, b"")

    def _definition(self, name: str) -> dict[str, Any]:
        return {"name": name, "inputSchema": {"type": "object"}, **self.definitions.get(name, {})}


def complete(exchange: Exchange, result: dict[str, Any]) -> dict[str, Any]:
    """A result as the era of the call has it."""
    params: Any = exchange.message["params"]
    modern = "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {})
    return {"resultType": "complete", **result} if modern else result


async def respond(exchange: Exchange, result: bytes) -> None:
    """Answer with a result, JSON that keeps its bytes."""
    number = orjson.dumps(exchange.message["id"])
    await exchange.json(b'{"jsonrpc":"2.0","id":' + number + b',"result":' + result + b"}")


def arguments_of(exchange: Exchange) -> Any:
    """What a call that arrived was given."""
    params: Any = exchange.message["params"]
    return params.get("arguments")


def saying(value: Any, **members: Any) -> dict[str, Any]:
    """A result whose one text is the JSON of ``value``."""
    return {"content": [{"type": "text", "text": orjson.dumps(value).decode()}], **members}


async def echo(exchange: Exchange) -> None:
    """A Work that answers with the arguments it was given."""
    await respond(exchange, orjson.dumps(complete(exchange, saying(arguments_of(exchange)))))


def workshop(
    works: Mapping[str, dict[str, Any] | bytes | Work],
    definitions: Mapping[str, Mapping[str, Any]] | None = None,
    **fields: Any,
) -> RawUpstream:
    """The upstream; its URL fills ``${UPSTREAM}`` of settings."""
    return RawUpstream(Workshop(works, definitions or {}), **fields)


@contextlib.asynccontextmanager
async def spoken(
    settings: str,
    place: Path,
    works: Mapping[str, dict[str, Any] | bytes | Work],
    definitions: Mapping[str, Mapping[str, Any]] | None = None,
    version: str = ERAS[0],
    said: Mapping[str, str] | None = None,
    **scripts: str,
) -> AsyncIterator[tuple[RawUpstream, Living, Speaker]]:
    """The upstream, an adapter on ``settings`` in front of it, and a client that has begun in that version."""
    fields = {"version": version} if version == "2025-03-26" else {}
    async with (
        workshop(works, definitions, **fields) as up,
        living(place, settings, {"UPSTREAM": up.url}, scripts=scripts, said=said) as front,
        front.speaker(version) as speaker,
    ):
        yield up, front, speaker
