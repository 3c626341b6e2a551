"""Answers to pages at other origins, and requests that no page may make."""

from __future__ import annotations

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import INITIALIZE, call_body, error_of, result

PAGE = "https://app.example.com"
CORS = {"enabled": True, "allowed_origins": [PAGE]}


async def test_preflight_names_what_the_settings_allow(road: StartRoad) -> None:
    """The origin comes from ``core.cors``, and all methods of the protocol are allowed."""
    async with road(core={"cors": CORS}) as (_, _, client):
        head, _ = await client.request("OPTIONS", origin=PAGE, access_control_request_method="POST")
        assert head.status == 204
        assert head["access-control-allow-origin"] == PAGE
        assert head["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"


async def test_credentials_are_not_offered(road: StartRoad) -> None:
    """A page sends its token by itself, and another origin's page learns nothing at all."""
    async with road(core={"cors": CORS}) as (_, _, client):
        head = await client.initialize(origin=PAGE)
        assert head["access-control-allow-origin"] == PAGE
        assert head.get("access-control-allow-credentials") is None
        head, _ = await client.request("POST", origin="https://evil.example.com")
        assert head.status == 403 and head.get("access-control-allow-origin") is None


async def test_any_header_is_allowed_by_name(road: StartRoad) -> None:
    """By default a page may send what headers it likes; the answer names those it asked for."""
    async with road(core={"cors": CORS}) as (_, _, client):
        asked = "authorization, x-team"
        head, _ = await client.request(
            "OPTIONS", origin=PAGE, access_control_request_method="POST", access_control_request_headers=asked
        )
        assert head["access-control-allow-headers"] == asked


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/json"],
)
async def test_a_post_that_does_not_say_json_is_415(road: StartRoad, kind: str) -> None:
    """Whatever a form of another page can send; the upstream hears nothing."""
    async with road() as (up, _, client):
        head, body = await client.request("POST", INITIALIZE, content_type=kind)
        assert head.status == 415 and "application/json" in error_of(body)["message"]
        assert up.seen == []


@pytest.mark.parametrize(
    "kind", ["application/json;charset=UTF-8", "Application/JSON", "application/mcp+json"]
)
async def test_a_post_may_say_json_in_any_way(road: StartRoad, kind: str) -> None:
    """With parameters, in any case, or as a type that is built on JSON."""
    async with road() as (_, _, client):
        await client.initialize(content_type=kind)
        _, body = await client.request("POST", call_body(), content_type=kind)
        assert body == result(1)


async def test_what_needs_no_body_needs_no_type(in_session: StartRoad) -> None:
    """GET and DELETE say nothing, so they need not say what it is."""
    async with in_session() as (up, _, client):
        for method in ("GET", "DELETE"):
            await client.request(method, content_type="")
            assert up.seen[-1].head.method == method


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
async def test_a_browser_does_not_open_a_mount(road: StartRoad, method: str) -> None:
    """A navigation is 403, with and without a session; a page's own fetch is served."""
    async with road() as (up, _, client):
        head, body = await client.request(method, sec_fetch_mode="navigate", sec_fetch_dest="document")
        assert head.status == 403 and b"MCP clients" in body
        await client.initialize(sec_fetch_mode="cors")
        head, _ = await client.request(method, sec_fetch_mode="navigate")
        assert head.status == 403
        assert len(up.seen) == 1


async def test_other_routes_may_be_opened(road: StartRoad) -> None:
    """Whoever opens health or the console in a browser sees them."""
    async with road(console={"enabled": True}) as (_, _, client):
        for path in ("/livez", "/explorer/"):
            head, _ = await client.request("GET", path=path, sec_fetch_mode="navigate", content_type="")
            assert head.status == 200


@pytest.mark.parametrize(
    "name", ["Authorization", "Mcp-Method", "Mcp-Session-Id", "X-Mcp-Adapter-Auth-Token"]
)
async def test_a_field_that_decides_something_may_be_there_once(in_session: StartRoad, name: str) -> None:
    """Of two the adapter and the upstream might take different ones, also where they say the same."""
    async with in_session() as (up, _, client):
        twice = {name.lower().replace("-", "_"): f"application/json\r\n{name.upper()}: application/json"}
        head, body = await client.request("POST", call_body(), **twice)
        assert head.status == 400
        assert name.lower() in error_of(body)["message"]
        head, body = await client.request("GET", b"", "/healthz", **twice)
        assert head.status == 400 and name.lower() in orjson.loads(body)["detail"]
        assert len(up.seen) == 1
