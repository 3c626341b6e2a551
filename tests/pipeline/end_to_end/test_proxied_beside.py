"""Stages of an upstream's tools beside what else is done with calls: mirrors, batches, code mode, files, tasks."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.edge.raw import Exchange, RawUpstream
from tests.pipeline.end_to_end.living import ERAS, Living, living
from tests.pipeline.end_to_end.workshop import (
    Work,
    arguments_of,
    complete,
    echo,
    respond,
    saying,
    workshop,
)

MODERN = ERAS[1]

SETTINGS = """
presenters:
  shown: {schema: {n: "any?", path: "string?", hidden: "any?"}, redact: {paths: [hidden]}}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
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


def up_front(place: Path, up: RawUpstream, *, code_mode: bool = False) -> AbstractAsyncContextManager[Living]:
    said = {"core.code_mode_enabled": str(code_mode)}
    return living(place, SETTINGS, {"UPSTREAM": up.url}, scripts={"code": CODE}, said=said)


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
    async with (
        workshop({"work": echo}, {"work": MIRRORED}) as up,
        up_front(tmp_path, up) as front,
        front.speaker(MODERN) as speaker,
    ):
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
    async with (
        workshop({"locked": echo, "free": echo}, version="2025-03-26") as up,
        up_front(tmp_path, up) as front,
        front.speaker("2025-03-26") as speaker,
    ):
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
    async with (
        workshop({"shown": saying({"n": 1, "secret": "s3cret"}), "locked": echo}) as up,
        up_front(tmp_path, up, code_mode=True) as front,
        front.speaker(version) as speaker,
    ):
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
        workshop({"read": reading}) as up,
        up_front(tmp_path, up) as front,
        front.speaker(version) as speaker,
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

    async with (
        workshop({"draw": drawing}) as up,
        up_front(tmp_path, up) as front,
        front.speaker(version) as speaker,
    ):
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
    async with workshop(works) as up, up_front(tmp_path, up) as front:
        refused = await front.call("shown", {}, task={"ttl": 1})
        assert refused.result["isError"] and "cannot run as a task" in refused.text
        assert up.calls("tools/call") == []
        begun = await front.call("locked", {}, {"X-API-Key": "k3y"}, task={"ttl": 1})
        assert begun.result == task
