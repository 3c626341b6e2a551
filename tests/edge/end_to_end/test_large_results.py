"""Large results as a configuration file sets them: over sockets, in both eras, of proxied and hosted tools, by HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from mcp.types import CallToolResult

from adapter.cli import run
from tests.hosted.serving import ERAS as SDK_ERAS
from tests.pipeline.end_to_end.living import ERAS, Speaker, furnished, living
from tests.pipeline.end_to_end.workshop import workshop

SETTINGS = """
core: {allow_artifacts_download: true, upstream_ping: {enabled: false}, tool_definition_pinning: {mode: block}}
storage: {root: "${ROOT}"}
console: {enabled: true, allow_execute: true}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "big*": {large_results: {above: 16Ki, preview: 1Ki}, limits: {egress: 20Ki}}
      up_read_artifact: {limits: {egress: 8Ki}}
      big_kept: {cache: {enabled: true, ttl: 60, vary: []}}
  - id: shop
    mount_path: /shop
    upstream: {transport: hosted}
    stages: {report: {large_results: {above: 16Ki}}}
    tools:
      define:
        - {name: report, handler: "code.py#report", limits: {egress: 20Ki}}
        - {name: short, handler: "code.py#report", limits: {egress: 20Ki}}
"""
CODE = "def report(payload):\n    return '\\n'.join(f'line {n}' for n in range(10000))\n"
REPORT = "\n".join(f"line {n}" for n in range(10000))
LOG = "".join(f"{n:06} \N{SLIGHTLY SMILING FACE} line\n" for n in range(5000))
ROWS = [{"id": n, "text": f"row {n}"} for n in range(2000)]
SCHEMA = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "minItems": 10,
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "text": {"type": "string", "minLength": 5}},
                "required": ["id", "text"],
            },
        }
    },
    "required": ["rows"],
}
BIG = {"content": [{"type": "text", "text": LOG}]}
TABLE = {
    "content": [{"type": "text", "text": orjson.dumps({"rows": ROWS}).decode()}],
    "structuredContent": {"rows": ROWS},
}
WORKS: Mapping[str, Any] = {"big": BIG, "big_table": TABLE, "big_kept": BIG, "other": BIG}
DEFINITIONS: Mapping[str, Any] = {
    "big_table": {"outputSchema": SCHEMA},
    "big_kept": {"annotations": {"readOnlyHint": True}},
}


def running(place: Path, url: str) -> Any:
    return living(place, SETTINGS, {"UPSTREAM": url, "ROOT": str(place / "files")}, scripts={"code": CODE})


async def all_of(speaker: Speaker, server: str, uri: str) -> str:
    """The whole text, read as each answer says; what may leave does not cut any."""
    found, more = "", {"offset": 0}
    while more is not None:
        answer = await speaker.call(f"{server}_read_artifact", {"uri": uri, **more})
        assert len(orjson.dumps(answer.result)) <= 16 << 10
        head, data = answer.texts
        found, more = found + data, json.loads(head)["next"]
    return found


@pytest.mark.parametrize("version", ERAS)
async def test_whole_result_is_there_by_link_tool_and_url(tmp_path: Path, version: str) -> None:
    """Whichever of the three the host has, and before the limit of what may leave cuts anything."""
    async with (
        workshop(WORKS, DEFINITIONS) as up,
        running(tmp_path, up.url) as front,
        front.speaker(version) as speaker,
    ):
        answer = await speaker.call("big")
        shown, note, link = answer.result["content"]
        assert LOG.startswith(shown["text"]) and "up_read_artifact" in note["text"]
        assert await all_of(speaker, "up", link["uri"]) == LOG
        read = await speaker.ask("resources/read", {"uri": link["uri"]}, {"mcp-name": link["uri"]})
        assert read.result["contents"][0]["text"] == LOG
        async with httpx2.AsyncClient() as http:
            got = await http.get(next(word for word in note["text"].split() if word.startswith("http")))
        assert got.text == LOG
        assert (answer.result.get("resultType") == "complete") == speaker.modern


@pytest.mark.parametrize("era", SDK_ERAS)
async def test_sdk_accepts_structured_content_by_the_schema_that_it_was_shown(
    tmp_path: Path, era: str
) -> None:
    """The client checks it; pins do not take the wider schema for a change of the tool."""
    async with (
        workshop(WORKS, DEFINITIONS) as up,
        running(tmp_path, up.url) as front,
        front.client(era) as client,
    ):
        for _ in range(2):
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool("big_table", {})
        assert isinstance(result, CallToolResult) and result.structured_content is not None
        rows = result.structured_content["rows"]
        assert rows == ROWS[: len(rows)] and 0 < len(rows) < len(ROWS)
        assert result.structured_content["artifacts"][0]["mimeType"] == "application/json"
        assert "minItems" not in json.dumps(listed["big_table"].output_schema)
        assert set(listed) == {*WORKS, "up_read_artifact"}
        uri = result.structured_content["artifacts"][0]["uri"]
        value = await client.call_tool("up_read_artifact", {"uri": uri, "json_pointer": "/rows/1999"})
        assert value.content[1].type == "text" and json.loads(value.content[1].text) == ROWS[1999]


@pytest.mark.parametrize("version", ERAS)
async def test_hosted_tools_keep_theirs_too(tmp_path: Path, version: str) -> None:
    """By the keys in the tool's own definition; without them the limit cuts as before."""
    async with (
        workshop(WORKS) as up,
        running(tmp_path, up.url) as front,
        front.speaker(version, "/shop") as speaker,
    ):
        shown, _, link = (await speaker.call("report")).result["content"]
        # What a script returns is JSON, and so is its beginning.
        assert REPORT.startswith(json.loads(shown["text"]).removesuffix("…"))
        assert json.loads(await all_of(speaker, "shop", link["uri"])) == REPORT
        assert "SYSTEM INTERVENTION" in (await speaker.call("short")).texts[-1]


async def test_reader_is_for_everybody_who_may_call_a_tool(tmp_path: Path) -> None:
    """Access rules name the tools of the server; without a way to the rest a result would be cut."""
    rules = '    access: [{tools: ["big"]}]\n    stages:'
    settings = SETTINGS.replace("    stages:", rules, 1)
    environ = {"ROOT": str(tmp_path / "files")}
    async with (
        workshop(WORKS) as up,
        living(tmp_path, settings, {**environ, "UPSTREAM": up.url}, scripts={"code": CODE}) as front,
        front.speaker() as speaker,
    ):
        assert set(await speaker.tools()) == {"big", "up_read_artifact"}
        uri = (await speaker.call("big")).result["content"][2]["uri"]
        assert await all_of(speaker, "up", uri) == LOG


async def test_plan_says_what_becomes_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the place where it happens: before the limit of what leaves."""
    config = furnished(tmp_path, SETTINGS, code=CODE)
    monkeypatch.setenv("UPSTREAM", "http://127.0.0.1:9/mcp")
    monkeypatch.setenv("ROOT", str(tmp_path / "files"))
    for server, tool in (("up", "big"), ("shop", "report")):
        assert run(["plan", server, tool, "--config", str(config)]) == 0
        *_, large, finish = capsys.readouterr().out.strip().splitlines()
        assert large.split(maxsplit=2)[1:] == [
            "large_results",
            "results above 16384 bytes, for some hosts less, become artifacts",
        ]
        assert finish.endswith("results up to 20480 bytes")


async def test_caller_by_http_gets_a_preview_too(tmp_path: Path) -> None:
    """The tool API walks the same road, and its caller reads the rest with the same tool."""
    async with workshop(WORKS) as up, running(tmp_path, up.url) as front, httpx2.AsyncClient() as http:
        base = f"http://127.0.0.1:{front.port}/explorer/up/tools"
        answer = await http.post(f"{base}/big/call", json={})
        assert (
            answer.status_code == 200 and "up_read_artifact" in answer.text and len(answer.content) < 16 << 10
        )
