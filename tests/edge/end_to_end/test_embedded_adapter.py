"""The whole adapter inside a host's aiohttp application: calls, streams and files as through its own listener."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientConnectionError, FormData, web

from adapter.api import create_app
from adapter.edge.http.aiohttp_bridge import answered
from adapter.edge.http.request import Request
from adapter.settings.section import SettingsError
from tests.edge.conftest import StartUpstream, done
from tests.edge.hosts import Host, hosting
from tests.edge.raw import INITIALIZE, Exchange, RawUpstream, call_body, event, in_two, result

CHARS = b"0123456789abcdef"


def said(raw: RawUpstream, place: Path, **core: Any) -> dict[str, Any]:
    """What a settings file would say of one server, pings off."""
    return {
        "core": {
            "shutdown_grace_seconds": 0,
            "upstream_ping": {"enabled": False},
            "tool_definition_pinning": {"mode": "off"},
            **core,
        },
        "storage": {"root": str(place)},
        "servers": [
            {
                "id": "raw",
                "mount_path": "/mcp",
                "upstream": {"url": raw.url},
                "adapters": [{"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"}],
            }
        ],
    }


@contextlib.asynccontextmanager
async def adapter_in_host(settings: Any, prefix: str = "") -> AsyncIterator[Host]:
    """The adapter as an application of its own, or below a prefix of another."""
    app = create_app(settings)
    if prefix:
        outer = web.Application()
        outer.add_subapp(prefix, app)
        app = outer
    async with hosting(app, prefix) as host:
        yield host


async def open_session(host: Host) -> dict[str, str]:
    """The header fields of a session with the server."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with host.session.post(f"{host.url}/mcp", data=INITIALIZE, headers=headers) as response:
        assert response.status == 200
        return headers | {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}


@pytest.mark.parametrize("prefix", ["", "/adapter"])
async def test_calls_pass_through_a_host(upstream: StartUpstream, tmp_path: Path, prefix: str) -> None:
    """At its root and below a prefix; the adapter starts and stops with the application."""
    async with upstream() as up:
        async with adapter_in_host(said(up, tmp_path), prefix) as host:
            fields = await open_session(host)
            async with host.session.post(f"{host.url}/mcp", data=call_body(), headers=fields) as response:
                assert response.status == 200 and await response.read() == result(1)
            async with host.session.get(f"{host.url}/healthz") as response:
                assert (await response.json())["sessions"] == {"active": 1}
            async with host.session.get(f"{host.url}/nowhere") as response:
                assert response.status == 404
            async with host.session.delete(f"{host.url}/mcp", headers=fields) as response:
                assert response.status == 200
        assert up.calls("DELETE")


async def test_events_leave_as_they_come(upstream: StartUpstream, tmp_path: Path) -> None:
    """The first one before the upstream has sent the next."""
    go_on = asyncio.Event()
    script = in_two(go_on, event(b'{"jsonrpc":"2.0","method":"notifications/message"}'), event(result(1)))
    async with upstream(script) as up, adapter_in_host(said(up, tmp_path)) as host:
        fields = await open_session(host)
        async with host.session.post(f"{host.url}/mcp", data=call_body(), headers=fields) as response:
            assert b"notifications/message" in await response.content.readuntil(b"\n\n")
            go_on.set()
            assert await response.content.read() == event(result(1))


async def test_a_client_that_goes_lets_go_of_the_upstream(upstream: StartUpstream, tmp_path: Path) -> None:
    """Also while nothing is being sent."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b": hello\n\n")
        await exchange.gone()
        gone.set()

    async with upstream(script) as up, adapter_in_host(said(up, tmp_path)) as host:
        fields = await open_session(host)
        response = await host.session.post(f"{host.url}/mcp", data=call_body(), headers=fields)
        await response.content.readuntil(b"\n\n")
        response.close()
        await asyncio.wait_for(gone.wait(), 20)


async def test_a_stream_that_breaks_off_breaks_off_here(upstream: StartUpstream, tmp_path: Path) -> None:
    """So that nobody takes half an answer for a whole one; JSON that is long enough leaves before its end is known."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
        )
        await exchange.send(b" " * 200_000)
        exchange.break_off()

    async with upstream(script) as up, adapter_in_host(said(up, tmp_path)) as host:
        fields = await open_session(host)
        async with host.session.post(f"{host.url}/mcp", data=call_body(), headers=fields) as response:
            with pytest.raises(Exception, match=r"(?i)payload|connection|reset"):
                await response.read()


async def test_files_go_up(upstream: StartUpstream, tmp_path: Path) -> None:
    """An upload of several pieces lies where the tool is told to look, byte for byte."""
    content = CHARS * (3 << 16)
    seen: list[dict[str, Any]] = []

    async def script(exchange: Exchange) -> None:
        seen.append(dict(exchange.message))
        await done(exchange)

    async with upstream(script) as up, adapter_in_host(said(up, tmp_path)) as host:
        fields = await open_session(host)
        form = FormData()
        form.add_field("file", io.BytesIO(content), filename="a.bin", content_type="application/octet-stream")
        own = {"Mcp-Session-Id": fields["Mcp-Session-Id"]}
        async with host.session.post(f"{host.url}/upload/raw", data=form, headers=own) as response:
            uploaded = await response.json()
            assert response.status == 200, uploaded
        assert uploaded["uploads"][0]["sha256"] == hashlib.sha256(content).hexdigest()
        call = {"name": "take", "arguments": {"path": uploaded["upload_handle"]}}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call})
        async with host.session.post(f"{host.url}/mcp", data=body, headers=fields) as response:
            assert response.status == 200
        path = Path(seen[-1]["params"]["arguments"]["path"])
        assert await asyncio.to_thread(path.read_bytes) == content


@dataclass
class Sent:
    """A file that is sent by its number, as those of the store are."""

    number: int

    async def send(self, receiver: int, offset: int, length: int) -> int:
        return os.sendfile(receiver, self.number, offset, length)


async def test_files_go_down(tmp_path: Path) -> None:
    """From an offset, to the byte; and for HEAD nothing of it."""
    content = CHARS * (1 << 15)
    path = tmp_path / "a.bin"
    path.write_bytes(content)

    async def act(request: Request) -> None:
        with path.open("rb") as file:
            request.reply.begin(200, [("Content-Type", "application/x-ours")], len(content) - 5)
            if request.method != "HEAD":
                await request.reply.write_file(Sent(file.fileno()), 5, len(content) - 5)
            request.reply.end()

    async def handle(original: web.Request) -> web.StreamResponse:
        return await answered(original, act)

    app = web.Application()
    app.router.add_route("*", "/file", handle)
    async with hosting(app) as host:
        async with host.session.get(f"{host.url}/file") as response:
            assert response.content_type == "application/x-ours" and await response.read() == content[5:]
        async with host.session.head(f"{host.url}/file") as response:
            assert response.content_length == len(content) - 5 and await response.read() == b""


async def test_what_answers_nothing_is_broken_off() -> None:
    """A defect leaves no client waiting."""

    async def act(request: Request) -> None:
        raise RuntimeError("a defect")

    async def handle(original: web.Request) -> web.StreamResponse:
        return await answered(original, act)

    app = web.Application()
    app.router.add_route("*", "/", handle)
    async with hosting(app) as host:
        with pytest.raises(ClientConnectionError):
            await host.session.get(f"{host.url}/")


async def test_settings_of_a_file_and_ones_that_are_wrong(upstream: StartUpstream, tmp_path: Path) -> None:
    """A path is read as the command does it; what is wrong is said before anything starts."""
    async with upstream() as up:
        file = tmp_path / "config.yaml"
        file.write_bytes(orjson.dumps(said(up, tmp_path / "files")))
        async with adapter_in_host(file) as host, host.session.get(f"{host.url}/livez") as response:
            assert response.status == 200
    with pytest.raises(SettingsError, match="servers"):
        create_app({"servers": [{"id": "x"}]})
