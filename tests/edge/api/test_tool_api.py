"""The tool API of the adapter's servers over real sockets: lists, calls, validation, and who may what."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from typing import Any

import orjson
import pytest

from adapter.errors import CatalogueDrifted
from adapter.hosted.server import HostedServer, HostedTool
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.relay.http_api.sessions import KNOWN_FOR
from adapter.rules.calls.tool_api import WARNING
from adapter.upstream.local.replies import JSON
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest, WholeReply, unreachable
from tests.edge.tool_serving import PATH, Served, serving
from tests.hosted.serving import Waiting, count, echo, fail, hosted, refuse, text, tool
from tests.scripted import Expect, ScriptedUpstream

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
ANN = "t" * 20


async def who(call: PlannedCall) -> Outcome:
    """Says who calls, by which entrance, and in which session."""
    return text(
        f"{call.client.caller.principal.partition(':')[0]} {call.client.caller.entrance} {call.client.session}"
    )


def tools(*more: HostedTool) -> LocalUpstream[HostedServer]:
    """A server of some tools, and more."""
    annotations = {"readOnlyHint": True}
    common = (
        tool("echo", echo, inputSchema=SCHEMA, annotations=annotations),
        tool("count", count),
        tool("fail", fail),
        tool("refuse", refuse),
        tool("who", who),
        tool("files/read all", echo),
        tool("erase", echo, annotations={"destructiveHint": True}),
    )
    return hosted((*common, *more))


@pytest.fixture
async def api() -> AsyncIterator[Served]:
    """The API of those tools, for everybody."""
    async with serving(tools()) as api:
        yield api


def said(body: Any) -> str:
    """The one text of a result."""
    (block,) = body["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    return text


# --- discovery ------------------------------------------------------------------------------------------------


async def test_e9_tools_are_listed_and_shown(api: Served) -> None:
    """A bare array without schemas; one by itself has its schema, also where its name has a slash."""
    head, listed = await api.get("/one/tools")
    assert head.status == 200 and head["content-type"] == "application/json"
    assert listed[0] == {"name": "echo", "description": "echo", "annotations": {"readOnlyHint": True}}
    assert listed[1] == {"name": "count", "description": "count"}
    _, shown = await api.get("/one/tools/echo")
    assert shown == {**listed[0], "inputSchema": SCHEMA}
    for spelled in ("files%2Fread%20all", "files/read%20all"):
        _, shown = await api.get(f"/one/tools/{spelled}")
        assert shown["name"] == "files/read all"


async def test_e9_what_is_not_there_is_404(api: Served) -> None:
    """An unknown tool, and an unknown server."""
    head, body = await api.get("/one/tools/zz%2Fcall")
    assert (head.status, body) == (404, {"error": "Tool not found: zz/call"})
    head, body = await api.get("/two/tools")
    assert (head.status, body) == (404, {"error": "Server not found: two"})


async def test_e11_meta_says_the_title_and_whether_tools_run() -> None:
    """For pages of an older kind."""
    async with serving(tools(), title="Ours", allow_execute=False) as api:
        assert (await api.get("/one/meta"))[1] == {"title": "Ours", "allow_execute": False}


async def test_methods_that_are_not_served_are_405(api: Served) -> None:
    """With those that are."""
    async with api.client() as client:
        for path, allowed in (("/tools", "GET, HEAD, OPTIONS"), ("/tools/echo/call", "GET, HEAD, OPTIONS")):
            head, _ = await client.request("DELETE", path=f"{PATH}/one{path}")
            assert (head.status, head["allow"]) == (405, allowed)
        await client.send("HEAD", path=f"{PATH}/one/tools")
        assert (await client.head()).status == 200


# --- calls ----------------------------------------------------------------------------------------------------


async def test_e1_the_body_is_the_arguments(api: Served) -> None:
    """No envelope; the result is MCP's, with its structured content."""
    head, body = await api.post("/tools/echo/call", b'{"text":"hi"}')
    assert (head.status, head["content-type"]) == (200, "application/json")
    expected = {"content": [{"type": "text", "text": "you said hi"}], "structuredContent": {"said": "hi"}}
    assert body == {**expected, "isError": False}


async def test_e4_failures_are_500_with_a_result(api: Served) -> None:
    """A tool that fails, a JSON-RPC error, a defect: never a page of a framework, never a secret."""
    head, body = await api.post("/tools/refuse/call")
    assert (head.status, body["isError"], said(body)) == (500, True, "not today")
    head, body = await api.post("/tools/fail/call")
    assert (head.status, body["isError"]) == (500, True) and "hunter2" not in said(body)


async def test_a_server_that_is_away_is_said_to_be() -> None:
    """In the catalogue's sentence, with its status where nothing ran."""
    away = ScriptedUpstream([(Expect("POST"), unreachable("nobody listens"))] * 2)
    async with serving(away) as api:
        for head, body in (await api.get("/one/tools"), await api.post("/tools/echo/call")):
            assert head.status == 502 and "nobody listens" in body["error"]


class Drifting:
    """After its first list the adapter would keep every other one back."""

    def __init__(self) -> None:
        self._hosted = tools()
        self._listed = False

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        message = orjson.loads(request.body) if request.body else {}
        if message.get("method") != "tools/list" or not self._listed:
            self._listed = self._listed or message.get("method") == "tools/list"
            return await self._hosted.send(request, read_timeout)
        error = {"code": CatalogueDrifted.rpc, "message": "changed echo"}
        return WholeReply(200, JSON, orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))

    async def close(self) -> None:
        await self._hosted.close()


async def test_a_list_that_is_kept_back_is_409_and_a_call_of_it_500() -> None:
    """However long ago the list was: a call of a tool that is another by now is a failed result."""
    async with serving(Drifting()) as api:
        assert (await api.post("/tools/echo/call"))[0].status == 200
        api.relaying.clock.now += KNOWN_FOR
        head, body = await api.post("/tools/echo/call")
        assert (head.status, body["isError"], said(body)) == (500, True, "changed echo")
        for path in ("/one/tools", "/one/tools/echo"):
            head, body = await api.get(path)
            assert (head.status, body) == (409, {"error": "changed echo"})


# --- W10, W13 -------------------------------------------------------------------------------------------------


async def test_w10_invalid_json_is_no_arguments_with_a_warning(api: Served) -> None:
    """In a field of the answer; a destructive tool refuses it, and what is no object is refused by all."""
    head, body = await api.post("/tools/count/call", b"{oops")
    assert head.status == 200 and said(body) == "counted" and head["x-adapter-warning"] == WARNING
    head, _ = await api.post("/tools/count/call", b"")
    assert head.status == 200 and head.get("x-adapter-warning") is None
    head, _ = await api.post("/tools/erase/call", b"{oops")
    assert head.status == 400
    for raw in (b"[]", b"null", b"NaN", b'{"a":NaN}'):
        head, body = await api.post("/tools/count/call", raw)
        assert head.status == 400 and "error" in body


async def test_w13_pages_must_send_json(api: Served) -> None:
    """With an Origin the type has to be one that no form can send; without one curl's default does."""
    origin = {"origin": "http://127.0.0.1"}
    form = {"content_type": "application/x-www-form-urlencoded"}
    assert (await api.post("/tools/count/call", **form))[0].status == 200
    assert (await api.post("/tools/count/call", **form, **origin))[0].status == 415
    assert (await api.post("/tools/count/validate", **form, **origin))[0].status == 415
    assert (await api.post("/tools/count/call", **origin))[0].status == 200


async def test_w13_strangers_pages_and_hosts_are_refused(api: Served) -> None:
    """Another site's page, and a name that was made to point here, on every route."""
    for path in ("/one/tools", "/one/tools/echo", "/one/meta", "/openapi.json", "/one/resources?uri=a"):
        assert (await api.get(path, origin="https://evil.example"))[0].status == 403
        assert (await api.get(path, host="evil.example"))[0].status == 421
    assert (await api.post("/tools/echo/call", origin="https://evil.example"))[0].status == 403


async def test_w13_a_large_body_is_413() -> None:
    """Said in its length, or found out on the way; with the setting that sets it."""
    async with serving(tools(), max_body=100) as api, api.client() as client:
        head, body = await api.post("/tools/count/call", b"x" * 101)
        assert head.status == 413 and "console.max_body" in body["error"]
        path = f"{PATH}/one/tools/count/call"
        await client.send("POST", b"", path, transfer_encoding="chunked", content_length="")
        await client.send_more(b"80\r\n" + b"x" * 128 + b"\r\n0\r\n\r\n")
        assert (await client.head()).status == 413


async def test_w13_discovery_may_ask_for_the_token() -> None:
    """Then nothing is shown to strangers: no list, no tool, no validation, and no name by way of a call."""
    known = {"authorization": f"Bearer {ANN}"}
    async with serving(tools(), tokens={"ann": ANN}) as api:
        assert (await api.get("/one/tools"))[0].status == 200
    async with serving(tools(), tokens={"ann": ANN}, discovery_auth=True) as api:
        for path in ("/one/tools", "/one/tools/echo"):
            head, body = await api.get(path)
            assert (head.status, body) == (401, {"error": "Unauthorized"})
            assert (await api.get(path, **known))[0].status == 200
        for path in ("/tools/zz/call", "/tools/zz/validate"):
            assert (await api.post(path))[0].status == 401
            assert (await api.post(path, **known))[0].status == 404


# --- callers --------------------------------------------------------------------------------------------------


async def test_callers_have_sessions_of_their_own() -> None:
    """By principal and tab; tools see the principal and the entrance."""
    async with serving(tools(), tokens={"ann": ANN, "bob": "b" * 20}) as api:
        seen = []
        for token, tab in ((ANN, "1"), (ANN, "1"), (ANN, "2"), ("b" * 20, "1")):
            fields = {"authorization": f"Bearer {token}", "x_adapter_session": tab}
            seen.append(said((await api.post("/tools/who/call", **fields))[1]).split())
        assert [each[:2] for each in seen] == [["ann", "http"]] * 3 + [["bob", "http"]]
        sessions = [each[2] for each in seen]
        assert sessions[0] == sessions[1] and len(set(sessions)) == 3
        head, body = await api.post("/tools/who/call", x_adapter_session="no spaces")
        assert head.status == 400 and "X-Adapter-Session" in body["error"]


async def test_calls_leave_a_line_and_are_kept_for_people_to_see(api: Served) -> None:
    """As those over MCP do, with the entrance."""
    await api.post("/tools/count/call")
    await api.post("/tools/refuse/call")
    kept = [(each.tool, each.entrance, each.outcome, each.status) for each in api.recent.last()]
    assert kept == [("refuse", "http", "failed", 500), ("count", "http", "ok", 200)]
    assert [line["method"] for line in api.lines] == ["tools/call"] * 2


# --- streams and cancelling -----------------------------------------------------------------------------------


def events(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream, each with its data read."""
    found = []
    for block in body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return found


async def test_progress_comes_as_events_before_the_result(api: Served) -> None:
    """For who accepts a stream; the result carries the status that the answer would have had."""
    async with api.client() as client:
        head, body = await client.request(
            "POST", b"{}", f"{PATH}/one/tools/count/call", accept="text/event-stream"
        )
        assert head.status == 200 and head["content-type"] == "text/event-stream"
        *progress, (name, result) = events(body)
        assert [data["progress"] for event, data in progress if event == "progress"] == [0, 50, 100]
        assert progress[1][1] == {"progress": 50, "total": 100, "message": "50 of 100"}
        assert name == "result" and result["status"] == 200 and said(result["body"]) == "counted"
        head, body = await client.request(
            "POST", b"{}", f"{PATH}/one/tools/refuse/call", accept="text/event-stream"
        )
        ((name, result),) = events(body)
        assert result["status"] == 500 and result["body"]["isError"] is True


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/event-stream, application/json", "text/event-stream"),
        ("application/json, text/event-stream", "application/json"),
        ("text/html;q=1, Text/Event-Stream;q=0.9", "text/event-stream"),
        ("*/*", "application/json"),
    ],
)
async def test_the_first_of_both_forms_that_is_accepted_counts(api: Served, accept: str, kind: str) -> None:
    """The page says that it would take either; MCP's clients say so too, and expect JSON."""
    async with api.client() as client:
        head, _ = await client.request("POST", b"{}", f"{PATH}/one/tools/count/call", accept=accept)
        assert head["content-type"] == kind


async def test_a_refusal_is_no_stream() -> None:
    """What never ran is answered as ever."""
    async with serving(tools(), allow_execute=False) as api:
        head, _ = await api.post("/tools/count/call", accept="text/event-stream")
        assert (head.status, head["content-type"]) == (403, "application/json")


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_a_client_that_goes_cancels_its_call(accept: str) -> None:
    """The tool itself is told, whichever form the answer was to have."""
    waiting = Waiting()
    async with serving(tools(tool("wait", waiting))) as api:
        client = api.client()
        async with client:
            await client.send("POST", b"{}", f"{PATH}/one/tools/wait/call", accept=accept)
            await asyncio.wait_for(waiting.began.wait(), 20)
        await asyncio.wait_for(waiting.ended.wait(), 20)
        assert waiting.cancelled == 1
        assert [line["status"] for line in api.lines] == [499]


# --- validation -----------------------------------------------------------------------------------------------


async def test_validation_is_for_those_who_may_call() -> None:
    """A stranger is told so before anything is looked at: neither tool nor body."""
    async with serving(tools(), tokens={"ann": ANN}) as api:
        for path, body in (("echo", b"{}"), ("zz", b"{}"), ("echo", b"{"), ("echo", b"x" * 2_000_000)):
            head, said = await api.post(f"/tools/{path}/validate", body)
            assert (head.status, said) == (401, {"error": "Unauthorized"})
        wrong = {"authorization": "Bearer wrong"}
        assert (await api.post("/tools/echo/validate", **wrong))[0].status == 401
        known = {"authorization": f"Bearer {ANN}"}
        assert (await api.post("/tools/echo/validate", b'{"text":"x"}', **known))[1] == {"valid": True}


async def test_e15_validation_needs_no_leave() -> None:
    """Execution may be off: nothing runs."""
    async with serving(tools(), allow_execute=False) as api:
        head, body = await api.post("/tools/echo/validate", b'{"text":"x"}')
        assert (head.status, body) == (200, {"valid": True})
        head, body = await api.post("/tools/echo/validate", b"{}")
        (error,) = body["errors"]
        assert head.status == 200 and body["valid"] is False
        assert (error["path"], error["keyword"]) == ("/text", "required") and "text" in error["message"]
        head, body = await api.post("/tools/echo/validate", b"{")
        assert head.status == 400 and body["errors"][0]["keyword"] == "format"
        head, body = await api.post("/tools/zz/validate", b"{")
        assert (head.status, body) == (404, {"error": "Tool not found: zz"})


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "http://nowhere.example/x"}, "text"])
async def test_e15_a_schema_that_cannot_be_used_is_no_failure_of_ours(schema: object) -> None:
    """It is what is wrong with the arguments; and no schema at all allows everything."""
    broken, free = tool("broken", echo, inputSchema=schema), tool("free", echo, inputSchema={})
    async with serving(tools(broken, free)) as api:
        head, body = await api.post("/tools/broken/validate")
        assert head.status == 200 and body["errors"][0]["keyword"] == "schema"
        assert (await api.post("/tools/free/validate", b'{"x":1}'))[1] == {"valid": True}


# --- resources ------------------------------------------------------------------------------------------------


class WithResources:
    """Hosted tools have no resources, so these are answered in front of them."""

    def __init__(self, contents: Iterable[dict[str, Any]]) -> None:
        self._hosted = tools()
        self._contents = list(contents)

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        message = orjson.loads(request.body) if request.body else {}
        if message.get("method") != "resources/read":
            return await self._hosted.send(request, read_timeout)
        result = {"contents": self._contents}
        return WholeReply(200, JSON, orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    async def close(self) -> None:
        await self._hosted.close()


PNG = base64.b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize(
    ("content", "media_type", "body", "inline"),
    [
        ({"blob": PNG, "mimeType": "image/png"}, "image/png", b"\x89PNG", True),
        ({"blob": PNG, "mimeType": "text/html"}, "application/octet-stream", b"\x89PNG", False),
        ({"blob": PNG, "mimeType": 'image/png" onerror="x'}, "application/octet-stream", b"\x89PNG", False),
        ({"blob": PNG, "mimeType": "image/svg+xml"}, "image/svg+xml", b"\x89PNG", False),
        ({"blob": PNG}, "application/octet-stream", b"\x89PNG", False),
        ({"text": "<b>", "mimeType": "text/html"}, "text/plain; charset=utf-8", b"<b>", True),
        ({"text": "a,b", "mimeType": "text/csv"}, "text/csv; charset=utf-8", b"a,b", False),
    ],
)
async def test_resources_are_bytes_that_never_run(
    content: dict[str, Any], media_type: str, body: bytes, inline: bool
) -> None:
    """Types are from a list, and nothing is guessed; what may do harm is for saving."""
    async with (
        serving(WithResources([{"uri": "artifact://s/1/a%20b.png", **content}])) as api,
        api.client() as client,
    ):
        head, came = await client.request(
            "GET", path=f"{PATH}/one/resources?uri=artifact%3A%2F%2Fs%2F1%2Fa%2520b.png", accept="*/*"
        )
        assert (head.status, head["content-type"], came) == (200, media_type, body)
        assert head["x-content-type-options"] == "nosniff" and "sandbox" in head["content-security-policy"]
        assert (head.get("content-disposition") is None) is inline


async def test_resources_that_are_not_there(api: Served) -> None:
    """No URI is 400, a stranger 401; what the server does not know is 404, also where it knows no resources at all."""
    async with serving(WithResources([{"uri": "a"}]), tokens={"ann": ANN}) as some:
        known = {"authorization": f"Bearer {ANN}"}
        assert (await some.get("/one/resources"))[0].status == 400
        assert (await some.get("/one/resources?uri=a"))[0].status == 401
        assert (await some.get("/one/resources?uri=a", **known))[0].status == 404
        assert (await some.get("/two/resources?uri=a", **known))[0].status == 404
    head, body = await api.get("/one/resources?uri=a")
    assert head.status == 404 and "Method not found" in body["error"]
