"""Calls of tools that produce files: where they are told to write, what is captured, and what their results tell."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from adapter.errors import AdapterError, SessionUnknown
from adapter.relay.stages import Call
from adapter.upstream.port import UpstreamRequest
from adapter.wire.signed_urls import parse_artifact
from tests.relay.filing import SteppedStore, Steps
from tests.relay.relaying import whole
from tests.relay.tooling import (
    PNG,
    SSE,
    Tools,
    artifact_of,
    parsed,
    producing,
    result,
    said,
    saying,
    told,
    tools,
    uri_of,
    writing,
)
from tests.scripted import ScriptedAnswer
from tests.waiting import until

# --- where the tool is told to write --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "content", "name"),
    [
        ("{}", PNG, "write.png"),
        ('{"filename":".."}', PNG, "write.png"),
        ('{"filename":"given.bin"}', PNG, "given.bin"),
    ],
)
async def test_default_is_named_after_what_was_found_in_the_file(
    tmp_path: Path, arguments: str, content: bytes, name: str
) -> None:
    """The name that is recorded has the extension of its type; one that the caller gave stays."""
    async with tools(tmp_path, writing(content)) as one:
        answer = await one.call("write", arguments)
        artifact = artifact_of(answer)
        assert artifact["filename"] == name and artifact["artifact_uri"].endswith(f"/{name}")
        assert str(told(one.upstream.requests[0])) not in orjson.dumps(answer).decode()


@pytest.mark.parametrize("arguments", ['{"filename":"a","filename":"/etc/x"}', '{"file_name":"/etc/x"}'])
async def test_caller_cannot_name_another_place_beside_it(tmp_path: Path, arguments: str) -> None:
    """An upstream that reads the other spelling would write where the caller likes."""
    async with tools(tmp_path, saying("done")) as one:
        response = await one.call("write", arguments)
        assert response["result"]["isError"] and "filename" in response["result"]["content"][0]["text"]
        assert one.upstream.requests == [] and one.on_disk() == []


# --- what the result tells ------------------------------------------------------------------------------------


async def test_name_is_one_that_can_be_said(tmp_path: Path) -> None:
    """One of megabytes is not repeated in every place that names the artifact."""
    async with tools(tmp_path, writing(b"made")) as one:
        artifact = artifact_of(await one.call("write", f'{{"filename":"{"n" * 5000}.txt"}}'))
        assert artifact["filename"].endswith("nn.txt") and len(artifact["filename"]) <= 255


OWN = b'{"name":"write","outputSchema":{"type":"object","properties":{"artifacts":{}}}}'


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("definition", "name"), [(b'{"name":"write"}', "artifacts"), (OWN, "adapter_artifacts")]
)
async def test_structured_content_lists_what_was_written(
    tmp_path: Path, definition: bytes, name: str, streamed: bool
) -> None:
    """Under a name that the tool's definition leaves free, in JSON and at the end of a stream."""
    answer = result('"structuredContent":{"n":1},"content":[]')

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        plain = writing(PNG, answer)(request)
        return ScriptedAnswer(headers=SSE, chunks=[b"data: %b\n\n" % answer]) if streamed else plain

    async with tools(tmp_path, act) as one:
        one.members.learn("write", definition)
        came = await one.call("write", "{}")
        told = artifact_of(came)
        (entry,) = came["result"]["structuredContent"].pop(name)
        assert came["result"]["structuredContent"] == {"n": 1}
        assert entry == {
            "uri": told["artifact_uri"],
            "name": told["filename"],
            "mimeType": "image/png",
            "size": len(PNG),
            "sha256": told["sha256"],
        }


@pytest.mark.parametrize("fails", [SessionUnknown("gone"), None])
async def test_structured_content_of_an_unknown_tool_stays(
    tmp_path: Path, fails: AdapterError | None
) -> None:
    """Its client may know a schema in which no name is free, and a list that cannot be had is no failed call."""
    async with tools(tmp_path, writing(PNG, result('"structuredContent":{"n":1},"content":[]'))) as one:

        async def read(call: Call, name: str) -> None:
            assert name == call.envelope.name == "write"
            if fails is not None:
                raise fails

        one.members.read = read
        came = await one.call("write", "{}")
        assert came["result"]["structuredContent"] == {"n": 1}
        assert artifact_of(came)["mime_type"] == "image/png"


async def test_result_tells_of_the_artifact(tmp_path: Path) -> None:
    """``_meta.artifact``, a link behind the upstream's blocks, and the artifact's URI where its path stood."""
    async with tools(tmp_path, writing(PNG)) as one:
        came = await one.call("write", '{"filename":"bild ü.png"}')
        (record,) = await one.artifacts()
        uri = uri_of(record)
        assert parse_artifact(uri, "artifact://") == (one.scope.id, record.id, "bild ü.png")
        assert artifact_of(came) == {
            "artifact_uri": uri,
            "artifact_id": record.id,
            "filename": "bild ü.png",
            "mime_type": "image/png",
            "size_bytes": len(PNG),
            "sha256": hashlib.sha256(PNG).hexdigest(),
            "expires_at": datetime.fromtimestamp(int(one.clock.now + 100), UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            "expose_as_resource": True,
        }
        text, link = came["result"]["content"]
        assert text == {"type": "text", "text": f"Saved {uri}."}
        assert link["type"] == "resource_link" and link["uri"] == uri and link["mimeType"] == "image/png"
        assert "artifacts" not in came["result"]["_meta"]


async def test_download_block_is_spelled_as_scripts_expect(tmp_path: Path) -> None:
    """Where downloads are on, a text block has the URL twice, and so has ``_meta``."""
    async with tools(tmp_path, writing(b"made"), producing=producing(downloads=True)) as one:
        came = await one.call("write", '{"filename":"a.txt"}')
        url = artifact_of(came)["download_url"]
        (record,) = await one.artifacts()
        assert url.startswith(f"http://adapter.test/artifacts/one/{record.scope}/{record.id}/a.txt?exp=")
        _, link, block = came["result"]["content"]
        assert link["type"] == "resource_link"
        assert block == {"type": "text", "text": f"Artifact download URL: {url}\n[Download artifact]({url})"}


@pytest.mark.parametrize(("data", "key"), [(b"made", "text"), (PNG, "blob"), (b"\xff\xfe\x00x", "blob")])
async def test_raw_output_embeds_the_bytes(tmp_path: Path, data: bytes, key: str) -> None:
    """Text where the file is text, base64 where it is none; a larger artifact is told of only."""
    name = {"text": "a.txt"}.get(key, "a.png")
    async with tools(tmp_path, writing(data), producing=producing(raw_limit=10 << 20)) as one:
        block = (await one.call("write", f'{{"filename":"{name}"}}'))["result"]["content"][-1]
        assert block["type"] == "resource"
        held = block["resource"]
        assert (held["text"].encode() if key == "text" else base64.b64decode(held["blob"])) == data
    rule = producing(raw_limit=len(data) - 1)
    async with tools(tmp_path, writing(data), producing=rule) as one:
        assert (await one.call("write", "{}"))["result"]["content"][-1]["type"] == "resource_link"


async def test_paths_of_the_store_are_withheld_everywhere(tmp_path: Path) -> None:
    """In text, structured content and annotations; what is the artifact's is its URI, everything else is gone."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        path = told(request)
        path.write_bytes(b"made")
        said = {
            "content": [
                {"type": "text", "text": f"a {path} b file://{path} c {tmp_path}/uploads/x/y/z.txt d"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            ],
            "structuredContent": {"deep": [{"path": str(path)}, str(tmp_path / "state" / "db")], "n": 1},
            "_meta": {"where": str(path)},
        }
        return ScriptedAnswer(chunks=[result(json.dumps(said)[1:-1])])

    async with tools(tmp_path, act) as one:
        came = await one.call("write", '{"filename":"a.txt"}')
        (record,) = await one.artifacts()
        uri = uri_of(record)
        held = came["result"]
        assert held["content"][0]["text"] == f"a {uri} b {uri} c [withheld path] d"
        assert held["structuredContent"] == {"deep": [{"path": uri}, "[withheld path]"], "n": 1}
        assert held["_meta"]["where"] == uri and str(tmp_path) not in json.dumps(came)


@pytest.mark.parametrize(
    ("members", "stays"),
    [
        ('"result":{"content":[{"type":"text","text":"no @"}],"isError":true}', False),
        ('"error":{"code":-32603,"message":"cannot write @","data":{"path":"@"}}', False),
        ('"result":{"task":{"taskId":"7","statusMessage":"to @"}}', True),
        ('"result":{"resultType":"input_required","inputRequests":{"a":"@"},"requestState":"@"}', True),
    ],
    ids=["failed", "error", "task", "question"],
)
async def test_what_brings_no_file_shows_no_path_either(tmp_path: Path, members: str, stays: bool) -> None:
    """The place of a call that is over is gone. What a task, or the next round, may go on to write stays until then, or
    until the sweep."""
    text = f'{{"jsonrpc":"2.0","id":1,{members}}}'

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        told(request).write_bytes(b"half")
        return ScriptedAnswer(chunks=[text.replace("@", str(told(request))).encode()])

    async with tools(tmp_path, act) as one:
        came, expected = await one.call("write", "{}"), orjson.loads(text.replace("@", "[withheld path]"))
        assert str(tmp_path) not in json.dumps(came)
        for each in (came, expected):
            each.get("result", {}).pop("requestState", None)  # another text stands for it
        assert came == expected and bool(one.on_disk()) is stays
        if stays:
            assert told(one.upstream.requests[0]).read_bytes() == b"half"
        if "task" in members:
            one.clock.now += 1000
            await one.registry.tidy()
            assert one.on_disk() == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_tells_no_path_either(tmp_path: Path, stream: bool) -> None:
    """Its result comes by another request, and what is said on the way of that too."""
    text = f"written to {tmp_path}/artifacts/x.png"

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        said = result(f'"content":[{{"type":"text","text":"{text}"}}],"isError":false')
        aside = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}})
        events = [b"data: " + data + b"\n\n" for data in (aside, said)]
        return ScriptedAnswer(headers=SSE, chunks=events) if stream else ScriptedAnswer(chunks=[said])

    async with tools(tmp_path, act) as one:
        answer = await one.post(b'{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"7"}}')
        assert b"written to [withheld path]" in answer and str(tmp_path).encode() not in answer


@pytest.mark.parametrize("body", [b"not JSON", b'{"jsonrpc":"2.0","id":99,"result":{}}', b"[]", b"null"])
async def test_what_is_no_response_leaves_as_it_came(tmp_path: Path, body: bytes) -> None:
    """It is the upstream's failure and not the client's."""
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[body])) as one:
        ask = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write"}}'
        assert await one.relaying.post(ask, one.session) == body


# --- how the answer comes -------------------------------------------------------------------------------------

PROGRESS = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{}}}'


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("name", ["a.txt", "\\ud800.txt"])
async def test_answer_on_a_later_stream_tells_of_the_artifact(
    tmp_path: Path, restarted: bool, name: str
) -> None:
    """The upstream lets the client come back, also to another process; whatever the file is called."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if request.method == "POST":
            told(request).write_bytes(b"made")
            return ScriptedAnswer(headers=SSE, chunks=[b"id: 7\nretry: 0\ndata:\n\n"])
        return ScriptedAnswer(headers=SSE, chunks=[b"data: " + said("late") + b"\n\n"])

    async with tools(tmp_path, act) as one:
        body = CALL.replace(b"{}", f'{{"filename":"{name}"}}'.encode())
        assert await one.relaying.post(body, one.session) == b"id: 7\nretry: 0\ndata:\n\n"
        if not restarted:
            await expect_late_artifact(one, name)
    if restarted:
        async with tools(tmp_path, act, store=one.store, session=one.session) as two:
            await expect_late_artifact(two, name)


async def expect_late_artifact(process: Tools, name: str) -> None:
    artifact = artifact_of(parsed(await process.relaying.get(process.session, "7")))
    assert artifact["size_bytes"] == 4 and artifact["filename"] == name.replace("\\ud800", "?")
    assert await process.store.count("parked") == 0


@pytest.mark.parametrize("when", ["before the head", "in the stream", "while it is captured"])
async def test_call_that_is_cut_off_leaves_no_place_for_ever(tmp_path: Path, when: str) -> None:
    """The tool may go on to write, so the place stays for a while; then the sweep takes all of it."""
    never = asyncio.Event()

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        told(request).write_bytes(b"made")
        match when:
            case "before the head":
                return ScriptedAnswer(after=never)
            case "in the stream":
                return ScriptedAnswer(headers=SSE, chunks=[PROGRESS, never])
        return ScriptedAnswer(chunks=[said("done")])

    steps = Steps()
    captured, go_on = steps.gate("rows")
    async with tools(tmp_path, act, store=SteppedStore(steps)) as one:
        call = asyncio.create_task(one.call("write", "{}"))
        await until(lambda: captured.is_set() if when == "while it is captured" else one.upstream.requests)
        call.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        one.clock.now += 1000
        await one.registry.tidy()
        assert one.on_disk() == [] and await one.artifacts() == []


async def test_whole_answer_of_a_stream_is_changed_too(tmp_path: Path) -> None:
    """An upstream that sends its one event with the head."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        told(request).write_bytes(b"made")
        return ScriptedAnswer(headers=SSE, chunks=[b"event: message\r\ndata: " + said("ok") + b"\r\n\r\n"])

    async with tools(tmp_path, act) as one:
        left = await whole(await one.relaying.relay.handle(one.ask(CALL, one.session)))
        assert left.startswith(b"event: message\r\ndata: ") and b'"artifact_uri"' in left


async def test_long_answer_is_looked_through_beside_the_loop(tmp_path: Path) -> None:
    """The loop's thread does nothing of the search for paths in megabytes of lines; what it finds is the same."""
    ran: set[str] = set()
    text = 'a line with "quotes" of artifacts\n' * 20_000
    async with tools(tmp_path, writing(b"made", said(text))) as one:
        sys.setprofile(lambda frame, *_: ran.add(frame.f_code.co_name))
        try:
            answer = await one.call("write", "{}")
        finally:
            sys.setprofile(None)
        assert answer["result"]["content"][0]["text"] == text and artifact_of(answer)
        assert "edited" in ran
        assert not ran & {"without_paths", "with_artifacts", "spares"}
