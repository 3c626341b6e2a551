"""The tool API inside a host's own aiohttp application: the specification's criteria, and how hosts bring tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from mcp.types import ImageContent, TextContent, Tool

from adapter.api import build_ui_routes, create_app, create_mount
from tests.edge.hosts import Host, hosting

WEATHER = {
    "name": "weather",
    "description": "Get the weather",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS: list[Any] = [WEATHER, {"name": "files/read", "description": "Read"}]

Returned = tuple[list[Any], bool, str | None]


def says(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def answer(name: str, arguments: dict[str, Any]) -> Returned:
    """A handler that says what it was called with."""
    return says(f"{name} {arguments}"), False, "abc-123"


def always(*returned: Any) -> Callable[..., Any]:
    """A handler that returns this, whatever it was called with."""

    async def handler(name: str, arguments: dict[str, Any]) -> Any:
        return returned

    return handler


def raising(message: str) -> Callable[..., Any]:
    """A handler that fails."""

    async def handler(name: str, arguments: dict[str, Any]) -> Returned:
        raise RuntimeError(message)

    return handler


@contextlib.asynccontextmanager
async def embedded(handler: Callable[..., Any] = answer, **options: Any) -> AsyncIterator[Host]:
    """An application of these tools, with execution on unless the options say otherwise."""
    more: dict[str, Any] = {"tools": TOOLS, "allow_execute": True} | options
    async with hosting(create_app(handle_call=handler, **more)) as host:
        yield host


# --- the specification's test criteria ------------------------------------------------------------------------


ROME = says("weather {'city': 'Rome'}")
TRACED = {"_meta": {"_trace_id": "abc-123"}}
CLOSED = "the weather station is closed"
CRITERIA: dict[str, tuple[Callable[..., Any], str, bytes, int, dict[str, Any]]] = {
    "a successful call": (
        *(answer, "weather", b'{"city":"Rome"}', 200),
        {"content": ROME, "isError": False, **TRACED},
    ),
    "a logical error": (
        *(always(says("no such city"), True, "abc-123"), "weather", b"{}", 500),
        {"content": says("no such city"), "isError": True, **TRACED},
    ),
    "an unknown tool": (answer, "nope", b"{}", 404, {"error": "Tool not found: nope"}),
    "an invalid body is taken for {}": (
        *(answer, "weather", b"{this is not json", 200),
        {"content": says("weather {}"), "isError": False, **TRACED},
    ),
    "an exception": (
        *(raising(CLOSED), "weather", b"{}", 500),
        {"content": says(CLOSED), "isError": True},
    ),
    "no trace": (
        *(always(says("x"), False, None), "weather", b"{}", 200),
        {"content": says("x"), "isError": False},
    ),
    "an empty trace": (
        *(always(says("x"), False, ""), "weather", b"{}", 200),
        {"content": says("x"), "isError": False},
    ),
}
"""The handler, the tool and the body of a call, and the status and the body of its answer."""


@pytest.mark.parametrize("criterion", CRITERIA)
async def test_e8_what_a_call_is_answered(criterion: str) -> None:
    """Content and ``_meta`` with the trace where there is one; a failure is 500 with its result."""
    handler, tool, sent, status, expected = CRITERIA[criterion]
    async with embedded(handler) as host:
        response, body = await host.call(tool, sent)
    assert response.status == status and response.content_type == "application/json"
    assert body == expected


async def test_e8_4_execution_is_disabled() -> None:
    """403, which is also what happens when nobody says anything."""
    async with embedded(allow_execute=False) as host:
        response, body = await host.call("weather")
        assert (response.status, body) == (403, {"error": "Tool execution is disabled."})
        assert (await host.call("nope"))[0].status == 403
    async with hosting(create_app(tools=TOOLS, handle_call=answer)) as host:
        assert (await host.call("weather"))[0].status == 403


# --- what hosts bring -----------------------------------------------------------------------------------------


async def test_e3_a_handler_of_three_parameters_gets_the_request() -> None:
    """The host's own, so that its header fields and whatever its middleware put there can be read."""

    async def handler(name: str, arguments: dict[str, Any], request: web.Request) -> Returned:
        return says(request.headers["X-Team"]), False, None

    class Bound:
        async def handler(self, name: str, arguments: dict[str, Any], request: web.Request) -> Returned:
            return says(type(request).__name__), False, None

    async def any_number(*arguments: Any) -> Returned:
        return says(str(len(arguments))), False, None

    for taken, said in ((handler, "red"), (Bound().handler, "Request"), (any_number, "3")):
        async with embedded(taken) as host:
            _, body = await host.call("weather", **{"X-Team": "red"})
            assert body["content"] == says(said)


async def test_e4_what_a_handler_must_not_return_is_a_failure() -> None:
    """A defect of the host is a failed result, and its secrets stay there."""
    leaking = raising("db password=hunter2\nsecond line")
    async with embedded(always("text")) as host:
        response, body = await host.call("weather")
        assert response.status == 500 and body["isError"] is True
    async with embedded(leaking) as host:
        _, body = await host.call("weather")
        assert "hunter2" not in str(body) and "second" not in str(body)
    async with embedded(leaking, expose="safe") as host:
        assert (await host.call("weather"))[1]["content"] == says("The call failed.")


async def test_e6_content_passes_through() -> None:
    """Mappings, the SDK's models and types nobody knows."""
    mixed = [
        TextContent(type="text", text="t"),
        ImageContent(type="image", data="aGk=", mime_type="image/png"),
        {"type": "hologram", "depth": 3},
    ]
    async with embedded(always(mixed, False, None)) as host:
        _, body = await host.call("weather")
    assert body["content"] == [
        {"type": "text", "text": "t"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "hologram", "depth": 3},
    ]


async def test_e10_tools_may_be_a_list_or_a_function() -> None:
    """A function, sync or async, is asked for each request."""
    asked: list[str] = []

    def plainly() -> list[Any]:
        asked.append("sync")
        return [SimpleNamespace(name=f"tool-{len(asked)}", description="D", inputSchema={})]

    async def later() -> list[Any]:
        asked.append("async")
        return [Tool(name=f"tool-{len(asked)}", input_schema={"type": "object"})]

    for tools in (plainly, later):
        asked.clear()
        async with embedded(tools=tools) as host:
            for number in (1, 2):
                _, listed = await host.get("/tools")
                assert [tool["name"] for tool in listed] == [f"tool-{number}"]


async def test_tools_that_cannot_be_listed_are_a_failure_in_json() -> None:
    """Never a page of the framework, and no secret of the host."""

    def broken() -> list[Any]:
        raise RuntimeError("token=hunter2")

    async with embedded(tools=broken) as host:
        for response, body in (await host.get("/tools"), await host.call("weather")):
            assert response.status == 500 and "hunter2" not in body["error"]


async def test_e9_names_with_slashes() -> None:
    """Encoded as clients do, and raw."""
    async with embedded() as host:
        for spelled in ("files%2Fread", "files/read"):
            assert (await host.get(f"/tools/{spelled}"))[1]["name"] == "files/read"
            assert (await host.call(spelled))[1]["content"] == says("files/read {}")
        assert (await host.get("/tools/weather"))[1] == WEATHER


async def test_e15_arguments_are_validated() -> None:
    """Without running anything."""
    async with embedded(allow_execute=False) as host:
        assert (await host.post("/tools/weather/validate", b'{"city":"Rome"}'))[1] == {"valid": True}
        _, body = await host.post("/tools/weather/validate")
        assert [error["path"] for error in body["errors"]] == ["/city"]
        assert (await host.post("/tools/files%2Fread/validate"))[1] == {"valid": True}


USER: ContextVar[str] = ContextVar("user", default="nobody")


async def test_e12_the_hook_gets_the_hosts_request() -> None:
    """And the handler sees what the hook sets."""

    @contextlib.contextmanager
    def hook(request: web.Request) -> Any:
        if request.headers.get("Authorization") != "Bearer good":
            raise PermissionError("bad token")
        token = USER.set("ann")
        yield
        USER.reset(token)

    async def whoami(name: str, arguments: dict[str, Any]) -> Returned:
        return says(USER.get()), False, None

    async with embedded(whoami, auth_hook=hook) as host:
        response, body = await host.call("weather")
        assert (response.status, body) == (401, {"error": "Unauthorized"})
        _, body = await host.call("weather", Authorization="Bearer good")
        assert body["content"] == says("ann")
        assert (await host.get("/tools"))[0].status == 200


async def test_w13_other_sites_pages_are_refused() -> None:
    """By their Origin, unless the host lists it; by the Host where the host says which there are."""
    async with embedded() as host:
        evil = {"Origin": "https://evil.example"}
        assert (await host.call("weather", **evil))[0].status == 403
        # The plot frame has no origin, and what it loads is everybody's.
        script = f"{host.url}/assets/now/js/frame.js"
        async with host.session.get(script, headers={"Origin": "null"}) as response:
            assert response.status == 200
        own = {"Origin": host.url}
        assert (await host.call("weather", **own))[0].status == 200
        assert (await host.call("weather", **own, **{"Content-Type": "text/plain"}))[0].status == 415
    async with embedded(allowed_origins=["https://evil.example"], allowed_hosts=["ours.example"]) as host:
        assert (await host.call("weather", **evil, Host="ours.example"))[0].status == 200
        assert (await host.call("weather", **evil))[0].status == 421


async def test_w13_a_large_body_is_refused() -> None:
    """Also one that does not say how large it is, or is so only when decompressed."""
    async with embedded(max_body=100) as host:
        assert (await host.call("weather", b" " * 101))[0].status == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b" " * 10

        async with host.session.post(f"{host.url}/tools/weather/call", data=chunks()) as response:
            assert response.status == 413
        async with host.session.post(
            f"{host.url}/tools/weather/call", data=b" " * 5000, compress="deflate"
        ) as response:
            assert response.status == 413


async def test_a_client_that_goes_cancels_the_handler() -> None:
    """Although aiohttp lets handlers run on by default."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def waits(name: str, arguments: dict[str, Any]) -> Returned:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return [], False, None

    async with embedded(waits) as host:
        calling = asyncio.create_task(host.call("weather"))
        await asyncio.wait_for(began.wait(), 20)
        calling.cancel()
        await asyncio.wait_for(ended.wait(), 20)


# --- mounting -------------------------------------------------------------------------------------------------


async def test_e16_routes_join_an_application_of_the_hosts() -> None:
    """At its root, beside routes of its own; or below a prefix as an application of their own."""

    async def own(request: web.Request) -> web.Response:
        return web.json_response({"own": True})

    app = web.Application()
    app.router.add_get("/health", own)
    app.add_routes(build_ui_routes(tools=TOOLS, handle_call=answer, title="Ours"))
    app.add_subapp(*create_mount(tools=TOOLS[:1], handle_call=answer, allow_execute=True))
    async with hosting(app) as host:
        assert (await host.get("/health"))[1] == {"own": True}
        assert len((await host.get("/tools"))[1]) == 2
        assert (await host.get("/meta"))[1] == {"title": "Ours", "allow_execute": False}
        assert len((await host.get("/explorer/tools"))[1]) == 1
        response, _ = await host.post("/explorer/tools/weather/call")
        assert response.status == 200
        assert (await host.call("weather"))[0].status == 403


async def test_e13_the_page_is_served_below_any_mount() -> None:
    """With its policy; its path without a slash leads to the one with it, and its files are there."""
    app = web.Application()
    app.add_subapp(*create_mount("/tools-page", tools=TOOLS, handle_call=answer))
    async with hosting(app, "/tools-page") as host:
        async with host.session.get(host.url, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (308, "tools-page/")
        async with host.session.get(f"{host.url}/") as response:
            page = await response.text()
            assert "<html" in page
            assert (
                response.status == 200 and "default-src 'none'" in response.headers["Content-Security-Policy"]
            )
        asset = page.partition('href="assets/')[2].partition('"')[0]
        async with host.session.get(f"{host.url}/assets/{asset}") as response:
            assert response.status == 200 and response.headers["ETag"]
        async with host.session.get(f"{host.url}/assets/none/none.js") as response:
            assert response.status == 404


def test_what_cannot_be_an_application() -> None:
    """Settings and tools at once, or neither."""
    wrongs: list[dict[str, Any]] = [
        {},
        {"settings": {}, "tools": TOOLS, "handle_call": answer},
        {"tools": TOOLS},
    ]
    for wrong in wrongs:
        with pytest.raises(TypeError):
            create_app(**wrong)
