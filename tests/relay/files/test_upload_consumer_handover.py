"""A file goes from one server's tool to another server's, and no byte of it through the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.relay.files.upload_consumer import Consumer, HandleSchemes
from adapter.relay.param_headers import ParamHeaders
from adapter.rules.access.principals import Scope, principal_scope
from tests.relay.relaying import Relaying, of_tools, whole
from tests.relay.tooling import (
    META,
    PNG,
    READ,
    Acting,
    Tools,
    arguments_of,
    artifact_of,
    parsed,
    result,
    saying,
    tools,
    writing,
)

DRAWN = writing(PNG, result('"content":[],"resultType":"complete"'))


class Second:
    """Another server of the same adapter: same files, its own upstream, whose tool ``read`` takes a file."""

    def __init__(self, first: Tools) -> None:
        self.upstream = Acting(saying("seen"))
        read = "two", READ, HandleSchemes()
        stage = Consumer(*read, first.registry, ParamHeaders(), first.offers_of_uploads)
        self.relaying = Relaying(self.upstream, of_tools(read=stage), first.store, first.clock)

    async def read(self, uri: str, session: str | None) -> dict[str, Any]:
        params: dict[str, Any] = {"name": "read", "arguments": {"path": uri}}
        if session is None:
            params["_meta"] = META
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        return parsed(await whole(await self.relaying.relay.handle(self.relaying.ask(body, session))))


async def drawn(one: Tools, *, modern: bool) -> str:
    """The URI of a picture that the first server's tool made."""
    params: dict[str, Any] = {"name": "write", "arguments": {"filename": "shot.png"}}
    if modern:
        params["_meta"] = META
    uri: str = artifact_of(await one.request("tools/call", params, modern=modern))["artifact_uri"]
    return uri


@pytest.mark.parametrize("modern", [True, False])
async def test_artifact_of_one_server_feeds_a_tool_of_another(tmp_path: Path, modern: bool) -> None:
    """Where files belong to who authenticated: always in the modern era, else where that is configured."""

    def principals(session: object, principal: str) -> Scope:
        return principal_scope(b"", principal)

    async with tools(tmp_path, DRAWN) as one:
        two = Second(one)
        one.relaying.relay.call_gate.scope_of = two.relaying.relay.call_gate.scope_of = principals
        uri = await drawn(one, modern=modern)
        came = await two.read(uri, None if modern else await two.relaying.open())
        assert came["result"]["content"] == [{"type": "text", "text": "seen"}]
        path = Path(arguments_of(two.upstream.requests[0])["path"])
        assert path.read_bytes() == PNG and path.name == "shot.png"


async def test_artifact_of_one_session_is_nothing_to_another(tmp_path: Path) -> None:
    """Where files belong to sessions, the other server's session is a stranger like any other."""
    async with tools(tmp_path, DRAWN) as one:
        two = Second(one)
        uri = await drawn(one, modern=False)
        assert (await two.read(uri, await two.relaying.open()))["result"]["isError"] is True
        assert two.upstream.requests == []


async def test_upload_for_one_server_is_nothing_to_another(tmp_path: Path) -> None:
    """It was given for the tools of one server; only what a tool made may be handed on."""
    async with tools(tmp_path, DRAWN) as one:
        two = Second(one)
        record = await one.uploaded(b"mine", scope=principal_scope(b"", "anonymous"))
        handle = f"upload://sessions/{record.scope}/{record.id}"
        assert (await two.read(handle, None))["result"]["isError"] is True
        assert two.upstream.requests == []
