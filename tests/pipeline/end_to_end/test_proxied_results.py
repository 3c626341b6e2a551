"""What is kept, shown and told of the results of an upstream's tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.edge.raw import Exchange, event
from tests.hosted.serving import ERAS as SDK_ERAS
from tests.pipeline.end_to_end.living import ERAS
from tests.pipeline.end_to_end.workshop import Work, arguments_of, complete, echo, respond, saying, spoken

READS: Mapping[str, Any] = {"annotations": {"readOnlyHint": True}}

CACHED = """
state_sync:
  policies: [{match: "shop.change", invalidates: ["work*", "shop.*"]}]
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      work: {cache: {enabled: true, ttl: 60}}
      work_shared: {cache: {enabled: true, ttl: 60, vary: []}}
      work_by_header: {cache: {enabled: true, ttl: 60, vary: ["header:X-Tenant"]}}
      work_writes: {cache: {enabled: true}}
  - id: shop
    mount_path: /mcp/shop
    upstream: {transport: hosted}
    tools: {define: [{name: change, handler: "code.py#change"}]}
"""


CHANGE = "def change(payload):\n    return 'changed'\n"

cached = partial(spoken, CACHED, code=CHANGE)


@pytest.mark.parametrize("version", ERAS)
async def test_h26_what_a_session_was_answered_is_kept_for_it(tmp_path: Path, version: str) -> None:
    """By its arguments, for one session: an upstream may answer each from a state of its own."""
    async with cached(tmp_path, {"work": echo}, {"work": READS}, version=version) as (up, front, speaker):
        first, again = [await speaker.call("work", {"n": 1, "m": 2}) for _ in range(2)]
        other_order = await speaker.call("work", {"m": 2, "n": 1})
        assert first.result == again.result == other_order.result
        assert first.messages[0]["id"] != again.messages[0]["id"]
        await speaker.call("work", {"n": 2})
        assert len(up.calls("tools/call")) == 2
        if not speaker.modern:
            await front.call("work", {"n": 1, "m": 2})
            assert len(up.calls("tools/call")) == 3


async def test_w6_vary_says_who_shares_a_result(tmp_path: Path) -> None:
    """Nobody by default, everybody if so said, or those who send one header alike."""
    tools = dict.fromkeys(("work_shared", "work_by_header", "work_writes"), echo)
    definitions = {"work_shared": READS, "work_by_header": READS}
    async with cached(tmp_path, tools, definitions) as (up, front, _):
        for _ in range(3):
            await front.call("work_shared", {})
        assert len(up.calls("tools/call")) == 1
        for tenant in ("ann", "bob", "ann", ""):
            await front.call("work_by_header", {}, {"X-Tenant": tenant})
        assert len(up.calls("tools/call")) == 1 + 3
        for _ in range(2):
            await front.call("work_writes", {})
        assert len(up.calls("tools/call")) == 1 + 3 + 2, "without readOnlyHint nothing is kept"


async def test_w6_another_servers_change_purges_what_was_kept(tmp_path: Path) -> None:
    """A policy may name tools of any server; a change by one drops what was read from the other."""
    async with cached(tmp_path, {"work": echo}, {"work": READS}) as (up, front, speaker):
        for _ in range(2):
            await speaker.call("work", {})
        assert len(up.calls("tools/call")) == 1
        changed = await front.call("change", path="/mcp/shop")
        assert changed.texts[0] == '<cache_invalidation cause="change" domains="work*, shop.*" />'
        await speaker.call("work", {})
        assert len(up.calls("tools/call")) == 2


@pytest.mark.parametrize("version", ERAS)
async def test_w6_only_complete_results_of_plain_calls_are_kept(tmp_path: Path, version: str) -> None:
    """Neither failures nor what a call led to that was more than its arguments: an answer to a question, a task."""
    works: dict[str, Any] = {"work": echo, "work_shared": {**saying("no"), "isError": True}}
    alone = CACHED[CACHED.index("servers:") :]
    async with spoken(alone, tmp_path, works, dict.fromkeys(works, READS), version, code=CHANGE) as (
        up,
        _,
        speaker,
    ):
        for _ in range(2):
            assert (await speaker.call("work_shared", {})).result["isError"]
        assert len(up.calls("tools/call")) == 2
        more: dict[str, Any] = {"inputResponses": {"q": {"action": "accept"}}, "requestState": "s"}
        for params in (more, {"task": {"ttl": 1}}, {}, more, {"task": {"ttl": 1}}):
            await speaker.call("work", {}, **params)
        assert len(up.calls("tools/call")) == 2 + 5
        await speaker.call("work", {})
        assert len(up.calls("tools/call")) == 2 + 5


PRESENTED = """
presenters:
  person:
    schema: {id: int, name: string, ssn: string, cards: "list[any]?"}
    redact: {paths: [ssn, "cards[*].number"]}
    rules: ["Never say more than was asked."]
    suggest: [{when: "id > 1", tool: billing.pay, reason: It is due}]
    select: true
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "get_*": {presenter: person, state_sync: {cache_control: no-store}}
      "set_*": {state_sync: {invalidates: ["get_*", "up.list_*"]}}
"""

presented = partial(spoken, PRESENTED)

PERSON = {"id": 2, "name": "ann", "ssn": "078-05-1120", "cards": [{"number": "4111"}], "hidden": "undeclared"}
SECRETS = ("078-05-1120", "4111", "undeclared")


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("where", ["text", "structured", "both"])
async def test_v16_w14_what_is_redacted_is_nowhere_in_the_answer(
    tmp_path: Path, version: str, where: str
) -> None:
    """Neither in text, structuredContent, _meta, members that nobody knows nor in further blocks."""
    told = saying(PERSON) if where != "structured" else {"content": []}
    if where != "text":
        told["structuredContent"] = PERSON
    told |= {"_meta": {"debug": PERSON, "trace": "078-05-1120"}, "raw": PERSON}
    async with presented(tmp_path, {"get_person": told}, version=version) as (_, _, speaker):
        answer = await speaker.call("get_person", {})
        assert not [secret for secret in SECRETS if secret.encode() in answer.body], answer.body
        shown = {"id": 2, "name": "ann", "ssn": "[REDACTED]", "cards": [{"number": "[REDACTED]"}]}
        data, rules, suggestions = answer.texts
        assert json.loads(data) == answer.result["structuredContent"] == shown
        assert "Never say more" in rules and "- billing.pay: It is due" in suggestions
        assert answer.result.get("resultType") == ("complete" if speaker.modern else None)


@pytest.mark.parametrize("version", ERAS)
async def test_v16_an_answer_on_a_stream_is_redacted_too(tmp_path: Path, version: str) -> None:
    """What precedes it passes as it comes; the answer is the presenter's."""
    progress = (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0}}'
    )

    async def streamed(exchange: Exchange) -> None:
        told = complete(exchange, saying(PERSON, structuredContent=PERSON))
        await exchange.begin_stream()
        await exchange.chunk(event(progress))
        answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": told}
        await exchange.chunk(event(json.dumps(answer).encode()))
        await exchange.end_stream()

    async with presented(tmp_path, {"get_person": streamed}, version=version) as (_, _, speaker):
        answer = await speaker.call("get_person", {}, _meta={"progressToken": "p"})
        assert progress in answer.body and len(answer.messages) == 2
        assert not [secret for secret in SECRETS if secret.encode() in answer.body]
        assert answer.result["structuredContent"]["ssn"] == "[REDACTED]"


@pytest.mark.parametrize("mode", SDK_ERAS)
async def test_v12_the_sdks_client_takes_what_is_presented(tmp_path: Path, mode: str) -> None:
    """Though the upstream promised another shape: the promise is not passed on where it is not kept."""
    promised = {
        "type": "object",
        "required": ["ssn", "hidden"],
        "properties": {"hidden": {"const": "undeclared"}},
    }
    told = {**saying(PERSON), "structuredContent": PERSON}
    offered = {"get_person": {"outputSchema": promised}}
    async with (
        presented(tmp_path, {"get_person": told}, offered) as (_, front, _),
        front.client(mode) as client,
    ):
        (tool,) = (await client.list_tools()).tools
        assert tool.output_schema is None
        result = await client.call_tool("get_person", {"_select": ["name"]})
        assert not result.is_error and result.structured_content == {"name": "ann"}
        assert len(result.content) == 3


@pytest.mark.parametrize("version", ERAS)
async def test_v15_callers_may_select_members(tmp_path: Path, version: str) -> None:
    """``_select`` is among the inputs of the definition and never goes upstream; rules see everything."""
    promised = {"get_person": {"outputSchema": {"type": "object"}}}
    async with presented(tmp_path, {"get_person": saying(PERSON)}, promised, version) as (up, _, speaker):
        definition = (await speaker.tools())["get_person"]
        assert "outputSchema" not in definition
        assert definition["inputSchema"]["properties"]["_select"]["items"]["enum"] == [
            "id",
            "name",
            "ssn",
            "cards",
        ]
        answer = await speaker.call("get_person", {"q": 1, "_select": ["name"]})
        assert json.loads(answer.texts[0]) == answer.result["structuredContent"] == {"name": "ann"}
        assert "billing.pay" in answer.texts[2]
        (sent,) = up.calls("tools/call")
        assert sent.message["params"]["arguments"] == {"q": 1}  # type: ignore[index]  # it is a call


@pytest.mark.parametrize("version", ERAS)
async def test_w14_data_of_another_shape_does_not_leave(tmp_path: Path, version: str) -> None:
    """A presenter that cannot read a result fails the call, and says so without the data."""
    wrong = {
        "content": [{"type": "text", "text": "ann has 078-05-1120"}, {"type": "image", "data": "NDExMQ=="}]
    }
    async with presented(tmp_path, {"get_a": wrong, "get_b": saying([1])}) as (_, front, _):
        for tool in ("get_a", "get_b"):
            answer = await front.call(tool, {}, version=version)
            assert answer.failure["stage"] == "presenter" and "[person Presenter]" in answer.text
            assert b"078-05" not in answer.body and b"NDEx" not in answer.body


@pytest.mark.parametrize("version", ERAS)
async def test_v19_v20_state_sync_is_told_in_lists_and_by_changes(tmp_path: Path, version: str) -> None:
    """A read tool's description says what may be kept; a change says first what went stale, a failure nothing."""
    works = {"get_x": saying(PERSON), "set_x": saying("set"), "set_y": {**saying("no"), "isError": True}}
    definitions = {"get_x": {"description": "Reads."}}
    async with presented(tmp_path, works, definitions, version=version) as (_, _, speaker):
        for _ in range(2):
            tools = await speaker.tools()
            assert tools["get_x"]["description"] == "Reads. [Cache-Control: no-store]"
            assert "description" not in tools["set_x"]
        answer = await speaker.call("set_x", {})
        assert answer.texts == ['<cache_invalidation cause="set_x" domains="get_*, up.list_*" />', '"set"']
        assert (await speaker.call("set_y", {})).texts == ['"no"']


# --- stages of an upstream's tools beside what else is done with calls: mirrors, batches, code mode


MODERN = ERAS[1]

SETTINGS = """
presenters:
  shown: {schema: {n: "any?", path: "string?", hidden: "any?"}, redact: {paths: [hidden]}}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}", bridge: never}
    adapters:
      - {type: upload_consumer, tools: [read], file_path_argument: path}
      - {type: artifact_producer, tools: [draw], output_path_argument: filename}
    stages:
      "work*": {mappers: {input: "code.py#input"}}
      shown: {presenter: shown}
      read: {middleware: ["code.py#seen"], presenter: shown}
      draw: {auth: {plugin: api_key, policy: {value: k3y}}, middleware: ["code.py#seen"], presenter: shown}
      locked: {auth: {plugin: api_key, policy: {value: k3y}}}
"""

CODE = """
def input(payload):
    inputs = payload["inputs"]
    return {**{name: value for name, value in inputs.items() if name != "gone"}, **inputs.get("set", {})}


async def seen(ctx, args, next):
    note(args.get("path", "").partition("://")[0] or "none")
    return await next()
"""


staged = partial(spoken, SETTINGS, code=CODE)

MIRRORED: dict[str, Any] = {
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "size": {"type": "integer", "x-mcp-header": "Size"},
            "deep": {"type": "boolean", "x-mcp-header": "Deep"},
            "gone": {"type": "string", "x-mcp-header": "Gone"},
            "at": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
        },
    }
}


def mirrors_of(exchange: Exchange) -> dict[str, str]:
    fields = [(name, value) for name, value in exchange.head.fields if name.startswith("mcp-param-")]
    assert len(dict(fields)) == len(fields)
    return dict(fields)


async def test_mirrors_say_what_the_stages_made_of_the_arguments(tmp_path: Path) -> None:
    """Of texts, numbers and truths, also those within objects; one that is gone takes its header with it."""
    async with staged(tmp_path, {"work": echo}, {"work": MIRRORED}, version=MODERN) as (up, _, speaker):
        await speaker.tools()
        said = {"region": "eu", "size": 1, "deep": False, "gone": "x", "at": {"zone": "a"}}
        headers = {
            "Mcp-Param-Region": "eu",
            "Mcp-Param-Size": "1",
            "Mcp-Param-Deep": "false",
            "Mcp-Param-Gone": "x",
            "Mcp-Param-Zone": "a",
        }
        await speaker.call(
            "work", {k: v for k, v in said.items() if k != "gone"}, headers | {"Mcp-Param-Gone": ""}
        )
        assert mirrors_of(up.calls("tools/call")[0])["mcp-param-size"] == "1"
        made = {"region": "é", "size": 2, "deep": True, "at": {"zone": "b"}}
        await speaker.call("work", {**said, "set": made}, headers)
        sent = up.calls("tools/call")[1]
        assert {**made, "set": made} == arguments_of(sent)
        assert mirrors_of(sent) == {
            "mcp-param-region": "=?base64?w6k=?=",
            "mcp-param-size": "2",
            "mcp-param-deep": "true",
            "mcp-param-zone": "b",
        }


async def test_planned_calls_in_a_batch_are_refused_one_by_one(tmp_path: Path) -> None:
    """Of a batch of 2025-03-26 the other members go on; a planned tool is to be called by itself."""
    async with staged(tmp_path, {"locked": echo, "free": echo}, version="2025-03-26") as (up, _, speaker):
        alone = [
            {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "locked", "arguments": {}}}
            for n in (1, 2)
        ]
        _, body = await speaker.raw.request("POST", orjson.dumps(alone))
        answers = {answer["id"]: answer for answer in orjson.loads(body)}
        assert set(answers) == {1, 2} and all("error" in answer for answer in answers.values())
        assert up.calls("tools/call") == [] and all("locked" not in str(each.body) for each in up.seen)


@pytest.mark.parametrize("version", ERAS)
async def test_code_mode_walks_the_stages_of_the_tool_it_calls(tmp_path: Path, version: str) -> None:
    """A planned tool is called through the one tool for that as it is by its own name."""
    works: dict[str, Any] = {"shown": saying({"n": 1, "secret": "s3cret"}), "locked": echo}
    said = {"core.code_mode_enabled": "true"}
    async with staged(tmp_path, works, version=version, said=said) as (_, _, speaker):
        answer = await speaker.call("up_call_tool", {"name": "shown", "arguments": {}})
        assert json.loads(answer.text) == {"n": 1} and b"s3cret" not in answer.body
        refused = await speaker.call("up_call_tool", {"name": "locked", "arguments": {}})
        assert refused.failure["stage"] == "auth"
        told = await speaker.call(
            "up_call_tool", {"name": "locked", "arguments": {"a": 1}}, {"X-API-Key": "k3y"}
        )
        assert told.data == {"a": 1}
        described = await speaker.call("up_get_tool_schema", {"name": "shown"})
        assert "outputSchema" not in described.text


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_with_stages_takes_files(tmp_path: Path, version: str) -> None:
    """Its stages see the handle, the upstream the path; what is shown of the result is the presenter's."""
    read: list[str] = []

    async def reading(exchange: Exchange) -> None:
        read.append(Path(arguments_of(exchange)["path"]).read_text())
        told = saying({"n": len(read[-1]), "path": arguments_of(exchange)["path"], "secret": "s3cret"})
        await respond(exchange, orjson.dumps(complete(exchange, told)))

    async with (
        staged(tmp_path, {"read": reading}, version=version) as (_, front, speaker),
        httpx2.AsyncClient() as http,
    ):
        offer = await speaker.call("up_get_upload_url", {})
        url = offer.result["structuredContent"]["upload_url"]
        (uploaded,) = (await http.post(url, files={"file": ("a.txt", b"hello")})).json()["uploads"]
        answer = await speaker.call("read", {"path": uploaded["upload_handle"]})
        shown = json.loads(answer.texts[0])
        assert read == ["hello"] and shown["n"] == 5 and str(tmp_path) not in str(shown)
        assert b"s3cret" not in answer.body and front.ran() == ["upload"]


@pytest.mark.parametrize("version", ERAS)
async def test_a_tool_with_stages_produces_files(tmp_path: Path, version: str) -> None:
    """Who may not call it makes no file; beside what the presenter shows stands the link to the file."""

    async def drawing(exchange: Exchange) -> None:
        Path(arguments_of(exchange)["filename"]).write_text("a picture")
        told = saying({"n": 1, "secret": "s3cret"})
        await respond(exchange, orjson.dumps(complete(exchange, told)))

    async with staged(tmp_path, {"draw": drawing}, version=version) as (up, _, speaker):
        refused = await speaker.call("draw", {"filename": "a.txt"})
        assert refused.failure["stage"] == "auth" and up.calls("tools/call") == []
        answer = await speaker.call("draw", {"filename": "a.txt"}, {"X-API-Key": "k3y"})
        assert json.loads(answer.texts[0]) == {"n": 1} and b"s3cret" not in answer.body
        (link,) = [block for block in answer.result["content"] if block["type"] == "resource_link"]
        got = await speaker.ask("resources/read", {"uri": link["uri"]}, {"mcp-name": link["uri"]})
        assert got.result["contents"][0]["text"] == "a picture"


async def test_a_task_of_a_tool_whose_result_is_shaped_is_refused(tmp_path: Path) -> None:
    """Its result would come by another request, past the presenter; one whose stages only let it in may be a task."""
    task = {"task": {"taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": 1}}
    works: dict[str, dict[str, Any] | bytes | Work] = {"shown": task, "locked": task}
    async with staged(tmp_path, works) as (up, front, _):
        refused = await front.call("shown", {}, task={"ttl": 1})
        assert refused.result["isError"] and "cannot run as a task" in refused.text
        assert up.calls("tools/call") == []
        begun = await front.call("locked", {}, {"X-API-Key": "k3y"}, task={"ttl": 1})
        assert begun.result == task
