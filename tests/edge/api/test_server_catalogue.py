"""Prompts, resources, answers and news of a server over real sockets: who may ask for them, and for what."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from adapter.edge.api.server_catalogue import MOST_OF_ONE
from tests.edge.api.test_tool_api import ANN, tools
from tests.edge.raw import read_body
from tests.edge.tool_serving import PATH, Served, serving
from tests.relay.http_api.test_sessions import answer, asks, opening
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

TYPE = {"content-type": "application/json"}
READS = ("/one/prompts", "/one/resources/list", "/one/resources/templates")
POSTS: dict[str, Any] = {
    "/prompts/get": {"name": "greet"},
    "/complete": {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "whom", "value": ""}},
    "/tools/echo/answer": {"reply_to": "", "result": {"action": "cancel"}},
    "/resources/read": {"uri": "a://b"},
}


async def post(api: Served, path: str, body: object, **fields: str) -> tuple[int, Any]:
    """The status, and what was answered."""
    head, said = await api.post(path, orjson.dumps(body), **TYPE, **fields)
    return head.status, said


async def test_lists_are_shown_as_lists_of_tools_are() -> None:
    """To everybody, or with ``discovery_auth`` to who has a token; a server without any has empty ones."""
    async with serving(tools()) as api:
        assert [(head.status, said) for head, said in [await api.get(path) for path in READS]] == [
            (200, [])
        ] * 3
    async with serving(tools(), tokens={"ann": ANN}, discovery_auth=True) as api:
        for path in READS:
            assert (await api.get(path))[0].status == 401
            assert (await api.get(path, **{"x-adapter-token": ANN}))[1] == []


async def test_requests_need_what_calls_need() -> None:
    """A credential, and where something runs ``allow_execute``."""
    async with serving(tools(), tokens={"ann": ANN}) as api:
        for path, body in POSTS.items():
            assert (await post(api, path, body))[0] == 401
        for path in ("/one/files", "/one/events"):
            assert (await api.get(path))[0].status == 401
    async with serving(tools(), allow_execute=False) as api:
        statuses = [(await post(api, path, body))[0] for path, body in POSTS.items()]
        assert statuses == [403, 403, 403, 404]
        assert (await post(api, "/tools/echo/continue", {"arguments": {}, "inputResponses": {}}))[0] == 403


async def test_other_pages_send_no_such_requests() -> None:
    """What a form of another page could send is refused unread."""
    async with serving(tools()) as api:
        fields = {"origin": "http://127.0.0.1", "content-type": "text/plain"}
        head, _ = await api.post("/resources/read", b'{"uri":"a://b"}', **fields)
        assert head.status in (403, 415)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/prompts/get", {}),
        ("/prompts/get", []),
        ("/prompts/get", {"name": "x", "arguments": {"a": 1}}),
        ("/prompts/get", {"name": "x", "inputResponses": []}),
        ("/resources/read", {"uri": ""}),
        ("/complete", {"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "a", "value": ""}}),
        ("/complete", {"ref": {"type": [], "name": "x"}, "argument": {"name": "a", "value": ""}}),
        ("/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a"}}),
        ("/complete", {"ref": {"type": "ref/prompt"}, "argument": {"name": "a", "value": ""}}),
        ("/complete", {"ref": 1, "argument": 1}),
        ("/tools/echo/answer", {"reply_to": "x", "result": {"action": "cancel"}}),
        ("/tools/echo/answer", {"reply_to": "WyJhIiwiYiIsMV0=", "result": {"action": "steal"}}),
        (
            "/tools/echo/answer",
            {"reply_to": "WyJhIiwiYiIsMV0=", "result": {"action": "accept", "content": {"a": {}}}},
        ),
        (
            "/tools/echo/answer",
            {"reply_to": "WyJhIiwiYiIsMV0=", "result": {"action": "accept", "content": {"a": [1]}}},
        ),
        ("/tools/echo/answer", {"reply_to": "WyJhIiwiYiIsMV0=", "result": {"action": "accept", "more": 1}}),
        ("/tools/echo/continue", {"arguments": {}}),
    ],
)
async def test_what_is_no_request_is_refused(path: str, body: object) -> None:
    """With 400 and a reason, before a server hears of it."""
    async with serving(tools()) as api:
        status, said = await post(api, path, body)
        assert status == 400 and said["error" if "error" in said else "detail"]


async def test_a_prompt_a_resource_and_a_completion_are_read() -> None:
    """As the server answers; its refusals are told with what it says."""
    messages = [{"role": "user", "content": {"type": "text", "text": "Hi"}}]
    refusal = orjson.dumps({"jsonrpc": "2.0", "id": 5, "error": {"code": -32002, "message": "gone"}})
    upstream = ScriptedUpstream(
        [
            *opening(),
            (Expect("POST", asks("prompts/get")), answer(2, {"messages": messages})),
            (
                Expect("POST", asks("resources/read")),
                answer(3, {"contents": [{"uri": "a://b", "text": "x"}]}),
            ),
            (Expect("POST", asks("completion/complete")), answer(4, {"completion": {"values": ["Ann"]}})),
            (Expect("POST", asks("resources/read")), ScriptedAnswer(chunks=[refusal])),
        ]
    )
    async with serving(upstream) as api:
        upstream.then(Expect("DELETE"), ScriptedAnswer(200))
        assert await post(api, "/prompts/get", {"name": "greet", "arguments": {}}) == (
            200,
            {"messages": messages},
        )
        assert (await post(api, "/resources/read", {"uri": "a://b"}))[1]["contents"][0]["text"] == "x"
        completion = {**POSTS["/complete"], "arguments": {"tone": "low"}}
        assert (await post(api, "/complete", completion))[1] == {"completion": {"values": ["Ann"]}}
        sent = orjson.loads(upstream.requests[-1].body)["params"]
        assert sent["context"] == {"arguments": {"tone": "low"}}
        status, said = await post(api, "/resources/read", {"uri": "a://c"})
        assert status == 404 and "gone" in said["error"]


async def test_prompts_and_resources_are_exchanges_without_their_names() -> None:
    """Those that were answered and one that was refused; what the page reads by itself is none."""
    gone = orjson.dumps({"jsonrpc": "2.0", "id": 4, "error": {"code": -32002, "message": "gone"}})
    contents = {"contents": [{"uri": "a://b", "text": "x"}]}
    upstream = ScriptedUpstream(
        [
            *opening(),
            (Expect("POST", asks("prompts/get")), answer(2, {"messages": []})),
            (Expect("POST", asks("resources/read")), answer(3, contents)),
            (Expect("POST", asks("resources/read")), ScriptedAnswer(chunks=[gone])),
            (Expect("POST", asks("resources/read")), answer(5, contents)),
            (Expect("POST", asks("prompts/list")), answer(6, {"prompts": []})),
            (Expect("POST", asks("completion/complete")), answer(7, {"completion": {"values": []}})),
        ]
    )
    async with serving(upstream) as api:
        upstream.then(Expect("DELETE"), ScriptedAnswer(200))
        await post(api, "/prompts/get", {"name": "secret", "arguments": {"to": "Ann"}})
        await post(api, "/resources/read", {"uri": "a://b"})
        await post(api, "/resources/read", {"uri": "a://secret"})
        async with api.client() as client:
            head, body = await client.request("GET", b"", f"{PATH}/one/resources?uri=a://b")
            assert (head.status, body) == (200, b"x")
        assert (await api.get("/one/prompts"))[1] == []
        assert (await post(api, "/complete", POSTS["/complete"]))[0] == 200
        assert [(each.method, each.tool, each.outcome, each.status) for each in api.recent.last()] == [
            ("resources/read", None, "refused", 404),
            ("resources/read", None, "ok", 200),
            ("prompts/get", None, "ok", 200),
        ]
        assert {each.entrance for each in api.recent.last()} == {"http"}
        assert "secret" not in str(api.lines) and "Ann" not in str(api.lines)


async def test_files_are_none_where_no_tool_takes_any() -> None:
    """And there is no limit to tell."""
    async with serving(tools()) as api:
        assert (await api.get("/one/files"))[1] == {"limit": None, "files": []}
        for path in ("/two/prompts", "/two/files", "/two/events"):
            assert (await api.get(path))[0].status == 404


async def test_a_principal_has_some_streams_of_news() -> None:
    """One more is refused, until another ends."""
    async with serving(tools()) as api:
        clients = [api.client() for _ in range(MOST_OF_ONE)]
        for client in clients:
            await client.__aenter__()
            await client.send("GET", b"", f"{PATH}/one/events")
            assert (await client.head()).status == 200
        assert (await api.get("/one/events"))[0].status == 429
        for client in clients:
            await client.__aexit__(None, None, None)


async def test_a_stop_ends_streams_of_news() -> None:
    """At once, and whole: nobody waits for them."""
    async with serving(tools()) as api, api.client() as client:
        await client.send("GET", b"", f"{PATH}/one/events")
        head = await client.head()
        api.recent.close()
        body = await read_body(client.reader, head)
        assert body.startswith(b": news")
