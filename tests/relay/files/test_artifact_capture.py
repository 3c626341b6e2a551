"""What is captured of what tools produce, what never is, and what a result says of that."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import StorageFailed
from adapter.files.port import CaptureLimit
from adapter.rules.files.locators import Locator, Mode
from adapter.rules.files.quota import Limits, Policy
from adapter.upstream.port import UpstreamRequest, header
from tests.relay.tooling import (
    PNG,
    SSE,
    answering,
    arguments_of,
    artifact_of,
    error_of,
    producing,
    result,
    said,
    saying,
    told,
    tools,
    writing,
)
from tests.scripted import ScriptedAnswer
from tests.waiting import until

POLICY: Policy = "lru_uploads_then_artifacts"

# --- the locator is the fallback ------------------------------------------------------------------------------


async def test_structured_path_is_captured(tmp_path: Path) -> None:
    """A tool that writes beside the place it was told, and says where."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        path = told(request).with_name("other.png")
        path.write_bytes(PNG)
        members = {"content": [], "structuredContent": {"out": {"files": [{"path": str(path)}]}}}
        return ScriptedAnswer(chunks=[result(json.dumps(members)[1:-1])])

    async with tools(tmp_path, act, producing=producing("structured", "out.files[].path")) as one:
        came = await one.call("write", "{}")
        artifact = artifact_of(came)
        assert artifact["filename"] == "other.png" and artifact["size_bytes"] == len(PNG)
        held = came["result"]["structuredContent"]["out"]["files"][0]["path"]
        assert held == artifact["artifact_uri"]
        assert not told(one.upstream.requests[0]).parent.exists()


@pytest.mark.parametrize("regexes", [(), (r"Wrote (\S+) for",)], ids=["built-in", "own"])
async def test_path_in_a_text_is_captured(tmp_path: Path, regexes: tuple[str, ...]) -> None:
    """From a root that operators allow; what lies outside the store keeps its path in the text."""
    out = tmp_path / "out"
    out.mkdir()

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        (out / "shot.png").write_bytes(PNG)
        return ScriptedAnswer(chunks=[said(f"Wrote {out}/shot.png for you")])

    rule = producing("regex", None, regexes, argument=None)
    async with tools(tmp_path / "store", act, producing=rule, allowed_roots=[out]) as one:
        came = await one.call("write", "{}")
        assert artifact_of(came)["filename"] == "shot.png"
        assert came["result"]["content"][0]["text"] == f"Wrote {out}/shot.png for you"
        assert arguments_of(one.upstream.requests[0]) == {}


async def test_every_named_file_is_captured(tmp_path: Path) -> None:
    """With `every`, each accepted path of one result is kept in its order; a result that names none is no failure."""
    out = tmp_path / "out"
    out.mkdir()

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if "quiet" in arguments_of(request):
            return ScriptedAnswer(chunks=[said("nothing written")])
        (out / "page.yml").write_bytes(b"- heading")
        (out / "report.csv").write_bytes(b"a,b")
        return ScriptedAnswer(chunks=[said(f"Wrote {out}/page.yml and {out}/gone.csv and {out}/report.csv")])

    locator = Locator("regex", every=True)
    rule = replace(producing(argument=None), locator=locator)
    async with tools(tmp_path / "store", act, producing=rule, allowed_roots=[out]) as one:
        came = (await one.call("write", "{}"))["result"]
        assert [told["filename"] for told in came["_meta"]["artifacts"]] == ["page.yml", "report.csv"]
        silent = (await one.call("write", '{"quiet":true}'))["result"]
        assert "_meta" not in silent
    async with tools(
        tmp_path / "other", act, producing=replace(rule, required=True), allowed_roots=[out]
    ) as one:
        assert (await one.call("write", '{"quiet":true}'))["result"]["isError"]


IMAGE = f'{{"type":"image","mimeType":"image/png","data":"{base64.b64encode(PNG).decode()}"}}'
TEXT = '{"type":"resource","resource":{"uri":"file:///x/notes.md","mimeType":"text/markdown","text":"# Hi"}}'


async def test_files_in_the_result_are_captured(tmp_path: Path) -> None:
    """Several give several: the first is ``artifact``, all are ``artifacts``; the blocks themselves stay."""
    members = f'"content":[{IMAGE},{{"type":"text","text":"and"}},{TEXT}]'
    rule = producing("embedded", argument=None)
    async with tools(tmp_path, answering(members), producing=rule) as one:
        came = (await one.call("write", "{}"))["result"]
        first, second = came["_meta"]["artifacts"]
        assert came["_meta"]["artifact"] == first and first["filename"] == "write.png"
        assert (second["filename"], second["mime_type"], second["size_bytes"]) == (
            "notes.md",
            "text/markdown",
            4,
        )
        assert came["content"][:3] == orjson.loads(result(members))["result"]["content"]
        assert [block["uri"] for block in came["content"][3:]] == [
            first["artifact_uri"],
            second["artifact_uri"],
        ]


@pytest.mark.parametrize("modern", [False, True])
async def test_linked_resource_is_read_from_the_upstream(tmp_path: Path, modern: bool) -> None:
    """In the client's own upstream session, with an id that the client has not used; in either era."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if b"resources/read" not in request.body:
            link = '{"type":"resource_link","uri":"file:///out/plan.txt","name":"plan"}'
            return ScriptedAnswer(chunks=[result(f'"content":[{link}]')])
        asked = orjson.loads(request.body)
        contents = [{"uri": "file:///out/plan.txt", "text": "the plan"}]
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"contents": contents}}
        return ScriptedAnswer(headers=SSE, chunks=[b"data: " + orjson.dumps(answer) + b"\n\n"])

    params: dict[str, Any] = {"name": "write", "arguments": {}}
    if modern:
        params["_meta"] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": 5}
    rule = producing("resource", argument=None)
    async with tools(tmp_path, act, producing=rule) as one:
        artifact = artifact_of(await one.request("tools/call", params, modern=modern))
        assert (artifact["filename"], artifact["size_bytes"]) == ("plan.txt", 8)
        asked = one.upstream.requests[1]
        body = orjson.loads(asked.body)
        assert body["id"] != 1 and body["params"]["uri"] == "file:///out/plan.txt"
        if modern:
            version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
            assert body["params"]["_meta"] == version
            assert header(asked.headers, "mcp-name") == "file:///out/plan.txt"
            assert header(asked.headers, "mcp-method") == "resources/read"
        else:
            assert "_meta" not in body["params"] and header(asked.headers, "mcp-session-id") == "up-1"


@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(500),
        ScriptedAnswer(chunks=[b"nonsense"]),
        ScriptedAnswer(chunks=[b'{"jsonrpc":"2.0","id":null,"error":{"code":-32002,"message":"no"}}']),
    ],
)
async def test_linked_resource_that_cannot_be_read_is_no_failure_of_the_call(
    tmp_path: Path, answer: ScriptedAnswer
) -> None:
    """Whatever the upstream says to it, also where its URI is none."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if b"resources/read" in request.body:
            return answer
        return ScriptedAnswer(
            chunks=[result('"content":[{"type":"resource_link","uri":"x:\\ud800","name":"x"}]')]
        )

    async with tools(tmp_path, act, producing=producing("resource", argument=None)) as one:
        assert "could not be captured" in error_of(await one.call("write", "{}"))


# --- what is not captured -------------------------------------------------------------------------------------


async def test_file_from_before_the_call_is_not_captured(tmp_path: Path) -> None:
    """A result may name what an earlier call left; that is not this call's."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.png").write_bytes(PNG)
    rule = producing("regex", argument=None)
    act = saying(f"Wrote {out}/old.png")
    async with tools(tmp_path / "store", act, producing=rule, allowed_roots=[out]) as one:
        one.clock.now += 60
        assert "could not be captured" in error_of(await one.call("write", "{}"))


# --- caps and quotas ------------------------------------------------------------------------------------------


async def test_artifact_that_never_fits_evicts_nothing(tmp_path: Path) -> None:
    """The limit is named; what the scope holds stays, and the tool's file goes."""
    limits = Limits(100, None, None, POLICY)
    async with tools(tmp_path, writing(b"x" * 101), limits=limits) as one:
        await one.uploaded(b"y" * 90)
        assert "sessions.max_total_session_size" in error_of(await one.call("write", "{}"))
        assert one.registry.used(one.scope.id) == 90 and list(tmp_path.glob("artifacts/*/*")) == []


LIMIT = CaptureLimit(100, "artifacts.max_file_bytes")


async def test_file_in_a_result_has_the_limit_too(tmp_path: Path) -> None:
    """One that came inside the message."""
    rule = producing("embedded", argument=None, limit=LIMIT)
    async with tools(tmp_path, answering(f'"content":[{IMAGE}]'), producing=rule) as one:
        assert "artifacts.max_file_bytes" in error_of(await one.call("write", "{}"))
        assert one.on_disk() == []


def sparse(request: UpstreamRequest) -> ScriptedAnswer:
    """Writes a file that takes a minute to read, and no room."""
    told(request).touch()
    os.truncate(told(request), 64 << 30)
    return ScriptedAnswer(chunks=[said("done")])


async def test_capturing_takes_no_longer_than_the_call_may(tmp_path: Path) -> None:
    """The setting is named, the call's result kept, the file gone."""
    limit = CaptureLimit(1 << 40, "artifacts.max_file_bytes", patience=0.2)
    async with tools(tmp_path, sparse, producing=producing(limit=limit)) as one, asyncio.timeout(20):
        sentence = error_of(await one.call("write", "{}"))
        assert "core.defaults.tool_call_timeout_seconds" in sentence
        assert one.on_disk() == []


async def test_capturing_ends_when_the_client_leaves(tmp_path: Path) -> None:
    """The exchange is over at once, and the tool's file gone."""
    async with tools(tmp_path, sparse) as one, asyncio.timeout(20):
        call = asyncio.ensure_future(one.call("write", "{}"))
        await until(lambda: list(tmp_path.glob("artifacts/*/*/*")))
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled() and one.on_disk() == []


async def test_number_of_artifacts_is_capped(tmp_path: Path) -> None:
    """The one too many is not captured and evicts nothing."""
    async with tools(tmp_path, writing(b"x"), limits=Limits(None, None, 1, POLICY)) as one:
        first = artifact_of(await one.call("write", "{}"))
        assert "artifacts.max_per_session" in error_of(await one.call("write", "{}"))
        assert [record.id for record in await one.artifacts()] == [first["artifact_id"]]


@pytest.mark.parametrize("required", [False, True])
async def test_some_of_several_files_fit(tmp_path: Path, required: bool) -> None:
    """What fits is kept and told of, and that there was more; where all are required, none is kept."""
    act = answering(f'"content":[{TEXT},{IMAGE}]')
    rule = producing("embedded", argument=None, required=required)
    async with tools(tmp_path, act, producing=rule, limits=Limits(100, None, None, POLICY)) as one:
        came = (await one.call("write", "{}"))["result"]
        assert "not all of its files" in came["_meta"]["artifact_error"]
        if required:
            assert came["isError"] is True and "artifact" not in came["_meta"] and await one.artifacts() == []
        else:
            assert came["_meta"]["artifact"]["filename"] == "notes.md" and "isError" not in came


async def test_files_of_one_result_do_not_evict_each_other(tmp_path: Path) -> None:
    """A result tells of nothing that is gone before it is read."""
    act = answering(f'"content":[{IMAGE},{IMAGE}]')
    limits = Limits(len(PNG) + 10, None, None, POLICY)
    async with tools(tmp_path, act, producing=producing("embedded", argument=None), limits=limits) as one:
        came = (await one.call("write", "{}"))["result"]
        assert [record.id for record in await one.artifacts()] == [came["_meta"]["artifact"]["artifact_id"]]
        assert "not all of its files" in came["_meta"]["artifact_error"]


# --- failures of the adapter's own ----------------------------------------------------------------------------


async def test_failing_disk_does_not_lose_the_result(tmp_path: Path) -> None:
    """The tool ran; that its file cannot be taken in is told beside what it said."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        told(request).write_bytes(b"made")
        (tmp_path / "artifacts").rename(tmp_path / "elsewhere")
        (tmp_path / "artifacts").write_bytes(b"")
        return ScriptedAnswer(chunks=[said("did it")])

    async with tools(tmp_path, act) as one:
        came = await one.call("write", "{}")
        assert "could not be captured" in error_of(came)
        assert came["result"]["content"] == [{"type": "text", "text": "did it"}]


async def test_full_store_of_files_is_told_before_the_tool_runs(tmp_path: Path) -> None:
    """Where no place can be allocated nothing goes upstream: the request fails as a whole and can be sent again."""
    async with tools(tmp_path, saying("done")) as one:
        (tmp_path / "artifacts").rmdir()
        (tmp_path / "artifacts").write_bytes(b"")
        with pytest.raises(StorageFailed) as raised:
            await one.call("write", "{}")
        assert raised.value.legacy_http == 200 and one.upstream.requests == []
        (tmp_path / "artifacts").unlink()


# --- attacked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["regex", "structured"])
async def test_no_path_that_a_result_could_name_leads_to_a_secret(tmp_path: Path, mode: Mode) -> None:
    """Paths put together of everything that ever led anywhere; what is captured is never what they lead to."""
    chance = random.Random(5)
    store, out = tmp_path / "store", tmp_path / "out"
    claims: list[str] = []
    captured = 0

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        (out / "shot.png").write_bytes(b"made")
        structured = {"file": claims[-1]}
        block = {"type": "text", "text": f'I wrote "{claims[-1]}" and `{claims[-1]}`: {claims[-1]}'}
        return ScriptedAnswer(
            chunks=[result(json.dumps({"content": [block], "structuredContent": structured})[1:-1])]
        )

    out.mkdir()
    rule = producing(mode, "file", argument=None, raw_limit=10 << 20)
    async with tools(store, act, producing=rule, allowed_roots=[out]) as one:
        stranger = (await one.scope_of_session(await one.relaying.open())).id
        mine = one.scope.id
        await one.uploaded(b"secret upload", "secret")
        for place in (store / "artifacts" / stranger / "1", store / "state", tmp_path / "output"):
            place.mkdir(parents=True)
            (place / "secret").write_bytes(b"secret of others")
        (store / "artifacts" / mine).mkdir()
        for place in (store / "artifacts" / mine / "link", out / "link"):
            place.symlink_to(tmp_path)
        (out / "secret").symlink_to(store / "state" / "secret")
        os.link(store / "state" / "secret", store / "artifacts" / mine / "secret")
        parts = [
            "..",
            ".",
            "",
            "secret",
            "link",
            "state",
            "uploads",
            "artifacts",
            "out",
            "output",
            "store",
            "1",
        ]
        parts += [mine, stranger, "shot.png", "%2e%2e", "..%2f..", "\\", "a\x00b", "~", "é"]
        parts += [str(path.relative_to(store)) for path in store.glob("uploads/*/*/secret")]
        roots = [
            str(store),
            str(out),
            str(tmp_path),
            "",
            f"file://{out}",
            f"file://localhost{store}",
            "FILE://",
        ]
        for _ in range(300):
            claims.append("/".join([chance.choice(roots), *chance.choices(parts, k=chance.randint(0, 5))]))
            if chance.random() < 0.1:
                claims.append(f"{out}/shot.png")
            came = await one.call("write", "{}")
            assert "secret of" not in str(came) and "secret upload" not in str(came), claims[-1]
            assert str(store) not in str(came), claims[-1]
            for record in await one.artifacts():
                captured += 1
                assert record.content.size == len(b"made"), claims[-1]
                await one.registry.drop(record)
    assert captured > 10
