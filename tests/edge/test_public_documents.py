"""The landing page, and what the adapter says about its protected resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.app import build, running
from adapter.settings.root import Settings
from tests.edge.bearers import AT, BASE, ISSUER, MOUNT, ScriptedVerifier, core
from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import RawClient

CONSUMER = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
TOKEN = "a-token-of-some-length"


@asynccontextmanager
async def serving(root: Path, **core: object) -> AsyncIterator[int]:
    """The port of an adapter with two servers and the console."""
    up = {"url": "http://127.0.0.1:9/mcp?key=s3cret", "static_headers": {"X-Key": "s3cret"}}
    settings = {
        "core": {"port": 0, "upstream_ping": {"enabled": False}, **core},
        "storage": {"root": str(root)},
        "console": {"enabled": True},
        "telemetry": {"prometheus": {"enabled": True}},
        "servers": [
            {"id": "files", "upstream": up, "adapters": [CONSUMER]},
            {"id": "web", "mount_path": "/browser", "upstream": up},
        ],
    }
    async with running(build(Settings.model_validate(settings))) as (_, port):
        yield port


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:{port}", "[::1]:{port}"])
async def test_it_says_what_is_served_where(tmp_path: Path, host: str) -> None:
    """As plain text with addresses that can be opened, and without anything of the upstream servers."""
    async with serving(tmp_path) as port, RawClient(port) as client:
        name = host.format(port=port)
        head, body = await client.request("GET", path="/", host=name)
        assert (head.status, head["content-type"]) == (200, "text/plain; charset=utf-8")
        assert [line.split()[-1] for line in body.decode().splitlines()[2:]] == [
            f"http://{name}{path}"
            for path in ("/mcp/files", "/browser", "/upload/files", "/explorer/", "/metrics", "/healthz")
        ]
        assert b"s3cret" not in body and b":9/" not in body


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "adapter.example.com"},
        {"x_forwarded_for": "192.0.2.7"},
        {"forwarded": "for=192.0.2.7"},
        {"via": "1.1 proxy"},
    ],
)
async def test_it_is_not_there_for_others(tmp_path: Path, fields: dict[str, str]) -> None:
    """Neither under another name nor through a proxy on this machine."""
    core = {"allowed_hosts": ["adapter.example.com", "127.0.0.1", "localhost"]}
    async with serving(tmp_path, **core) as port, RawClient(port) as client:
        head, body = await client.request("GET", b"", "/", **fields)
        assert head.status == 404 and b"/mcp" not in body


async def test_other_methods_and_pages_of_strangers(tmp_path: Path) -> None:
    """Only GET is answered, and no page of another site reads it."""
    async with serving(tmp_path) as port, RawClient(port) as client:
        assert (await client.request("POST", b"{}", path="/"))[0].status == 404
        head, body = await client.request("GET", path="/", origin="https://evil.example")
        assert head.status == 403 and b"/mcp" not in body


async def test_it_needs_no_token(tmp_path: Path) -> None:
    """It shows no more than health does to callers without one."""
    async with serving(tmp_path, auth={"enabled": True, "token": TOKEN}) as port, RawClient(port) as client:
        head, body = await client.request("GET", path="/")
        assert head.status == 200 and TOKEN.encode() not in body


WELL_KNOWN = "/.well-known/oauth-protected-resource"
DOCUMENT = {
    "resource": MOUNT,
    "authorization_servers": [ISSUER],
    "scopes_supported": ["mcp"],
    "bearer_methods_supported": ["header"],
    "resource_name": "raw",
}


@pytest.mark.parametrize("path", [f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/mcp/", WELL_KNOWN])
async def test_the_document_of_a_mount(road: StartRoad, path: str) -> None:
    """Everybody may read it without a credential, also a page of any origin, and keep it for a while."""
    async with road(core=core(), verifier=ScriptedVerifier()) as (_, _, client):
        head, body = await client.request("GET", path=path, origin="https://page.example")
        assert (head.status, orjson.loads(body)) == (200, DOCUMENT)
        assert head["content-type"] == "application/json"
        assert head["access-control-allow-origin"] == "*"
        assert head["cache-control"] == "public, max-age=300"
        assert len([name for name, _ in head.fields if name == "access-control-allow-origin"]) == 1


async def test_head_and_preflight(road: StartRoad) -> None:
    """A page asks first, because clients send MCP-Protocol-Version along; other methods are not served."""
    asks = {
        "access_control_request_method": "GET",
        "access_control_request_headers": "mcp-protocol-version",
        "origin": "https://page.example",
    }
    async with road(core=core(), verifier=ScriptedVerifier()) as (_, _, client):
        head, _ = await client.request("OPTIONS", b"", WELL_KNOWN, **asks)
        assert head.status == 204
        assert "MCP-Protocol-Version" in head["access-control-allow-headers"]
        assert head["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
        head, _ = await client.request("POST", b"{}", path=WELL_KNOWN)
        assert head.status == 405 and head["allow"].startswith("GET, HEAD")
        await client.send("HEAD", path=WELL_KNOWN)
        head = await client.head()
        assert head.status == 200 and int(head["content-length"]) > 0


async def test_the_host_is_checked_as_elsewhere(road: StartRoad) -> None:
    """A page that rebinds its name to this machine learns nothing."""
    async with road(core=core(), verifier=ScriptedVerifier()) as (_, _, client):
        head, _ = await client.request("GET", path=WELL_KNOWN, host="evil.example")
        assert head.status == 421


SECOND: dict[str, Any] = {"id": "two", "mount_path": "/mcp/é", "upstream": {"url": "http://127.0.0.1:9/mcp"}}


async def test_each_of_several_mounts_has_its_document(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Where no path follows there is none then, for it could not say for which mount it is; the console has one."""
    async with upstream() as up:
        raw = {"id": "raw", "mount_path": "/mcp", "upstream": {"url": up.url}}
        settings: dict[str, Any] = {"servers": [raw, SECOND], "console": {"enabled": True}}
        async with (
            adapter(up, core=core(), verifier=ScriptedVerifier(), **settings) as front,
            front.client() as client,
        ):
            head, _ = await client.request("GET", path=WELL_KNOWN)
            assert head.status == 404
            found = {}
            for path in ("/mcp", "/mcp/%C3%A9", "/explorer"):
                _, body = await client.request("GET", path=WELL_KNOWN + path)
                found[path] = orjson.loads(body)
    assert [found[path]["resource"] for path in found] == [BASE + path for path in found]
    assert [found[path]["resource_name"] for path in found] == ["raw", "two", "the console"]


async def test_a_base_with_a_path_of_its_own(road: StartRoad) -> None:
    """The well-known part stands before all of the path (RFC 9728 §3.1), also where a proxy takes a part of it off."""
    settings = core() | {"public_base_url": f"{BASE}/ad/apter"}
    settings["auth"]["oauth"]["documentation"] = "https://example.org/docs"
    async with road(core=settings, verifier=ScriptedVerifier()) as (_, _, client):
        for path in ("/ad/apter/mcp", "/mcp", "", "/ad/apter"):
            _, body = await client.request("GET", path=WELL_KNOWN + path)
            document = orjson.loads(body)
            assert document["resource"] == f"{BASE}/ad/apter/mcp"
            assert document["resource_documentation"] == "https://example.org/docs"
        head, _ = await client.request("POST", b"{}")
        assert f'resource_metadata="{AT}/ad/apter/mcp"' in head["www-authenticate"]


async def test_there_is_no_metadata_without_an_issuer(road: StartRoad) -> None:
    """Clients that look for it go on without signing in."""
    async with road() as (_, _, client):
        for path in (WELL_KNOWN, f"{WELL_KNOWN}/mcp"):
            head, _ = await client.request("GET", path=path)
            assert head.status == 404
