"""Access rules over sockets: two people on one server, who may see and use different things."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest

from tests.edge.company import (
    ALICE,
    AUTH,
    BOB,
    CAROL,
    LISTS,
    PROMPTS,
    RULES,
    TEMPLATES,
    TOOLS,
    Person,
    StartCompany,
    entry_of,
    office,
)
from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import MODERN_META, MODERN_VERSION, Exchange, RawUpstream, Script, answering, event

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


@ERAS
async def test_everybody_sees_their_own_lists(company: StartCompany, modern: bool) -> None:
    """On every page, in turns, also of answers that are known already; whoever no rule names sees nothing."""
    async with company(modern) as (_, enter, _):
        alice, bob, carol = await enter(ALICE), await enter(BOB), await enter(CAROL)
        for _ in range(2):
            assert await alice.all("tools/list") == ["read_file", "write_file"]
            assert await bob.all("tools/list") == ["read_file", "payroll_show"]
            assert await carol.all("tools/list") == []
            assert await alice.all("resources/list") == ["file:///public/a", "file:///home/c"]
            assert await bob.all("resources/list") == ["file:///public/a"]
            assert await alice.all("resources/templates/list") == TEMPLATES
            assert await bob.all("resources/templates/list") == ["file:///public/{name}"]
            assert await alice.all("prompts/list") == PROMPTS
            assert await bob.all("prompts/list") == ["greet"]
            assert await carol.all("prompts/list") == []


@ERAS
async def test_a_hidden_tool_is_one_that_does_not_exist(company: StartCompany, modern: bool) -> None:
    """Byte for byte but for the name, and neither call reaches the upstream."""
    async with company(modern) as (up, enter, _):
        alice, bob = await enter(ALICE), await enter(BOB)
        assert (await alice.call("write_file"))["result"]
        assert (await bob.call("payroll_show"))["result"]
        sent = len(up.calls("tools/call"))
        for person, hidden in ((alice, "payroll_show"), (bob, "write_file")):
            refused = await person.call(hidden)
            assert refused["error"] == {"code": -32602, "message": f"Unknown tool: {hidden}"}
            for missing in ("nowhere_at_all", "read_nothing", "payroll_nothing"):
                unknown = await person.call(missing)
                assert orjson.dumps(unknown).replace(missing.encode(), hidden.encode()) == orjson.dumps(
                    refused
                )
        assert len(up.calls("tools/call")) == sent


async def test_heads_of_both_answers_are_equal(company: StartCompany) -> None:
    """Status and fields tell a hidden tool from a missing one as little as the body."""
    async with company() as (_, enter, _):
        bob = await enter(BOB)
        heads = []
        for name in ("write_file", "wrote_file"):
            body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}})
            head, _ = await bob.send(body)
            heads.append((head.first, [field for field in head.fields if field[0] != "date"]))
        assert heads[0] == heads[1]


def offering(tools: Callable[[], list[dict[str, Any]]]) -> Script:
    """An office with the tools of the moment."""

    async def script(exchange: Exchange) -> None:
        if exchange.message["method"] == "tools/list":
            body = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"tools": tools()}}
            await exchange.json(orjson.dumps(body))
        else:
            await office(exchange)

    return script


@pytest.mark.parametrize(
    "name", ["PAYROLL_show", "payroll\u200b_show", " payroll_show", "payroll_show\0", "\uff50ayroll_show"]
)
async def test_no_spelling_gets_past_a_rule(company: StartCompany, name: str) -> None:
    """A server may read other names in a name, so what reads like a denied one is denied."""
    offered = [entry_of("tools/list", each) for each in (*TOOLS, name)]
    async with company(script=offering(lambda: offered)) as (up, enter, _):
        alice = await enter(ALICE)
        assert name not in await alice.all("tools/list")
        assert (await alice.call(name))["error"]["code"] == -32602
        assert not up.calls("tools/call")


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","name":"write_file"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","Name":"write_file"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"write_file"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"greet","n\\u0061me":"review"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///public/a","URI":"file:///home/c"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":["file:///home/c"]}}',
        b'{"jsonrpc":"2.0","method":"resources/subscribe","params":{"uri":"file:///home/c"}}',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"write_file"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"greet",'
        b'"NAME":"review"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":"review"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{}}',
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(company: StartCompany, body: bytes) -> None:
    """The upstream never gets a message in which it might find another name, or one that nobody judges."""
    async with company() as (up, enter, _):
        bob = await enter(BOB)
        before = len(up.seen)
        head, answer = await bob.send(body)
        assert head.status in (200, 400) and b'"error"' in answer
        assert len(up.seen) == before


@ERAS
async def test_prompts_and_resources_are_judged_by_name(company: StartCompany, modern: bool) -> None:
    """Hidden ones get the answer of missing ones, which the upstream's own words do not tell apart."""
    async with company(modern) as (up, enter, _):
        bob = await enter(BOB)
        assert (await bob.ask("prompts/get", name="greet"))["result"]
        assert (await bob.ask("resources/read", uri="file:///public/a"))["result"]
        sent = len(up.calls("prompts/get")) + len(up.calls("resources/read"))
        hidden = await bob.ask("prompts/get", name="review")
        assert hidden["error"] == {"code": -32602, "message": "Unknown prompt: review"}
        secret = await bob.ask("resources/read", uri="file:///home/c")
        code = -32602 if modern else -32002
        data = {"uri": "file:///home/c"}
        assert secret["error"] == {"code": code, "message": "Resource not found", "data": data}
        assert (await bob.ask("resources/read", uri="file:///public/../home/c"))["error"]["code"] == code
        assert (await bob.ask("resources/read", uri="file:///public/.\t./home/c"))["error"]["code"] == code
        assert len(up.calls("prompts/get")) + len(up.calls("resources/read")) == sent
        missing = await bob.ask("resources/read", uri="file:///public/x")
        assert missing["error"] == {**secret["error"], "data": {"uri": "file:///public/x"}}
        alice = await enter(ALICE)
        assert (await alice.ask("prompts/get", name="nowhere"))["error"][
            "message"
        ] == "Unknown prompt: nowhere"


async def test_subscriptions_and_completions_are_judged(company: StartCompany) -> None:
    """A reference is judged by all that it names."""
    async with company() as (_, enter, _):
        bob = await enter(BOB)
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await bob.ask(method, uri="file:///public/a"))["result"]
            assert (await bob.ask(method, uri="file:///home/c"))["error"]["code"] == -32002
        argument = {"name": "a", "value": ""}
        for reference, seen in (
            ({"type": "ref/prompt", "name": "greet"}, True),
            ({"type": "ref/prompt", "name": "review"}, False),
            ({"type": "ref/resource", "uri": "file:///public/{name}"}, True),
            ({"type": "ref/resource", "uri": "file:///{+path}"}, False),
            ({"type": "ref/prompt", "name": "greet", "uri": "file:///{+path}"}, False),
        ):
            answer = await bob.ask("completion/complete", ref=reference, argument=argument)
            assert ("result" in answer) is seen


def says(method: str, **members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "method": method, **members})


UPDATES = [
    says("notifications/resources/updated", params={"uri": uri})
    for uri in ("file:///home/c", "file:///public/a")
]
"""Of a resource that is hidden from Bob, and of one that he may see."""


def listed(key: str, name: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 3, "result": {key: [{"name": name}]}})


def streaming(method: str, *messages: bytes) -> Script:
    """An office that answers this method, of JSON-RPC or of HTTP, with a stream of messages."""

    async def script(exchange: Exchange) -> None:
        if exchange.message.get("method", exchange.head.method) == method:
            await exchange.stream(b"".join(map(event, messages)))
        else:
            await office(exchange)

    return script


@ERAS
async def test_updates_of_hidden_resources_are_not_heard(company: StartCompany, modern: bool) -> None:
    """On the stream that a client listens to, in a session or without one: the upstream may speak of anything there."""
    said = [*UPDATES, listed("prompts", "review"), listed("tools", "write_file"), says("end")]
    async with company(modern, streaming("GET", *said)) as (_, enter, _):
        bob = await enter(BOB)
        fields = {"mcp_protocol_version": MODERN_VERSION} if modern else {}
        head, body = await bob.client.request("GET", b"", accept="text/event-stream", **fields, **bob.fields)
        assert head.status == 200 and UPDATES[1] in body and b'"method":"end"' in body
        assert not any(hidden in body for hidden in (b"home", b"review", b"write_file"))


PRODUCER = {"type": "artifact_producer", "tools": ["read_file"], "output_path_argument": "path"}


@pytest.mark.parametrize("server", [{}, {"adapters": [PRODUCER]}], ids=["piped", "staged"])
async def test_updates_beside_an_answer_are_judged(company: StartCompany, server: dict[str, Any]) -> None:
    """On the stream of a call the answer passes with all that it holds, and of the rest what may be seen."""
    answer = b'{"jsonrpc":"2.0","id":7,"result":{"content":[],"resources":["file:///home/c"]}}'
    async with company(script=streaming("tools/call", *UPDATES, answer), server=server) as (_, enter, _):
        bob = await enter(BOB)
        params = {"name": "read_file", "arguments": {}}
        _, body = await bob.send(says("tools/call", id=7, params=params))
        assert UPDATES[1] in body and b'"resources":["file:///home/c"]' in body
        assert UPDATES[0] not in body


async def test_a_modern_stream_carries_visible_resources_only(company: StartCompany) -> None:
    """What is subscribed to upstream is what the caller sees, and so is what is heard."""
    end = b'{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}'
    script = streaming("subscriptions/listen", *UPDATES, end)
    async with company(modern=True, script=script) as (up, enter, _):
        bob = await enter(BOB)
        wanted = {"resourceSubscriptions": ["file:///public/a", "file:///home/c"]}
        params = {"notifications": wanted, "_meta": MODERN_META}
        fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "subscriptions/listen"}
        _, answer = await bob.send(says("subscriptions/listen", id=7, params=params), **fields)
        (sent,) = up.calls("subscriptions/listen")
        params_sent: Any = sent.message["params"]
        assert params_sent["notifications"] == {"resourceSubscriptions": ["file:///public/a"]}
        assert UPDATES[1] in answer and b"home" not in answer


@ERAS
async def test_tasks_of_others_are_not_listed(company: StartCompany, modern: bool) -> None:
    """A session has an upstream session with its own tasks; without one an upstream would list those of everybody."""
    async with company(modern) as (up, enter, _):
        bob = await enter(BOB)
        answer = await bob.ask("tasks/list")
        assert len(up.calls("tasks/list")) == (not modern)
        assert ("result" in answer) is not modern
        assert not modern or answer["error"] == {"code": -32601, "message": "Method not found: tasks/list"}
        assert "result" in await bob.ask("tasks/get", taskId="of-bobs-call")


TASKS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    version = message.get("params", {}).get("protocolVersion")
    result = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "a", "version": "1"}}
    if message["method"] == "tasks/list":
        result = {"tasks": [{"taskId": "somebodys"}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("process", ["shared", "per_session"])
async def test_tasks_of_a_shared_process_are_not_listed(adapter: StartAdapter, process: str) -> None:
    """It sees the sessions of all callers as one."""
    stdio = {"transport": "stdio", "command": sys.executable, "args": ["-c", TASKS], "process": process}
    async with (
        adapter(
            RawUpstream(office), server={"access": RULES, "upstream": {"url": None, **stdio}}, core=AUTH
        ) as front,
        front.client() as client,
    ):
        bob = Person(client, BOB, modern=False)
        await bob.open()
        assert ("somebodys" in str(await bob.ask("tasks/list"))) is (process == "per_session")


async def test_a_batch_tells_nothing_of_what_is_hidden(company: StartCompany) -> None:
    """Whatever access rules are about is sent on its own, a missing tool too; the rest of a batch is forwarded."""

    async def script(exchange: Exchange) -> None:
        if exchange.message:
            await office(exchange)
        else:
            await exchange.json(b'[{"jsonrpc":"2.0","id":2,"result":{}}]')

    async with company(script=script, version="2025-03-26") as (up, enter, _):
        bob = await enter(BOB)
        before, ping = len(up.seen), says("ping", id=2)
        for method, params in (
            ("prompts/get", {"name": "review"}),
            ("resources/read", {"uri": "file:///home/c"}),
            ("resources/subscribe", {"uri": "file:///home/c"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "review"}}),
            ("prompts/list", {}),
            ("resources/templates/list", {}),
            ("tools/call", {"name": "write_file"}),
            ("tools/call", {"name": "nowhere"}),
        ):
            _, body = await bob.send(b"[%s,%s]" % (says(method, id=1, params=params), ping))
            answers = {each["id"]: each for each in orjson.loads(body)}
            assert answers[2]["result"] == {}
            message = answers[1]["error"]["message"]
            assert method != "tools/call" or f"Call {params['name']} on its own" in message
        batches = [orjson.loads(each.body) for each in up.seen[before:] if not each.message]
        assert [[each["method"] for each in batch] for batch in batches] == [["ping"]] * 8


async def test_code_mode_finds_only_what_may_be_called(company: StartCompany) -> None:
    """Search, description and call, each by the rules of the tool that is meant."""
    async with company(server={"code_mode_enabled": True}) as (up, enter, _):
        bob, carol = await enter(BOB), await enter(CAROL)
        names = ["raw_search_tools", "raw_get_tool_schema", "raw_call_tool"]
        assert await bob.all("tools/list") == names
        assert await carol.all("tools/list") == []
        found = await bob.ask(
            "tools/call", name=names[0], arguments={"query": "file payroll show write read"}
        )
        assert b"read_file" in orjson.dumps(found) and b"payroll_show" in orjson.dumps(found)
        assert b"write_file" not in orjson.dumps(found)
        answers = [
            orjson.dumps(await bob.ask("tools/call", name=names[1], arguments={"name": name})).replace(
                name.encode(), b"NAME"
            )
            for name in ("write_file", "wrote_file")
        ]
        assert answers[0] == answers[1]
        for name, seen in (("read_file", True), ("write_file", False), ("nowhere", False)):
            answer = await bob.ask("tools/call", name=names[2], arguments={"name": name, "arguments": {}})
            assert ("result" in answer) is seen
            assert seen or answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}
        refused = await carol.ask("tools/call", name=names[0], arguments={"query": "file"})
        assert refused["error"]["message"] == f"Unknown tool: {names[0]}"
        assert len(up.calls("tools/call")) == 1


async def test_the_http_api_follows_the_same_rules(company: StartCompany) -> None:
    """Lists, descriptions and calls over HTTP, and the answers for hidden and missing tools are equal."""
    console = {"enabled": True, "allow_execute": True, "path": "/explorer", "discovery_auth": True}
    async with company(console=console) as (up, _, front), front.client() as client:
        path = "/explorer/raw/tools"
        for token, names in ((ALICE, TOOLS[:2]), (BOB, [TOOLS[0], TOOLS[2]]), (CAROL, [])):
            fields = {"authorization": f"Bearer {token}"}
            head, body = await client.request("GET", b"", path, **fields)
            assert head.status == 200, body
            assert [each["name"] for each in orjson.loads(body)] == names
            for name in TOOLS:
                head, _ = await client.request("GET", b"", f"{path}/{name}", **fields)
                assert head.status == (200 if name in names else 404)
                before = len(up.calls("tools/call"))
                head, body = await client.request("POST", b"{}", f"{path}/{name}/call", **fields)
                assert head.status == (200 if name in names else 404), body
                assert len(up.calls("tools/call")) - before == (name in names)
                if name not in names:
                    _, missing = await client.request("POST", b"{}", f"{path}/nowhere/call", **fields)
                    assert missing.replace(b"nowhere", name.encode()) == body


@pytest.mark.parametrize("method", ["prompts/list", "resources/list"])
@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "another process"])
async def test_a_list_on_another_stream_is_reduced_too(
    upstream: StartUpstream, adapter: StartAdapter, method: str, restarts: bool
) -> None:
    """By the rules of whoever asked for it, also where another process gets the answer."""
    key, member, names = LISTS[method]
    listed = {"jsonrpc": "2.0", "id": 7, "result": {key: [entry_of(method, name) for name in names]}}

    async def script(exchange: Exchange) -> None:
        late = exchange.head.method == "GET"
        await exchange.stream(event(orjson.dumps(listed), "2") if late else b"id: 1\nretry: 1\ndata:\n\n")

    fields = {"authorization": f"Bearer {BOB}"}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": method})
    async with upstream(script) as up:
        start = partial(adapter, up, server={"access": RULES}, core=AUTH)
        async with contextlib.AsyncExitStack() as stack:
            front = await stack.enter_async_context(start())
            client = await stack.enter_async_context(front.client())
            await client.initialize(**fields)
            await client.request("POST", body, **fields)
            if restarts:
                await stack.aclose()
                front = await stack.enter_async_context(start())
                session, client = client.session, await stack.enter_async_context(front.client())
                client.session = session
            _, answer = await client.request(
                "GET", b"", accept="text/event-stream", last_event_id="1", **fields
            )
    data = next(line for line in answer.splitlines() if line.startswith(b"data:"))
    entries = orjson.loads(data.removeprefix(b"data:"))["result"][key]
    assert [each[member] for each in entries] == names[:1]


async def test_hosted_tools_have_rules_too(road: StartRoad) -> None:
    """Their names are known here, and the answer for an unknown one is the same as behind an upstream."""
    define = [
        {"name": name, "use": "db", "statement": "SELECT 1 AS one"} for name in ("read_one", "write_one")
    ]
    server = {"access": RULES, "upstream": {"transport": "hosted", "url": None}, "tools": {"define": define}}
    connectors = [{"name": "db", "connector": "sqlite", "connection_string": ":memory:"}]
    async with road(server=server, core=AUTH, connectors=connectors) as (_, _, client):
        bob = Person(client, BOB, modern=False)
        await bob.open()
        assert await bob.all("tools/list") == ["read_one"]
        assert "result" in await bob.call("read_one")
        hidden, missing = await bob.call("write_one"), await bob.call("wrote_one")
        assert orjson.dumps(missing).replace(b"wrote", b"write") == orjson.dumps(hidden)


async def test_a_list_that_cannot_be_had_tells_no_names(company: StartCompany) -> None:
    """While the upstream lists nothing, calls of hidden, missing and visible tools fail alike."""

    async with company(script=answering(500, b"no")) as (_, enter, _):
        bob = await enter(BOB)
        answers = [(await bob.call(name))["error"] for name in ("write_file", "nowhere", "read_file")]
        assert answers[0] == answers[1] == answers[2]


async def test_a_tool_that_was_listed_can_be_called(company: StartCompany) -> None:
    """Also one that came without a word of the upstream, after others were called."""
    there = ["read_file"]
    script = offering(lambda: [entry_of("tools/list", name) for name in there])
    async with company(script=script) as (_, enter, _):
        bob = await enter(BOB)
        assert (await bob.call("read_file"))["result"]
        assert (await bob.call("read_more"))["error"]
        there.append("read_more")
        assert await bob.all("tools/list") == there
        assert (await bob.call("read_more"))["result"]


async def test_drift_of_hidden_tools_is_nobodys_business(company: StartCompany) -> None:
    """Pins that block keep a caller from what changed, not from the rest, and tell no hidden name."""
    changed: set[str] = set()

    def tools() -> list[dict[str, Any]]:
        return [{**entry_of("tools/list", name), "description": str(name in changed)} for name in TOOLS]

    pinning = {"tool_definition_pinning": {"mode": "block", "block_error_session_action": "keep"}}
    async with company(script=offering(tools), core=pinning) as (_, enter, _):
        alice, bob = await enter(ALICE), await enter(BOB)
        assert await alice.all("tools/list") and await bob.all("tools/list")
        changed.add("write_file")
        assert await bob.all("tools/list") == ["read_file", "payroll_show"]
        assert (await bob.call("read_file"))["result"]
        refused = await alice.ask("tools/list")
        assert "write_file" in refused["error"]["message"]
        changed.add("payroll_show")
        assert "payroll" not in str(await alice.ask("tools/list"))


async def test_the_adapters_own_tool_needs_a_rule_too(company: StartCompany) -> None:
    """The upload helper is a tool like others; the artifacts of a caller are its own without a rule."""
    adapters = [
        {"type": "upload_consumer", "tools": ["write_file"], "file_path_argument": "path"},
        {"type": "artifact_producer", "tools": ["read_file"], "output_path_argument": "path"},
    ]
    async with company(server={"adapters": adapters}) as (up, enter, _):
        alice, bob = await enter(ALICE), await enter(BOB)
        helper = "raw_get_upload_url"
        assert helper in await alice.all("tools/list")
        assert helper not in await bob.all("tools/list")
        assert "result" in await alice.call(helper)
        assert (await bob.call(helper))["error"]["message"] == f"Unknown tool: {helper}"
        gone = await bob.ask("resources/read", uri=f"artifact://sessions/{'0' * 32}/{'0' * 32}/x.txt")
        assert gone["error"]["message"].startswith("Resource not found: it does not exist")
        assert not up.calls("resources/read")
