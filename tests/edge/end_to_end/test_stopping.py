"""A stop whose grace is over: everybody who waits is told, in the shape that the answer has by then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import orjson
import pytest

from adapter.relay.flow import RETRY, last_words_behind
from adapter.wire.sse import SseReader
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.consoling import Shop, tool
from tests.edge.raw import (
    MODERN_VERSION,
    Exchange,
    RawClient,
    RawUpstream,
    Script,
    beginning,
    call_body,
    error_of,
    event,
    in_json,
    modern_body,
    modern_fields,
    read_body,
    result,
    silent,
)

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
Stop = Callable[[], Coroutine[Any, Any, None]]
Scene = tuple[RawUpstream, RawClient, Stop]
Stoppable = Callable[..., contextlib.AbstractAsyncContextManager[Scene]]


@pytest.fixture
def stoppable(upstream: StartUpstream, adapter: StartAdapter) -> Stoppable:
    """``async with stoppable(script) as (up, client, stop)``: a client in a session, and what stops its adapter."""

    @contextlib.asynccontextmanager
    async def start(
        script: Script = silent, grace: float = 0, mode: str = "off", *, opened: bool = True, **more: Any
    ) -> AsyncIterator[Scene]:
        core = {"shutdown_grace_seconds": grace, "tool_definition_pinning": {"mode": mode}}
        async with upstream(script) as up, contextlib.AsyncExitStack() as stack:
            front = await stack.enter_async_context(adapter(up, core=core, **more))
            async with front.client() as client:
                if opened:
                    await client.initialize()
                yield up, client, stack.aclose

    return start


class Finishing:
    """An upstream that answers its calls once ``finish`` is set."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await self.finish.wait()
        await exchange.json(result(7))


stream = beginning(event(PROGRESS) + b'data: {"jsonrpc"')


async def test_legacy_request_without_an_answer(stoppable: Stoppable) -> None:
    """Status 200, because 503 would end the connection of several clients, and the call's own id."""
    async with stoppable() as (up, client, stop):
        await client.send("POST", call_body(number=7))
        await up.arrived("tools/call")
        await stop()
        head = await client.head()
        error = error_of(await read_body(client.reader, head))
        assert (head.status, error["code"], error["id"]) == (200, -32016, 7)
        assert "stopping; the call may have run" in error["message"]
        assert head["connection"] == "close"


async def test_modern_request_without_an_answer(stoppable: Stoppable) -> None:
    """503, with the same body."""
    async with stoppable(opened=False) as (up, client, stop):
        await client.send("POST", modern_body(number=7), **modern_fields())
        await up.arrived("tools/call")
        await stop()
        head = await client.head()
        assert head.status == 503
        assert error_of(await read_body(client.reader, head))["code"] == -32016


@pytest.mark.parametrize("mode", ["off", "warn"])
async def test_stream_that_answers_a_call(stoppable: Stoppable, mode: str) -> None:
    """What came has left; behind it comes an error event with the id, although an event had begun."""
    async with stoppable(stream, mode=mode) as (_, client, stop):
        await client.send("POST", call_body(number=7))
        head = await client.head()
        got = await client.read_until(len(event(PROGRESS)) + 16)
        await stop()
        events = SseReader(1 << 20).feed(got + await read_body(client.reader, head))
        messages = [each.data for each in events if each.event == b"message" and each.data]
        assert messages[0] == PROGRESS and len(messages) == 2
        error = error_of(messages[1])
        assert (error["code"], error["id"]) == (-32016, 7)


async def test_get_stream_ends_with_a_time_to_come_back(stoppable: Stoppable) -> None:
    """It ends in good order, and the half of an event that had come is not taken for one."""
    async with stoppable(stream) as (_, client, stop):
        await client.send("GET")
        head = await client.head()
        got = await client.read_until(len(event(PROGRESS)) + 16)
        await stop()
        reader = SseReader(1 << 20)
        events = reader.feed(got + await read_body(client.reader, head))
        assert [each.data for each in events if each.event == b"message"] == [PROGRESS]
        assert reader.retry == 3000 and reader.rest == b""


async def test_streams_without_an_end_are_not_waited_for(stoppable: Stoppable) -> None:
    """A GET and a modern subscription hold up no stop; both clients are told."""
    listened = beginning()
    body = orjson.loads(modern_body())
    body = orjson.dumps(
        body | {"method": "subscriptions/listen", "params": {"_meta": body["params"]["_meta"]}}
    )
    fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "subscriptions/listen"}
    async with stoppable(listened, grace=60) as (_, legacy, stop), RawClient(legacy.port) as modern:
        await legacy.send("GET")
        await modern.send("POST", body, **fields)
        heads = await legacy.head(), await modern.head()
        async with asyncio.timeout(20):
            await stop()
        assert await read_body(legacy.reader, heads[0]) == RETRY
        assert error_of((await read_body(modern.reader, heads[1]))[6:])["code"] == -32016


async def test_call_that_ends_within_the_grace(stoppable: Stoppable) -> None:
    """It gets its own answer, and the stop waits no longer than for it."""
    wait = Finishing()
    async with stoppable(wait, grace=60) as (up, client, stop):
        await client.send("POST", call_body(number=7))
        await up.arrived("tools/call")
        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0.05)
        wait.finish.set()
        head = await client.head()
        assert await read_body(client.reader, head) == result(7)
        async with asyncio.timeout(20):
            await stopping


async def test_client_in_the_middle_of_its_work_is_told(stoppable: Stoppable) -> None:
    """Its next request is answered, and the answer says that the connection ends; the port is closed by then."""

    async with stoppable(in_json(result(7)), grace=60) as (_, client, stop):
        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", client.port)
        head, body = await client.call(number=7)
        assert (head["connection"], body) == ("close", result(7))
        assert await client.reader.read() == b""
        async with asyncio.timeout(20):
            await stopping


async def test_idle_connection_is_closed_in_good_order(stoppable: Stoppable) -> None:
    """Its client reads an end, and the stop does not wait for the grace."""
    async with stoppable(grace=60) as (_, client, stop):
        async with asyncio.timeout(20):
            await stop()
        assert await client.reader.read() == b""


async def test_stream_of_the_tool_api(stoppable: Stoppable) -> None:
    """A call over plain HTTP ends with a result too: the status and the sentence that a plain answer would have."""
    list_then_hang = Shop(tool("tool"), run=silent)
    console = {"enabled": True, "allow_execute": True}
    async with stoppable(list_then_hang, console=console, opened=False) as (up, client, stop):
        await client.send("POST", b"{}", "/explorer/raw/tools/tool/call", accept="text/event-stream")
        head = await client.head()
        await up.arrived("tools/call")
        await stop()
        name, data = (await read_body(client.reader, head)).decode().strip().split("\n")
        said = orjson.loads(data.removeprefix("data: "))
        assert (name, said["status"]) == ("event: result", 503)
        assert "stopping; the call may have run" in said["body"]["detail"]


@pytest.mark.parametrize(("accept", "status"), [("*/*", 503), ("text/event-stream", 200)])
async def test_a_warning_of_the_tool_api_comes_with_the_calls_own_answer_alone(
    accept: str, status: int, stoppable: Stoppable
) -> None:
    """The head of events is the call's; the answer to one that is cut says nothing of its body."""
    console = {"enabled": True, "allow_execute": True}
    async with stoppable(Shop(tool("tool"), run=silent), console=console, opened=False) as (up, client, stop):
        await client.send("POST", b"{oops", "/explorer/raw/tools/tool/call", accept=accept)
        await up.arrived("tools/call")
        await stop()
        head = await client.head()
        assert (head.status, head.get("x-adapter-warning") is None) == (status, status == 503)


@pytest.mark.parametrize(
    "sent", [b"", b"data: x\n\n", b": c\r\n\r\n", b"data: x\r\r", b"data: x\n\r\n", b"\n"]
)
def test_last_words_behind_whole_events(sent: bytes) -> None:
    """Where every event is whole nothing stands before the time to come back."""
    assert last_words_behind(sent[-4:]) == RETRY


@pytest.mark.parametrize(
    "sent", [b"d", b"data: x", b"data: x\n", b"data: x\r", b"data: x\r\n", b"id: 1\r\ndata"]
)
def test_last_words_behind_a_part_of_an_event(sent: bytes) -> None:
    """The part becomes an event that no client dispatches as a message."""
    reader = SseReader(1000)
    events = reader.feed(sent + last_words_behind(sent[-4:]))
    assert [each.event for each in events] == [b"torn"]
    assert (reader.retry, reader.rest) == (3000, b"")
