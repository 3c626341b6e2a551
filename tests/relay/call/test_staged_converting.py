"""Calls of tools that take a file and produce one: both stages walk, the answer in reverse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.upstream.port import UpstreamRequest
from tests.relay.tooling import (
    READ,
    Tools,
    arguments_of,
    artifact_of,
    error_of,
    producing,
    result,
    said,
    saying,
    tools,
)
from tests.scripted import ScriptedAnswer


def converting(
    answer: Callable[[str, str], bytes] | None = None,
) -> Callable[[UpstreamRequest], ScriptedAnswer]:
    """Writes the file that it was given the other way round, and names both."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        given, told = arguments_of(request)["path"], arguments_of(request)["filename"]
        Path(told).write_bytes(Path(given).read_bytes()[::-1])
        return ScriptedAnswer(chunks=[(answer or (lambda a, b: said(f"from {a} to {b}")))(given, told)])

    return act


async def converted(one: Tools, **more: Any) -> tuple[str, dict[str, Any]]:
    """The handle that a call was given, and its response."""
    handle = await one.handle(b"hello")
    return handle, await one.call("convert", orjson.dumps({"path": handle, **more}).decode())


async def test_file_goes_in_and_another_comes_out(tmp_path: Path) -> None:
    """The result names the handle and the artifact where the tool named its paths."""
    async with tools(tmp_path, converting()) as one:
        handle, response = await converted(one, filename="turned.txt")
        artifact = artifact_of(response)
        (record,) = await one.artifacts()
        opened = await one.registry.read(record)
        assert (artifact["filename"], await opened.whole()) == ("turned.txt", b"olleh")
        opened.close()
        text = response["result"]["content"][0]["text"]
        assert text == f"from {handle} to {artifact['artifact_uri']}"
        assert str(tmp_path) not in orjson.dumps(response).decode()


async def test_bad_handle_makes_no_place(tmp_path: Path) -> None:
    """The tool is not called, and is told nothing."""
    async with tools(tmp_path, converting()) as one:
        response = await one.call("convert", '{"path":"/etc/passwd","filename":"a.txt"}')
        assert response["result"]["isError"] and one.upstream.requests == [] and one.on_disk() == []


async def test_input_that_a_result_names_is_not_its_output(tmp_path: Path) -> None:
    """A locator follows no path of an upload."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        return ScriptedAnswer(chunks=[said(f"took {arguments_of(request)['path']}")])

    async with tools(tmp_path, act, producing=producing("regex", argument=None)) as one:
        _, response = await converted(one)
        assert "could not be captured" in error_of(response) and await one.artifacts() == []


async def test_failed_call_shows_the_handle_too(tmp_path: Path) -> None:
    """In a result that is an error, and in an error response."""
    for members in ('"content":[{"type":"text","text":"no @"}],"isError":true', None):

        def act(request: UpstreamRequest, members: str | None = members) -> ScriptedAnswer:
            path = arguments_of(request)["path"]
            error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": f"no {path}"}}
            return ScriptedAnswer(
                chunks=[result(members.replace("@", path)) if members else orjson.dumps(error)]
            )

        async with tools(tmp_path, act) as one:
            handle, response = await converted(one)
            assert f"no {handle}" in orjson.dumps(response).decode()
            assert list(tmp_path.glob("artifacts/*/*")) == []


@pytest.mark.parametrize("delivery", ["base64", "url"])
async def test_what_shares_no_disk_may_answer_with_its_file(tmp_path: Path, delivery: Any) -> None:
    """A file goes in inline or by link, and comes out within the result."""
    block = '{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}'
    async with tools(
        tmp_path,
        lambda request: ScriptedAnswer(chunks=[result(f'"content":[{block}]')]),
        consuming=READ.model_copy(update={"delivery": delivery}),
        producing=producing("embedded", argument=None),
    ) as one:
        _, response = await converted(one)
        assert artifact_of(response)["filename"] == "write.png"


async def test_raw_output_is_what_the_tool_wrote(tmp_path: Path) -> None:
    """Its bytes stay as they are, also where they hold a path."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        Path(arguments_of(request)["filename"]).write_text(arguments_of(request)["path"])
        return saying("done")(request)

    async with tools(tmp_path, act, producing=producing(raw_limit=10 << 20)) as one:
        _, response = await converted(one)
        (given,) = (arguments_of(request)["path"] for request in one.upstream.requests)
        assert response["result"]["content"][-1]["resource"]["text"] == given
