"""Messages over HTTP that are bounded, or judged before they go on: their size, their encoding and their names."""

from __future__ import annotations

import gzip
import json
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, call_body, error_of

DISABLED = {"disabled_tools": ["hidden"]}
HALF = "\ud800"


def spelled(name: str, number: int = 1) -> bytes:
    """A call of a tool by a name that UTF-8 may not have."""
    params = {"name": name, "arguments": {name: name}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


async def echo(exchange: Exchange) -> None:
    """Answers each request, or each of a batch, with an empty result."""
    read = json.loads(exchange.body)
    messages = read if isinstance(read, list) else [read]
    said = [{"jsonrpc": "2.0", "id": each["id"], "result": {}} for each in messages]
    await exchange.json(orjson.dumps(said if isinstance(read, list) else said[0]))


# --- bounds ---------------------------------------------------------------------------------------------------


async def test_a_batch_has_so_many_members(in_session: StartRoad) -> None:
    """One more and it is refused whole, with the limit; the session goes on."""
    most = 100
    async with in_session(echo, version="2025-03-26") as (up, _, client):
        members = [call_body("tool", number) for number in range(most + 1)]
        head, body = await client.request("POST", b"[" + b",".join(members) + b"]")
        assert head.status == 400
        message = error_of(body)["message"]
        assert f"{most + 1} messages" in message and f"at most {most}" in message
        assert up.calls("POST") == []
        head, body = await client.request("POST", b"[" + b",".join(members[1:]) + b"]")
        assert (head.status, len(orjson.loads(body))) == (200, most)


async def test_a_message_has_so_many_values(in_session: StartRoad) -> None:
    """Those in arrays and objects count, texts do not; what is allowed arrives as it was sent."""
    async with in_session(echo) as (up, _, client):
        for many in (
            b"[" + b"[]," * 300_000 + b"0]",
            b'{"a":' + b'{"":' * 900 + b"[" + b"0," * 200_000 + b"0]" + b"}" * 901,
        ):
            head, body = await client.request("POST", call_body().replace(b"{}", many))
            assert (head.status, error_of(body)["code"]) == (400, -32600)
            assert "more than 200000 values" in error_of(body)["message"]
        for few in (b"[" + b"0," * 199_000 + b"0]", b'"' + b"[,{" * 50_000 + b'\\"\\\\"'):
            sent = call_body().replace(b"{}", few)
            head, body = await client.request("POST", sent)
            assert (head.status, body) == (200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
            assert up.seen[-1].body == sent


async def test_a_strangers_body_is_not_worth_reading(road: StartRoad) -> None:
    """A short one lends its id to the refusal; of a long one nobody without a token gets more than the refusal."""
    core = {"auth": {"enabled": True, "token": "x" * 32}}
    async with road(echo, core=core) as (_, _, client):
        for size, number in ((10, 1), (50_000, None)):
            head, body = await client.request("POST", call_body().replace(b"{}", b"[" + b"0," * size + b"0]"))
            assert (head.status, error_of(body)["id"]) == (401, number)


# --- encodings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"content_type": "application/json; charset=utf-7"},
        {"content_type": 'application/json;charset="UTF-16"'},
        {"content_type": "application/json; x=y; CharSet=iso-8859-1"},
    ],
)
async def test_what_is_judged_is_json_in_utf8(in_session: StartRoad, fields: dict[str, str]) -> None:
    """A server that goes by what the head says would read another message; where nothing is hidden it may."""
    async with in_session(echo, server=DISABLED) as (up, _, client):
        head, _ = await client.request("POST", call_body(), **fields)
        assert head.status == 415 and up.calls("tools/call") == []
        head, _ = await client.request("POST", call_body(), content_type='application/json; charset="UTF-8"')
        assert head.status == 200
    async with in_session(echo) as (up, _, client):
        assert (await client.request("POST", call_body(), **fields))[0].status == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"content_type": "application/json, text/x; charset=cp037"}, 415),
        ({"content_type": "application/json", "Content_type": "application/json"}, 400),
        ({"content_encoding": "identity", "Content_encoding": "deflate"}, 400),
    ],
)
async def test_a_body_of_two_kinds_is_refused(
    in_session: StartRoad, fields: dict[str, str], status: int
) -> None:
    """Also where nothing is judged: of two values each reader may take another."""
    async with in_session(echo) as (up, _, client):
        assert (await client.request("POST", call_body(), **fields))[0].status == status
        assert up.calls("tools/call") == []


async def test_what_was_compressed_is_sent_as_it_was_judged(in_session: StartRoad) -> None:
    """Of the same bytes two programs may make different texts."""
    async with in_session(echo, server=DISABLED) as (up, _, client):
        head, _ = await client.request("POST", gzip.compress(call_body()), content_encoding="gzip")
        assert head.status == 200
        assert up.seen[-1].body == call_body() and up.seen[-1].head.get("content-encoding") is None


# --- names ----------------------------------------------------------------------------------------------------

FRONTS: list[dict[str, Any]] = [
    {},
    {"core": {"log_level": "debug"}, "server": DISABLED},
    {"core": {"tool_definition_pinning": {"mode": "warn"}}},
    {"core": {"tool_definition_pinning": {"mode": "block"}}},
    {"server": {"code_mode_enabled": True}},
    {"server": {"stages": {"*": {"limits": {"concurrency": {"max_active": 5}}}}}},
    {"console": {"enabled": True, "allow_execute": True}},
]


@pytest.mark.parametrize("settings", FRONTS)
@pytest.mark.parametrize("name", [HALF, f"tool{HALF}", f"{HALF}\udc00x", "\udfff" * 3000])
async def test_half_a_character_in_a_name_harms_nobody(
    in_session: StartRoad, settings: dict[str, Any], name: str
) -> None:
    """The call is answered, whatever looks at its name on the way; its connection goes on."""

    async def script(exchange: Exchange) -> None:
        tools = [
            {"name": name, "inputSchema": {"type": "object"}},
            {"name": "tool", "inputSchema": {"type": "object"}},
        ]
        message = json.loads(exchange.body)
        said: dict[str, Any] = {"content": []} if message["method"] == "tools/call" else {"tools": tools}
        await exchange.json(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": said}).encode())

    async with in_session(script, **settings) as (_, _, client):
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
            spelled(name),
            spelled(name).replace(b"tools/call", b"prompts/get"),
            spelled(name).replace(b'"id": 1', b'"id": "\\ud800"'),
            spelled(name).replace(b'"tools/call"', b'"\\ud800"'),
            spelled("raw_call_tool").replace(b'{"raw_call_tool": "raw_call_tool"}', b'{"name":"\\ud800"}'),
            spelled("raw_get_tool_schema").replace(b'{"raw_get_tool_schema":', b'{"name":'),
            spelled("raw_search_tools").replace(
                b'{"raw_search_tools": "raw_search_tools"}', b'{"query":"\\ud800"}'
            ),
        ):
            head, answer = await client.request("POST", body)
            assert head.status in (200, 400) and b'"internal' not in answer and b"-32603" not in answer
            assert json.loads(answer)["id"] in (1, HALF)
        assert (await client.request("POST", call_body("tool")))[0].status == 200


async def test_a_batch_of_odd_names_is_answered_member_by_member(in_session: StartRoad) -> None:
    """Each refusal says its name in characters that there are."""
    async with in_session(echo, version="2025-03-26", server=DISABLED) as (up, _, client):
        odd = [spelled(f"hidden{HALF}", 1), spelled(f"free{HALF}", 2), spelled("hidden\0", 3)]
        head, body = await client.request("POST", b"[" + b",".join(odd) + b"]")
        assert head.status == 200
        said = {each["id"]: each for each in json.loads(body)}
        assert {number for number, each in said.items() if "error" in each} == {1, 3}
        assert json.loads(up.seen[-1].body)[0]["params"]["name"] == f"free{HALF}"
