"""What goes to a server with a guard is judged first, whatever it seems to be; and what comes back of its tools too."""

from __future__ import annotations

import gzip

import pytest

from adapter.errors import AdapterError, BadJson, BadRequest, UpstreamBroken
from adapter.rules.tools.visibility import Disabled, Policies
from adapter.upstream.port import header
from tests.relay.guarding import SSE, Shop, guarded, tool
from tests.relay.relaying import Relaying, whole
from tests.relay.tooling import Acting
from tests.scripted import ScriptedAnswer

HIDDEN = Policies(disabled=Disabled.of(["hidden"]))
JSON = (("Content-Type", "application/json"),)
SHOP = (tool("hidden", "Does harm."), tool("seen"))
CALL = b'"method":"tools/call","params":{"name":"hidden","arguments":{}}'
HIDDEN_CALL = b'"Method":"tools/call","params":{"name":"hidden","arguments":{}}'
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","cursor":"c"}%s}'
)

SMUGGLED = [
    b'{"jsonrpc":"2.0","id":1,"result":{},%s}' % HIDDEN_CALL,
    b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},%s}' % HIDDEN_CALL,
    b'{"jsonrpc":"2.0","id":null,"error":{},%s}' % HIDDEN_CALL,
    b'{"jsonrpc":"2.0","method":"notifications/progress","METHOD":"tools/call","Id":1,"params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized","params":{"name":"hidden"},"Method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","method\\u0000":"tools/call","params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","method ":"tools/call","params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"seen","Name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"seen"},"param\\u017f":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":" tools/call","params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools//call","params":{"name":"hidden"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["hidden",{}]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["hidden"]}}',
    b'{"jsonrpc":"2.0",%s}' % CALL,
]


@pytest.mark.parametrize("message", SMUGGLED)
async def test_no_message_smuggles_a_call(message: bytes) -> None:
    """A response, a notification or a request that another reader takes for a call of a hidden tool goes nowhere."""
    shop = Shop(*SHOP)
    async with guarded(shop, "off", policies=HIDDEN) as front:
        with pytest.raises(AdapterError):
            await front.relaying.post(message, await front.open())
        assert shop.requests == []


@pytest.mark.parametrize(
    "more", [b',"Method":"tools/call"', b',"PARAMS":{"name":"hidden"}', b',"result":{}', b',"ID":1']
)
async def test_initialize_smuggles_no_call(more: bytes) -> None:
    """It opens a session, and is sent again in each new one."""
    shop = Shop(*SHOP)
    async with guarded(shop, "off", policies=HIDDEN) as front:
        with pytest.raises(BadRequest):
            await front.relaying.post_first(INITIALIZE % more)
        assert shop.requests == []


@pytest.mark.parametrize("message", SMUGGLED)
async def test_a_server_without_a_guard_is_sent_what_came(message: bytes) -> None:
    """There is nothing to get around, so nobody minds."""
    taken = Acting(lambda _: ScriptedAnswer(202))
    relaying = Relaying(taken)
    await relaying.post(message, await relaying.open())
    assert [request.body for request in taken.requests] == [message]


# --- what is read by others than readers of JSON --------------------------------------------------------------


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_compressed_message_leaves_as_it_was_read(refuses: bool) -> None:
    """Of one body two programs may make different texts; where nothing is refused it keeps its bytes."""
    shop = Shop(*SHOP)
    text = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"seen","arguments":{}}}'
    packed = gzip.compress(text)
    shop.says = lambda _: ScriptedAnswer(202)
    async with guarded(shop, "off", policies=HIDDEN if refuses else Policies()) as front:
        ask = front.relaying.ask(
            text, await front.open(), encoded=True, headers=[("Content-Encoding", "gzip")]
        )
        ask.body = packed
        if refuses:
            await whole(await front.relaying.relay.handle(ask))
            assert (shop.requests[-1].body, header(shop.requests[-1].headers, "content-encoding")) == (
                text,
                None,
            )
        else:
            with pytest.raises(BadJson):
                await front.relaying.relay.handle(ask)
            assert shop.requests[-1].body == packed


# --- what comes back ------------------------------------------------------------------------------------------

EVIL = b'{"tools":[{"name":"hidden","description":"Does harm."}]}'
ODD_LISTS = [
    b'{"jsonrpc":"2.0","id":"1","result":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"Result":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"method":"x","result":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"result":{},"RESULT":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"result":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":2,"ID":1,"result":%s}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"result":%s,"x":NaN}' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"result":%s,}' % EVIL,
    b'// a comment\n{"jsonrpc":"2.0","id":1,"result":%s}' % EVIL,
    b'[{"jsonrpc":"2.0","id":9,"result":%s}]' % EVIL,
    b'{"jsonrpc":"2.0","id":1,"result":{"Tools":[{"name":"hidden"}]}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[{"name":"hidden"}],"tools":[]}}',
]


@pytest.mark.parametrize("body", ODD_LISTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("modern", [False, True])
async def test_no_list_shows_what_is_hidden(body: bytes, stream: bool, modern: bool) -> None:
    """A client that reads another list in it than was judged gets none; nor one that takes a response for its own."""
    shop = Shop(*SHOP)
    sent = b"data: " + body.replace(b"\n", b"\ndata: ") + b"\n\n" if stream else body
    shop.fails = ScriptedAnswer(headers=SSE if stream else JSON, chunks=[sent])
    async with guarded(shop, "off", policies=HIDDEN) as front:
        meta = (
            b',"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}' if modern else b""
        )
        asked = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"%s}' % meta
        try:
            answer = await front.relaying.post(asked, None if modern else await front.open())
        except UpstreamBroken:
            return
        assert b"hidden" not in answer and b"error" in answer


@pytest.mark.parametrize(
    ("status", "body", "left"),
    [
        (401, b'{"error":"unauthorized"}', True),
        (404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}', True),
        (503, b"<h1>Busy</h1>", True),
        (500, b"", True),
        (400, b'{"jsonrpc":"2.0","id":9,"result":%s}' % EVIL, False),
        (400, b'{"Result":%s}' % EVIL, False),
    ],
)
async def test_a_list_that_failed_says_why(status: int, body: bytes, left: bool) -> None:
    """The body of a failure is the upstream's, as long as no client could find tools in it."""
    shop = Shop(*SHOP)
    shop.fails = ScriptedAnswer(status, chunks=[body])
    async with guarded(shop, "off", policies=HIDDEN) as front:
        answer = await front.relaying.post(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', await front.open()
        )
        assert answer == (body if left else b"")


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


LISTED = b'{"jsonrpc":"2.0","id":1,"result":%s}' % EVIL


@pytest.mark.parametrize(
    "data",
    [
        LISTED,
        LISTED.replace(b"tools", b"TOOLS"),
        LISTED.replace(b"tools", b"\\u0074ools"),
        LISTED.replace(b"tools", b"to_ols"),
        LISTED.replace(b"tools", b"tool\xc5\xbf"),
        b"[" + LISTED + b"]",
        LISTED[:-1] + b',"x":NaN}',
    ],
)
async def test_no_replay_shows_what_is_hidden(data: bytes) -> None:
    """Who resumes the stream of a list that is over gets from the upstream what it said then."""
    shop = Shop(*SHOP)
    shop.stream = [event(data), event(b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}')]
    async with guarded(shop, "off", policies=HIDDEN) as front:
        told = await front.relaying.get(await front.open(), "7")
        assert b"hidden" not in told
        assert told.endswith(event(b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}'))


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"My tools: \\"x\\" \xe2\x82\xac"}]}}',
        b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{"tools":[{"name":"own"}]}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no tools"}}',
    ],
)
async def test_other_messages_of_a_stream_pass(data: bytes) -> None:
    """Only what a client could take for a list is none of a listener's business."""
    shop = Shop(*SHOP)
    shop.stream = [event(data)]
    async with guarded(shop, "off", policies=HIDDEN) as front:
        assert await front.relaying.get(await front.open(), "7") == event(data)


async def test_a_list_is_replayed_where_nothing_is_hidden() -> None:
    """What everybody may see needs no guard."""
    shop = Shop(*SHOP)
    shop.stream = [event(LISTED)]
    async with guarded(shop, "warn") as front:
        assert await front.relaying.get(await front.open(), "7") == event(LISTED)
