"""``GET /``: what is served where, for people on this machine only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapter.app import build, running
from adapter.settings.root import Settings
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
    async with (
        serving(tmp_path, auth={"enabled": True, "token": TOKEN}) as port,
        RawClient(port) as client,
    ):
        head, body = await client.request("GET", path="/")
        assert head.status == 200 and TOKEN.encode() not in body
