"""Lists of tools of any size and shape, in every way in which they are read, while others' calls go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import Exchange, RawClient, RawUpstream, call_body

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
MIB = 1 << 20
EVERYTHING_ON = {
    "tool_definition_pinning": {"mode": "warn"},
    "tool_description_policy": {"mode": "truncate"},
    "disabled_tools": ["never_.*"],
    "upstream_ping": {"enabled": False},
}
CHANGED = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'


def rich(count: int, word: str = "Does", options: int = 6) -> list[Json]:
    """Tools as generated servers have them: a kilobyte each, schemas of five levels, texts in several scripts."""
    shared = {
        f"option_{number}": {
            "type": "object",
            "properties": {"values": {"type": "array", "items": {"type": "string", "enum": ["a", "é"]}}},
        }
        for number in range(options)
    }
    return [
        {
            "name": f"tool_{number}",
            "title": f"Tool {number}",
            "description": f"{word} something with what it is given, number {number}. " * 3,
            "inputSchema": {"type": "object", "properties": {**shared, "n": {"const": number}}},
            "annotations": {"readOnlyHint": True},
        }
        for number in range(count)
    ]


@dataclass
class Lister:
    """An upstream whose list is ``text``, or what ``pages`` makes of a cursor; ``streams``: it comes as an event.

    ``shouts``: its GET streams say without a pause that the tools have changed.
    """

    text: bytes = b""
    pages: Callable[[Any], bytes] | None = None
    streams: bool = False
    shouts: bool = False
    asked: int = 0
    shouted: int = 0
    called: list[str] = field(default_factory=list)

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.head.method == "GET":
            await (self._shout(exchange) if self.shouts else exchange.answer(405, b""))
            return
        message: Any = exchange.message
        result = b'{"content":[]}'
        if message.get("method") == "tools/list":
            self.asked += 1
            cursor = message.get("params", {}).get("cursor")
            result = self.pages(cursor) if self.pages is not None else self.text
        elif message.get("method") == "tools/call":
            self.called.append(message["params"]["name"])
        body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(message["id"]), result)
        if not self.streams or message["method"] != "tools/list":
            await exchange.json(body)
            return
        await exchange.begin_stream()
        await exchange.chunk(b"event: message\ndata: " + body + b"\n\n")
        await exchange.end_stream()

    async def _shout(self, exchange: Exchange) -> None:
        await exchange.begin_stream()
        while True:
            await exchange.chunk(CHANGED * 100)
            self.shouted += 100


def listed(tools: list[Json], **more: Any) -> bytes:
    return orjson.dumps({"tools": tools, **more})


@asynccontextmanager
async def attacking(
    place: Path, lister: Lister, core: Json | None = None, **sections: Any
) -> AsyncIterator[tuple[Arena, RawClient]]:
    """The arena before this upstream, and a client with a session there."""
    async with RawUpstream(lister) as up, AsyncExitStack() as stack:
        front = attacked(place, up.url, core={**EVERYTHING_ON, **(core or {})}, **sections)
        arena = await stack.enter_async_context(front)
        client = await stack.enter_async_context(arena.client())
        await client.initialize()
        yield arena, client


async def list_of(client: RawClient, **params: Any) -> Json:
    """The response to ``tools/list``, whichever way it came."""
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
    head, answer = await client.request("POST", body)
    assert head.status == 200, answer[:200]
    message: Json = orjson.loads(answer.partition(b"data: ")[2].strip() or answer)
    return message


async def get(client: RawClient, path: str) -> Any:
    head, answer = await client.request("GET", b"", path)
    assert head.status == 200, answer[:200]
    return orjson.loads(answer)


@pytest.mark.parametrize("streams", [False, True], ids=["json", "event"])
async def test_a_first_list_of_ten_thousand_tools_holds_nobody_up(tmp_path: Path, streams: bool) -> None:
    """Nor does the list after each tool has changed, with a warning in each."""
    lister = Lister(listed(rich(10_000)), streams=streams)
    async with attacking(tmp_path, lister) as (_, client):
        found = await list_of(client)
        assert len(found["result"]["tools"]) == 10_000
        lister.text = listed(rich(10_000, "Did"))
        found = await list_of(client)
        assert all(tool["description"].startswith("[Warning") for tool in found["result"]["tools"])
        # Once more, for it is kept.
        assert await list_of(client) == found


async def test_a_block_of_ten_thousand_changed_tools_holds_nobody_up(tmp_path: Path) -> None:
    """The drift of all of them is found, told and remembered while others' calls go on."""
    lister = Lister(listed(rich(10_000)))
    pinning = {"mode": "block", "block_error_session_action": "keep"}
    async with attacking(tmp_path, lister, {"tool_definition_pinning": pinning}) as (_, client):
        await list_of(client)
        lister.text = listed(rich(10_000, "Did"))
        refused = (await list_of(client))["error"]
        assert refused["code"] == -32010 and refused["data"]["drift"]["more"] == 9950


async def test_a_call_before_any_list_has_ten_thousand_tools_read(tmp_path: Path) -> None:
    """On pages, by many at once: one reads for all, and others' calls go on."""
    tools = rich(10_000)

    def page(cursor: Any) -> bytes:
        start = int(cursor or 0)
        more = {"nextCursor": str(start + 500)} if start + 500 < len(tools) else {}
        return listed(tools[start : start + 500], **more)

    lister = Lister(pages=page)
    pinning = {"mode": "block"}
    async with attacking(tmp_path, lister, {"tool_definition_pinning": pinning}) as (arena, client):

        async def call() -> int:
            async with arena.client() as other:
                other.session = client.session
                head, _ = await other.request("POST", call_body("tool_7", 1))
                return head.status

        assert set(await asyncio.gather(*(call() for _ in range(20)))) == {200}
        assert lister.asked == 20 and len(lister.called) == 20


HUGE = {"name": "huge", "inputSchema": {"properties": {f"p{n}": {"type": "string"} for n in range(160_000)}}}
DEEP = b'{"name":"deep","inputSchema":' + b'{"properties":{"a":' * 5000 + b"{}" + b"}}" * 5000 + b"}"


async def test_a_tool_that_is_too_large_or_too_deep_is_left_out(tmp_path: Path) -> None:
    """The others are shown; what was left out cannot be called either, and the log says why once."""
    small = b'{"name":"small","inputSchema":{"type":"object"}}'
    text = b'{"tools":[%b,%b,%b]}' % (orjson.dumps(HUGE), small, DEEP)
    assert len(text) > 4 * MIB
    lister = Lister(text)
    async with attacking(tmp_path, lister) as (arena, client):
        for _ in range(3):
            found = await list_of(client)
            assert [tool["name"] for tool in found["result"]["tools"]] == ["small"]
        for name in ("huge", "deep", "HUGE", "dee\u200bp"):
            _, answer = await client.request("POST", call_body(name, 1))
            assert orjson.loads(answer)["error"]["message"].startswith("Unknown tool")
        _, answer = await client.request("POST", call_body("small", 1))
        assert "result" in orjson.loads(answer) and lister.called == ["small"]
        assert arena.log.count("its definition is larger than 1048576 bytes") == 1
        assert arena.log.count("levels deep") == 1


ENDLESS = {
    "200,000 tiny tools": (
        b'{"tools":[' + b",".join(b'{"name":"t%d"}' % n for n in range(200_000)) + b"]}",
        "has more than 20000 tools",
    ),
    "brackets": (b'{"tools":[' + b"[" * 2 * MIB + b"]" * 2 * MIB + b"]}", "is not valid JSON"),
    "beside": (b'{"tools":[],"x":"' + b"a" * 2 * MIB + b'"}', "bytes besides its tools"),
    "spaces": (
        b'{"tools":[{"name":"a"},' + b" " * 33 * MIB + b"1]}",
        "has a page of more than 33554432 bytes",
    ),
    "empty lists": (b'{"tools":[' + b"[]," * 5 * MIB + b"]}", "has more than 20000 tools"),
}


async def test_a_list_that_nobody_reads_to_its_end_is_refused(tmp_path: Path) -> None:
    """With the reason, in an instant, and whoever sent it has harmed nobody."""
    lister = Lister()
    async with attacking(tmp_path, lister) as (_, client):
        for kind, (lister.text, why) in ENDLESS.items():
            for _ in range(3):
                assert why in (await list_of(client))["error"]["message"], kind
            _, answer = await client.request("POST", call_body("any", 1))
            assert "result" in orjson.loads(answer), kind


WORST_TEXTS = {
    "unseen": "a\u200b" * 70_000,
    "marks": "a" + "\u0323\u0307" * 40_000,
    "ligatures": "\ufdfa" * 80_000,
    "jamo": "\u1100\u1161\u11a8" * 27_000,
    "one word": "x" * 500_000,
    "sentences": "a. " * 160_000,
    "surrogates": "\ud800" * 80_000,
}
"""As long as two of each fit into the largest definition."""


async def test_huge_descriptions_are_cleaned_while_others_calls_go_on(tmp_path: Path) -> None:
    """Whatever they consist of, wherever in the definition they stand, and whatever became of them."""

    def tools(word: str) -> bytes:
        entries = [
            {"name": name, "description": word + text, "inputSchema": {"properties": {"a": {"title": text}}}}
            for name, text in WORST_TEXTS.items()
        ]
        return json.dumps({"tools": entries}).encode()

    lister = Lister(tools(""))
    async with attacking(tmp_path, lister) as (_, client):
        assert len((await list_of(client))["result"]["tools"]) == len(WORST_TEXTS)
        lister.text = tools("Now ")
        found = (await list_of(client))["result"]["tools"]
        assert [tool["name"] for tool in found] == list(WORST_TEXTS)
        assert all(len(tool["description"]) < 1000 for tool in found)


async def test_a_server_that_says_without_pause_that_its_tools_changed(tmp_path: Path) -> None:
    """Ten clients list and call meanwhile; the calls end, and the list is not read once for each of its words."""
    lister = Lister(listed(rich(500)), shouts=True)
    async with attacking(tmp_path, lister) as (arena, _), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(arena.client()) for _ in range(10)]
        await asyncio.gather(*(client.initialize() for client in clients))
        for client in clients[:3]:
            hearer = await stack.enter_async_context(arena.client())
            hearer.session = client.session
            await hearer.send("GET")
            stack.push_async_callback(stopped, asyncio.ensure_future(drained(hearer)))
        for _ in range(10):
            found = await asyncio.gather(*map(list_of, clients))
            assert all(len(each["result"]["tools"]) == 500 for each in found)
            answers = await asyncio.gather(*(client.call("tool_7") for client in clients))
            assert all(b"content" in answer for _, answer in answers)
        assert lister.shouted > 10_000
        # Each client's own lists, and at most as many reads of the adapter's own for each call.
        assert lister.asked < 100 + 100 * 7


async def drained(client: RawClient) -> None:
    while await client.reader.read(1 << 16):
        pass


async def stopped(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pages_without_an_end_are_not_followed(tmp_path: Path) -> None:
    """Neither in a circle nor on and on: a call that depends on them is refused with the reason."""
    pinning = {"tool_definition_pinning": {"mode": "block"}}
    for why, times, most, pages in (
        ("form a loop", 100, 3, lambda _: listed([{"name": "a"}], nextCursor="again")),
        (
            "does not end within 1000 pages",
            2,
            1001,
            lambda cursor: listed([{"name": f"t{cursor}"}], nextCursor=next_to(cursor)),
        ),
        ("does not end within", 2, 130, lambda cursor: listed([HEAVY], nextCursor=next_to(cursor))),
    ):
        lister = Lister(pages=pages)
        place = tmp_path / str(most)
        place.mkdir()
        async with attacking(place, lister, pinning) as (_, client):
            for number in range(times):
                _, answer = await client.request("POST", call_body("a", number))
                assert why in orjson.loads(answer)["error"]["message"]
            assert lister.asked <= times * most and not lister.called


HEAVY = {"name": "heavy", "description": "x" * 700_000}


def next_to(cursor: Any) -> str:
    return str(int(cursor or 0) + 1)


async def test_a_server_with_another_list_each_time_fills_nothing(tmp_path: Path) -> None:
    """Neither the memory nor the disk, and its clients are served all the same."""
    count = 0

    def page(_: Any) -> bytes:
        nonlocal count
        count += 1
        return listed(rich(200, f"Version {count}"))

    async with attacking(tmp_path, Lister(pages=page)) as (arena, client):
        await list_of(client)
        before = arena.resident_bytes()
        for _ in range(60):
            assert len((await list_of(client))["result"]["tools"]) == 200
        assert arena.resident_bytes() - before < 100 * MIB
        told = (await get(client, "/healthz"))["servers"][0]["tools"]
        assert told["drift"] == "remembered" and len(told["catalogues"]) == 16 and told["more"] == 44
