"""What the reference adapter gets wrong about files, each as a transcript of how it goes here."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from tests.edge.conftest import StartRoad
from tests.edge.file_tools import DOWNLOADS, MIB, TOOLS, call, playing, text_of, upload, writing
from tests.edge.raw import Exchange, RawClient, event, result


async def test_reading_a_large_artifact_keeps_nobody_waiting(in_session: StartRoad) -> None:
    """The reference stalls everybody for two seconds. Here others are served all the while, call by call."""
    size = 24 * MIB
    async with (
        in_session(
            playing(lambda arguments: writing(b"\0" * size)(arguments) if arguments else "done"),
            server=TOOLS,
            core=DOWNLOADS,
            artifacts={"max_resource_bytes": size},
        ) as (_, front, client),
        front.client() as other,
    ):
        await other.initialize()
        uri = (await call(client, "write", {"filename": "large.bin"}))["_meta"]["artifact"]["artifact_uri"]
        reading = asyncio.ensure_future(begun(client, "resources/read", {"uri": uri}))
        served = 0
        while not reading.done():
            assert text_of(await call(other, "untouched", {})) == "done"
            served += 1
        assert await reading == 200 and served >= 5


async def begun(client: RawClient, method: str, params: dict[str, Any]) -> int:
    """The status of an answer of which only the head is waited for."""
    message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    await client.send("POST", message)
    return (await client.head()).status


async def test_no_message_before_the_result_shows_one_either(in_session: StartRoad) -> None:
    """What a tool logs, reports and asks while it works has no path of ours; what has none keeps every byte."""
    plain = b'{"jsonrpc": "2.0", "method":"notifications/progress","params": {"progress":1.0}}'

    async def talk(exchange: Exchange) -> None:
        params: Any = exchange.message["params"]
        path = (params["arguments"].get("filename") or params["arguments"]["path"]).encode()
        await exchange.begin_stream()
        for said in (
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"Opening %s"}}',
            b'{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{"message":"Overwrite %s?"}}',
        ):
            await exchange.chunk(event(said % path))
        await exchange.chunk(event(plain))
        await exchange.chunk(event(result(1)))
        await exchange.end_stream()

    async with in_session(talk, server=TOOLS) as (_, _, client):
        handle = (await upload(client, b"x"))[1]["upload_handle"]
        for tool, arguments, shown in (("write", {}, "[withheld path]"), ("read", {"path": handle}, handle)):
            params = {"name": tool, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            _, body = await client.request("POST", orjson.dumps(message))
            logged, asked, reported, _ = [part.removeprefix(b"data: ") for part in body.split(b"\n\n")[:4]]
            assert orjson.loads(logged)["params"]["data"] == f"Opening {shown}"
            assert orjson.loads(asked)["params"]["message"] == f"Overwrite {shown}?"
            assert reported == plain
