"""Large results: what is kept of them, what the client sees in its place, and that nothing is lost."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import UpstreamUnreachable
from adapter.relay.files.large_results import LargeResultRule
from adapter.relay.stages import Call
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
)
from adapter.rules.files.file_records import FileRecord
from adapter.rules.files.quota import Limits
from adapter.rules.files.structured_artifacts import shortenable
from adapter.rules.results.large_results import Terms
from adapter.rules.results.short_json import limited
from adapter.rules.schema.checker import compile_schema
from adapter.upstream.port import UpstreamRequest
from tests.relay.tooling import META, PNG, SSE, Act, Tools, answering, result, tools, uri_of
from tests.scripted import ScriptedAnswer
from tests.waiting import until

ABOVE = 16 << 10
RULE = LargeResultRule(Terms(ABOVE, 1024, "one_read_artifact"), hosts=False)
LOG = "".join(f'{n:06} éine Zeile 🙂 "quoted"\n' for n in range(2000))
ROWS = [{"id": n, "text": f"row {n} é"} for n in range(3000)]
ITEM = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id", "text"]}
SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": ITEM, "minItems": 100}, "total": {"type": "integer"}},
    "required": ["rows", "total"],
}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def act(*content: Mapping[str, Any], **members: Any) -> Act:
    return answering(json.dumps({"content": content, **members})[1:-1])


def offering(**tool: Any) -> Any:
    """The list of an upstream with one tool of this definition."""

    async def offers(call: Call) -> Offered:
        return Offered("", {"any": json.dumps({"name": "any", **tool}).encode()}, {"any"})

    return offers


async def called(one: Tools, **more: Any) -> dict[str, Any]:
    response = await one.call("any", "{}", **more)
    found: dict[str, Any] = response["result"]
    return found


async def data_of(one: Tools, record: FileRecord) -> bytes:
    file = await one.registry.read(record)
    try:
        return await file.whole()
    finally:
        file.close()


def size_of(response: Mapping[str, Any]) -> int:
    return len(json.dumps(response, ensure_ascii=False, separators=(",", ":")).encode())


# --- content --------------------------------------------------------------------------------------------------


async def test_long_text_is_kept_and_its_beginning_shown(tmp_path: Path) -> None:
    """The way to the rest is a link, a sentence and a URL; small blocks keep their bytes and places."""
    upstream = act(text("before"), text(LOG, annotations={"priority": 1}), text("behind"), x=1.0)
    async with tools(tmp_path, upstream, large=RULE) as one:
        found = await called(one)
        before, shown, note, link, behind = found["content"]
        (record,) = await one.artifacts()
        assert (await data_of(one, record)).decode() == LOG
        assert (before, behind, found["x"]) == (text("before"), text("behind"), 1.0)
        assert LOG.startswith(shown["text"]) and shown["text"].endswith("\n") and len(shown["text"]) > 400
        assert shown["annotations"] == {"priority": 1}
        assert link == {
            "type": "resource_link",
            "uri": uri_of(record),
            "name": "any.txt",
            "mimeType": "text/plain",
            "size": len(LOG.encode()),
        }
        for words in (
            uri_of(record),
            "one_read_artifact",
            f"{len(LOG.encode())} bytes",
            "http://adapter.test/artifacts/",
        ):
            assert words in note["text"]
        assert size_of(found) < ABOVE
        arguments = json.dumps({"uri": uri_of(record), "offset": len(LOG.encode()) - 11})
        rest = await one.call("one_read_artifact", arguments)
        assert rest["result"]["content"][1]["text"] == LOG[-11:]


async def test_text_of_json_stays_json(tmp_path: Path) -> None:
    """Its beginning has fewer items, and a pointer leads to the others."""
    async with tools(tmp_path, act(text(json.dumps({"rows": ROWS, "total": 3000}))), large=RULE) as one:
        shown, note, link = (await called(one))["content"]
        some = json.loads(shown["text"])["rows"]
        assert some == ROWS[: len(some)] and len(some) > 5 and len(json.dumps(shown["text"])) <= 1024
        assert link["mimeType"] == "application/json" and "json_pointer" in note["text"]
        arguments = json.dumps({"uri": link["uri"], "json_pointer": "/rows/2999/text"})
        value = await one.call("one_read_artifact", arguments)
        assert json.loads(value["result"]["content"][1]["text"]) == "row 2999 é"


async def test_pictures_sounds_and_files_are_kept_as_they_are(tmp_path: Path) -> None:
    """The bytes, not their base64."""
    data = PNG * 20_000  # of more than is decoded at once
    encoded = base64.b64encode(data).decode()
    blocks = (
        {"type": "image", "data": encoded, "mimeType": "image/png"},
        {"type": "audio", "data": encoded, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///x/bericht.bin", "blob": encoded}},
        {"type": "resource", "resource": {"uri": "file:///x/log.txt", "mimeType": "text/plain", "text": LOG}},
        {"type": "image", "data": "no base64 " * 5000, "mimeType": "image/png"},
        {"type": "image", "data": "QQ==" * 5000, "mimeType": "image/png"},
    )
    async with tools(tmp_path, act(*blocks), large=RULE) as one:
        found = await called(one)
        assert [block["type"] for block in found["content"]] == [
            *(["text", "resource_link"] * 3),
            *("text", *(["text", "resource_link"] * 3)),
        ]
        kept = [(record.filename, await data_of(one, record)) for record in await one.artifacts()]
        assert sorted(found for _, found in kept) == sorted(
            [data, data, data, LOG.encode(), b"no base64 " * 5000, b"QQ==" * 5000]
        )
        assert {"bericht.bin", "log.txt"} <= {name for name, _ in kept}


async def test_largest_go_first(tmp_path: Path) -> None:
    """As soon as the rest fits, it stays."""
    middle = text("m" * 9000)
    async with tools(tmp_path, act(text("s" * 2000), middle, text(LOG)), large=RULE) as one:
        found = await called(one)
        assert found["content"][:2] == [text("s" * 2000), middle] and len(await one.artifacts()) == 1


async def test_many_small_blocks_are_kept_together(tmp_path: Path) -> None:
    """As the list that they are; the first of them stay."""
    blocks = [text(f"block {n}") for n in range(2000)]
    async with tools(tmp_path, act(*blocks), large=RULE) as one:
        found = (await called(one))["content"]
        (record,) = await one.artifacts()
        assert json.loads(await data_of(one, record)) == blocks
        count = len(found) - 2
        assert (
            found[:count] == blocks[:count]
            and count > 10
            and f"{count} of its 2000 blocks" in found[-2]["text"]
        )


@pytest.mark.parametrize(
    "upstream",
    [
        act(text("x" * (ABOVE - 100))),
        answering('"resultType":"input_required","requestState":"' + "s" * 2 * ABOVE + '"'),
        answering('"content":"' + "x" * 2 * ABOVE + '"'),
        answering('"other":"' + "x" * 2 * ABOVE + '"'),
        lambda _: ScriptedAnswer(
            chunks=[b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"%b"}}' % (b"x" * 2 * ABOVE)]
        ),
    ],
)
async def test_what_is_no_large_result_keeps_its_bytes(tmp_path: Path, upstream: Act) -> None:
    """Nothing is kept of it either."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"any"}}'
    async with tools(tmp_path, upstream, large=RULE) as one, tools(tmp_path / "two", upstream) as other:
        assert await one.post(body) == await other.post(body) and await one.artifacts() == []


async def test_many_blocks_that_are_all_large_are_one_file(tmp_path: Path) -> None:
    """Their beginnings alone would be too large, and each file has its price."""
    blocks = [text(f"{n:05}" * 2000) for n in range(60)]
    async with tools(tmp_path, act(*blocks), large=RULE) as one:
        found = await called(one)
        (record,) = await one.artifacts()
        assert json.loads(await data_of(one, record)) == blocks and size_of(found) < ABOVE


async def test_text_of_json_with_half_a_character_is_kept(tmp_path: Path) -> None:
    """No beginning of it can be JSON in UTF-8, so it is shown as the text that it is."""
    value = json.dumps(["\ud800" + "x" * 50] * 2000, ensure_ascii=False)
    async with tools(tmp_path, act(text(value)), large=RULE) as one:
        shown, _, _ = (await called(one))["content"]
        assert shown["text"].startswith('["xxx') and len(await one.artifacts()) == 1


async def test_block_of_a_kind_that_is_new_is_kept_as_json(tmp_path: Path) -> None:
    """With the list that it stands in: nobody knows what of it could be shown."""
    block = {"type": "new kind", "value": "x" * 2 * ABOVE}
    async with tools(tmp_path, act(block), large=RULE) as one:
        assert "0 of its 1 blocks" in (await called(one))["content"][0]["text"]
        assert json.loads(await data_of(one, (await one.artifacts())[0])) == [block]


# --- structured content ---------------------------------------------------------------------------------------


async def test_structured_content_stays_valid(tmp_path: Path) -> None:
    """By the schema that the client sees, and with the way to the rest in it."""
    value = {"rows": ROWS, "total": 3000}
    upstream = act(text("3000 rows"), structuredContent=value)
    async with tools(
        tmp_path, upstream, large=RULE, offers=offering(outputSchema=shortenable(SCHEMA))
    ) as one:
        found = await called(one)
        short = found["structuredContent"]
        (record,) = await one.artifacts()
        assert json.loads(await data_of(one, record)) == value
        assert not compile_schema(shortenable(SCHEMA)).judged(short).faults
        assert short["total"] == 3000 and short["rows"] == ROWS[: len(short["rows"])] and short["rows"]
        (listed,) = short["artifacts"]
        assert (listed["uri"], listed["size"]) == (uri_of(record), record.content.size)
        assert [block["type"] for block in found["content"]] == ["text", "text", "resource_link"]
        assert size_of(found) < ABOVE


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"text": {"const": LOG}}, "required": ["text"]},
        {"properties": {"text": {"not": {"pattern": "…$"}}}, "required": ["text"]},
        {"properties": {"text": {"type": "string"}}, "required": ["text", "other"]},
        {
            "properties": {"text": {"type": "string"}},
            "$defs": {f"d{n}": {"type": "null"} for n in range(3000)},
        },
        {"type": "no type"},
    ],
)
async def test_structured_content_without_a_shorter_form_stays_whole(
    tmp_path: Path, schema: dict[str, Any]
) -> None:
    """The blocks beside it are kept as far as that helps."""
    upstream = act(text(LOG), structuredContent={"text": LOG})
    async with tools(tmp_path, upstream, large=RULE, offers=offering(outputSchema=schema)) as one:
        found = await called(one)
        assert found["structuredContent"] == {"text": LOG} and len(await one.artifacts()) == 1


@pytest.mark.parametrize(
    ("value", "member"),
    [
        ({"text": LOG}, "artifacts"),
        ({"text": LOG, "artifacts": "own"}, "adapter_artifacts"),
        ([LOG, LOG], None),
        ({f"key {n}": n for n in range(3000)}, "artifacts"),
        (LOG, None),
    ],
)
async def test_structured_content_without_a_schema_may_be_anything(
    tmp_path: Path, value: Any, member: str | None
) -> None:
    """What is no object has no room for a list of files; a member of the tool's own keeps its name."""
    async with tools(tmp_path, act(structuredContent=value), large=RULE) as one:
        found = await called(one)
        (record,) = await one.artifacts()
        assert json.loads(await data_of(one, record)) == value and size_of(found) < ABOVE
        short = found["structuredContent"]
        assert type(short) is type(value)
        if member is not None:
            assert short[member][0]["uri"] == uri_of(record)
            assert short.get("artifacts") == value.get("artifacts", short[member])


async def test_without_the_list_of_tools_structured_content_stays(tmp_path: Path) -> None:
    """Nobody knows which form the client expects."""

    async def offers(call: Call) -> Offered:
        raise UpstreamUnreachable()

    async with tools(tmp_path, act(structuredContent={"text": LOG}), large=RULE, offers=offers) as one:
        assert (await called(one))["structuredContent"] == {"text": LOG} and await one.artifacts() == []


# --- where nothing can be kept, and the limit behind ----------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [Limits(scope_bytes=1000), Limits(None, None, 0, "lru_uploads_then_artifacts")]
)
async def test_what_cannot_be_kept_leaves_whole(tmp_path: Path, limits: Limits) -> None:
    """A quota does not cost the caller a result, and nothing is left of what was begun."""
    async with tools(tmp_path, act(text("s"), text(LOG)), large=RULE, limits=limits) as one:
        assert (await called(one))["content"] == [text("s"), text(LOG)]
        assert await one.artifacts() == [] and not any("any" in path for path in one.on_disk())


async def test_one_part_that_cannot_be_kept_keeps_the_others_whole(tmp_path: Path) -> None:
    """Half of a result would be no way back."""
    limits = Limits(scope_bytes=len(LOG.encode()) * 3 // 2)
    blocks = [text(LOG + "1"), text(LOG + "2")]
    async with tools(tmp_path, act(*blocks), large=RULE, limits=limits) as one:
        assert (await called(one))["content"] == blocks and await one.artifacts() == []


async def test_nothing_is_kept_for_a_caller_who_left(tmp_path: Path) -> None:
    """Whenever that is: what was kept until then goes, since nobody will be told of it."""
    async with tools(tmp_path, act(text(LOG + "1"), text(LOG + "2")), large=RULE) as one:
        task = asyncio.create_task(called(one))
        await until(one.artifacts)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled() and await one.artifacts() == []


async def test_egress_comes_behind(tmp_path: Path) -> None:
    """It sees what is left, and still holds for what could not be kept."""
    rule = RULE._replace(egress=20_000)
    async with tools(tmp_path, act(text(LOG)), large=rule) as one:
        assert "SYSTEM INTERVENTION" not in str(await called(one))
    limits = Limits(scope_bytes=1000)
    async with tools(tmp_path / "full", act(text(LOG)), large=rule, limits=limits) as one:
        assert await called(one) == limited({"content": [text(LOG)]}, 20_000)


# --- hosts, eras, streams -------------------------------------------------------------------------------------


async def opened_by(one: Tools, client: Mapping[str, Any]) -> str:
    """A session whose client called itself so."""
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": client}}
    now = one.clock()
    return await one.relaying.sessions.create(
        SessionRecord(
            "one",
            "anonymous",
            Handshake(json.dumps(body).encode()),
            UpstreamSession("up-2", "2025-11-25"),
            SessionState.OPEN,
            SessionTimes(now, now),
        )
    )


@pytest.mark.parametrize(
    ("size", "declared", "is_whole"), [(45_000, None, True), (60_000, None, False), (60_000, 80_000, True)]
)
async def test_host_that_shows_less_gets_less(
    tmp_path: Path, size: int, declared: int | None, is_whole: bool
) -> None:
    """Known by its name, in either era; a tool may have declared that it is to be shown more."""
    rule = LargeResultRule(Terms(100_000, 1024, "one_read_artifact"))
    tool = {} if declared is None else {"_meta": {"anthropic/maxResultSizeChars": declared}}
    client = {"name": "claude-code", "version": "2.1.200"}
    async with tools(tmp_path, act(text("x" * size)), large=rule, offers=offering(**tool)) as one:
        assert len((await called(one))["content"]) == 1
        found = await called(one, session=await opened_by(one, client))
        meta = {**META, "io.modelcontextprotocol/clientInfo": client}
        modern = await one.request("tools/call", {"name": "any", "_meta": meta}, modern=True)
        for each in (found, modern["result"]):
            assert (len(each["content"]) == 1) == is_whole


async def test_host_that_shows_less_reads_less_at_a_time(tmp_path: Path) -> None:
    """Else it would cut the very answers that are to bring the rest."""
    rule = LargeResultRule(Terms(64 << 10, 1024, "one_read_artifact"))
    async with tools(tmp_path, act(text(LOG * 2)), large=rule) as one:
        session = await opened_by(one, {"name": "copilot-cli"})
        uri = (await called(one, session=session))["content"][2]["uri"]
        answer = await one.call("one_read_artifact", json.dumps({"uri": uri}), session=session)
        assert 20_000 < size_of(answer["result"]) <= 30_000


async def test_host_never_gets_more_than_is_set(tmp_path: Path) -> None:
    """Its limit only lowers the one of the settings."""
    rule = RULE._replace(hosts=True)
    async with tools(tmp_path, act(text("x" * 2 * ABOVE)), large=rule) as one:
        assert len((await called(one, session=await opened_by(one, {"name": "claude-ai"})))["content"]) == 3


async def test_result_on_a_stream_is_kept_too(tmp_path: Path) -> None:
    """What comes before it passes as it came."""
    progress = (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
    )
    last = result(json.dumps({"content": [text(LOG)]})[1:-1])
    chunks = [b"data: " + progress + b"\n\n", b"data: " + last + b"\n\n"]
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"any"}}'
    async with tools(tmp_path, lambda _: ScriptedAnswer(chunks=chunks, headers=SSE), large=RULE) as one:
        answer = await one.post(body)
        assert chunks[0] in answer and b"resource_link" in answer and len(answer) < ABOVE
        assert len(await one.artifacts()) == 1


@pytest.mark.parametrize("modern", [False, True])
async def test_result_of_a_task_is_kept_too(tmp_path: Path, modern: bool) -> None:
    """By the rule of the tool that began it; in one era it is a result of its own, in the other a part of the task."""
    task = {"taskId": "t1", "status": "working"}
    done = {"content": [text(LOG)], "structuredContent": {"text": LOG}}

    def upstream(request: UpstreamRequest) -> ScriptedAnswer:
        method = json.loads(request.body)["method"]
        if method == "tools/call":
            found: Any = {"resultType": "task", **task} if modern else {"task": task}
        elif method == "tasks/get":
            found = {"resultType": "complete", **task, "status": "completed", "result": done}
        else:
            found = done
        return ScriptedAnswer(chunks=[result(json.dumps(found)[1:-1])])

    offers = offering(outputSchema={"properties": {"text": {"type": "string"}}, "required": ["text"]})
    method = "tasks/get" if modern else "tasks/result"
    meta = {"_meta": META} if modern else {}
    async with tools(tmp_path, upstream, large=RULE, offers=offers) as one:
        for number in ("t2", "t1"):
            begun = await one.request("tools/call", {"name": "any", **meta}, modern=modern)
            assert "taskId" in str(begun) and "content" not in begun["result"]
            answer = (await one.request(method, {"taskId": number, **meta}, modern=modern))["result"]
            found = answer["result"] if modern else answer
            assert LOG.startswith(found["content"][0]["text"])
            # Of an unknown task nobody knows the schema.
            assert (found["structuredContent"] == {"text": LOG}) == (number == "t2")
            assert answer.get("status") == ("completed" if modern else None)
            # Who asks again is told of the same artifacts.
            kept = await one.artifacts()
            again = (await one.request(method, {"taskId": number, **meta}, modern=modern))["result"]
            links = [block["uri"] for block in found["content"] if "uri" in block]
            found = again["result"] if modern else again
            assert [block["uri"] for block in found["content"] if "uri" in block] == links != []
            assert len(await one.artifacts()) == len(kept)


async def test_callers_do_not_share_what_is_kept(tmp_path: Path) -> None:
    """Each gets its own artifact of the same result."""
    async with tools(tmp_path, act(text(LOG)), large=RULE) as one:
        await called(one)
        other = await one.relaying.open()
        found = await called(one, session=other)
        uri = found["content"][2]["uri"]
        assert (await one.call("one_read_artifact", json.dumps({"uri": uri})))["result"]["isError"]
        mine = await one.call("one_read_artifact", json.dumps({"uri": uri}), session=other)
        assert not mine["result"].get("isError")
