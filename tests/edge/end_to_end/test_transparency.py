"""Bodies and statuses cross the adapter as they are: what one side sent is what the other side got."""

from __future__ import annotations

import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, answering, in_json

ODD_REQUEST = (
    b'\r\n{ "params" : {"x-more":[1.0,1e5,1E+05,-0,0.10], "arguments":{"n":123456789012345678901234567890,'
    b'"t":"\\u00e9\\/\xc3\xa9\xe2\x80\xa8","nested":{"id":1,"id":2,"method":"x"}}  ,\t"name":"tool",'
    b'"_meta":{"progressToken":1.0,"vendor/key":null}},"extra":{"b":1,"a":2},\n "id" : 9007199254740993 ,'
    b'"method":"tools/call","jsonrpc":"2.0"}\n'
)
"""Legal, and changed by whoever decodes and encodes it."""

ODD_ANSWER = (
    b' {"result":{"structuredContent":{"big":123456789012345678901234567890,"one":1.0,"e":1E400,"z":-0},'
    b'"content":[{"type":"hologram","x":"\\ud83d\\ude00\\u0000"},{"type":"text","text":"\xf0\x9f\x98\x80\\/"}],'
    b'"isError":false,"isError":false,"_meta":{}, "resultType":"complete" },\r\n'
    b'"unknown":[ ],"id":9007199254740993,"jsonrpc":"2.0"}\n\n'
)


async def test_odd_request_and_odd_answer_keep_their_bytes(in_session: StartRoad) -> None:
    """Big integers, ``1.0``, odd spaces, escapes, key order and unknown members survive both ways."""

    async with in_session(in_json(ODD_ANSWER)) as (up, _, client):
        head, body = await client.request("POST", ODD_REQUEST)
        assert head.status == 200 and body == ODD_ANSWER
        assert up.calls("tools/call")[0].body == ODD_REQUEST


async def test_initialize_keeps_its_bytes_both_ways(road: StartRoad) -> None:
    """The result that mints a session is read, yet leaves as it came, and so does the request."""
    asked = (
        b'{ "id":"a\\u0062","jsonrpc":"2.0","x":1.0,"method":"initialize",'
        b'"params":{"protocolVersion":"2025-11-25","capabilities":{"vendor":{"n":1e2}},"clientInfo":{}}}'
    )
    said = (
        b'{"id":"ab", "jsonrpc":"2.0","result":{"serverInfo":{},"capabilities":{"odd":{"z":1.0}},'
        b'"instructions":"\\u00e9","protocolVersion":"2025-11-25","mine":123456789012345678901}}'
    )

    async with road(opening=in_json(said, "Mcp-Session-Id: theirs")) as (up, _, client):
        head, body = await client.request("POST", asked)
        assert body == said and head.get("mcp-session-id") not in (None, "theirs")
        assert up.calls("initialize")[0].body == asked


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            200,
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":[1.0]}}',
            "application/json",
        ),
        (202, b"", ""),
        (204, b"", ""),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"odd"}}', "application/json"),
        (401, b"who are you", "text/plain"),
        (403, b"<p>no</p>", "text/html; charset=latin-1"),
        (405, b"", ""),
        (418, b"\x00\xff teapot", "application/octet-stream"),
        (429, b"slow down", "text/plain"),
        (500, b"Internal Server Error", "text/plain"),
        (503, b"", ""),
    ],
)
async def test_upstreams_own_status_and_body_are_passed_on(
    in_session: StartRoad, status: int, body: bytes, kind: str
) -> None:
    """What the upstream answers, it answers: no status, text or content type is replaced."""

    async def script(exchange: Exchange) -> None:
        fields = [f"Content-Type: {kind}"] if kind else []
        if status == 204:
            await exchange.send(b"HTTP/1.1 204 X\r\n\r\n")
        else:
            await exchange.answer(status, body, *fields)

    async with in_session(script) as (up, _, client):
        head, got = await client.call()
        assert (head.status, got, head.get("content-type") or "") == (status, body, kind)
        assert len(up.calls("tools/call")) == 1


async def test_404_of_an_upstream_without_sessions_is_its_own_answer(in_session: StartRoad) -> None:
    """Where no upstream session can have been lost, a 404 is passed on and nothing is replayed."""

    opening = in_json(b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}')

    script = answering(404, b"no such thing", "Content-Type: text/plain")
    async with in_session(script, opening=opening) as (up, _, client):
        head, body = await client.call()
        assert (head.status, body) == (404, b"no such thing")
        assert "mcp-session-id" not in dict(up.calls("tools/call")[0].head.fields)
        assert len(up.calls("initialize")) == 1


async def test_refused_initialize_is_passed_on_and_mints_nothing(road: StartRoad) -> None:
    """An initialize that the upstream refuses, by status or by error, leaves no session behind."""
    refusal = b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Unsupported","data":{"x":1.0}}}'
    statuses = iter([200, 400])

    async def opening(exchange: Exchange) -> None:
        await exchange.answer(next(statuses), refusal, "Content-Type: application/json")

    async with road(opening=opening) as (_, _, client):
        for status in (200, 400):
            head, body = await client.request("POST", b'{"jsonrpc":"2.0","id":0,"method":"initialize"}')
            assert (head.status, body) == (status, refusal)
            assert head.get("mcp-session-id") is None


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0", "method":"notifications/cancelled","params":{"requestId":1.0,"reason":"\\u0062"}}',
        b'{"method":"notifications/progress","jsonrpc":"2.0","params":{"progressToken":"p","progress":0.10}}',
        b'{"jsonrpc":"2.0","method":"notifications/vendor/unheard-of","params":[1,  2]}',
        b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
    ],
)
async def test_notifications_travel_as_they_are(in_session: StartRoad, message: bytes) -> None:
    """A client's notification reaches its own upstream session, and the upstream's 202 comes back."""
    async with in_session() as (up, _, client):
        head, body = await client.request("POST", message)
        assert (head.status, body) == (202, b"")
        assert up.seen[-1].body == message
        assert up.seen[-1].head["mcp-session-id"] == "upstream-1"


async def test_refused_notification_is_the_upstreams_own_answer(in_session: StartRoad) -> None:
    """What an upstream says to a notification that it does not take is not turned into a 202."""

    hearing = answering(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}', "Content-Type: text/x-odd")

    async with in_session(hearing=hearing) as (_, _, client):
        head, body = await client.request("POST", b'{"jsonrpc":"2.0","method":"notifications/odd"}')
        assert head.status == 400 and head["content-type"] == "text/x-odd"
        assert body == b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}'


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":"s-1", "result":{"action":"accept","content":{"n":1.0}},"more":null}',
        b'{"error":{"code":-1,"message":"no","data":{"big":12345678901234567890123}},"id":7,"jsonrpc":"2.0"}',
    ],
)
async def test_client_responses_travel_as_they_are(in_session: StartRoad, message: bytes) -> None:
    """A client's answer to a server's request is delivered byte for byte, error data too."""

    async with in_session(answering(202, b"")) as (up, _, client):
        head, body = await client.request("POST", message)
        assert (head.status, body) == (202, b"")
        assert up.seen[-1].body == message


@pytest.mark.parametrize(
    "method",
    [
        "completion/complete",
        "logging/setLevel",
        "resources/subscribe",
        "prompts/get",
        "tools/list",
        "resources/read",
        "vendor/own",
    ],
)
async def test_every_method_is_one_request_upstream(in_session: StartRoad, method: str) -> None:
    """Known or not, a method is sent once and as it is; the adapter asks the upstream nothing of its own."""
    asked = b'{"jsonrpc":"2.0","id":"\\u0031","method":"%s","params":{"$defs":{"x":1.0}}}' % method.encode()
    said = b'{"jsonrpc":"2.0","id":"1","result":{"$defs":{"y":1.0},"tools":[{"name":"a","x":1.0}]}}'

    async with in_session(in_json(said)) as (up, _, client):
        _, body = await client.request("POST", asked)
        assert body == said
        assert [each.body for each in up.seen[1:]] == [asked]


@pytest.mark.parametrize("status", [200, 400, 401, 403, 409, 500, 502])
async def test_error_text_about_sessions_is_just_an_error(in_session: StartRoad, status: int) -> None:
    """Whatever an error says and whatever its status but 404: the call runs once and the session stays."""
    said = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid session: Session not found"}}'

    async with in_session(answering(status, said, "Content-Type: application/json")) as (up, _, client):
        for _ in range(2):
            head, body = await client.call()
            assert (head.status, body) == (status, said)
        calls = [dict(each.head.fields) for each in up.calls("tools/call")]
        assert len(calls) == 2 and len({each["mcp-session-id"] for each in calls}) == 1
        assert up.sessions == {"upstream-1"}
