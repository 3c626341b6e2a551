"""The official clients sign in through the adapter and work there as their persons."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.clients.sign_in import provider
from tests.e2e.files_server import drawing
from tests.e2e.filing import (
    Host,
    ScriptedHost,
    artifact,
    content_of,
    curl,
    python_host,
)
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import signed_in
from tests.e2e.processes import Server
from tests.e2e.provision import ROOT, packages
from tests.e2e.talk import Command
from tests.ports import free_port

pytestmark = pytest.mark.e2e

ECHO, FILES = "tests.e2e.upstream_server", "tests.e2e.files_server"
CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "python_v2 2026-07-28",
    "fastmcp4",
    "ts_v1",
    "ts_v2 legacy",
    "ts_v2 2026-07-28",
)
INSPECTOR_TIMEOUT = 30.0
"""Seconds the inspector may take to sign in and to call."""


async def test_every_client_signs_in_and_calls(
    command: Command, oauth_programs: None, tmp_path: Path
) -> None:
    """By the 401, the metadata of the mount, discovery, registration, a code with PKCE, and a token for the mount."""
    async with (
        authorization_server(tmp_path) as issuer,
        Server(ECHO, tmp_path) as upstream,
        protected_adapter(tmp_path, upstream.url, issuer) as front,
    ):
        for name in CLIENTS:
            async with signed_in(command, name, "ada", front.url, tmp_path) as client:
                assert (await client.ask("list"))["text"].split()[-2:] == ["echo", "wait"], name
                assert (await client.echo("hello"))["text"] == "you said hello", name


async def test_clients_sign_in_at_a_merged_mount(
    command: Command, oauth_programs: None, tmp_path: Path
) -> None:
    """The mount is a resource with metadata of its own, for which clients ask and get tokens."""
    async with (
        authorization_server(tmp_path) as issuer,
        Server(ECHO, tmp_path) as upstream,
        protected_adapter(
            tmp_path,
            upstream.url,
            issuer,
            server={"mount_path": "/mcp/upstream"},
            mounts=[{"id": "all", "servers": ["*"]}],
        ) as front,
    ):
        url = f"{front.base}/mcp/all"
        metadata = await curl(f"{front.base}/.well-known/oauth-protected-resource/mcp/all")
        assert json.loads(metadata.body)["resource"] == url
        for name in ("python_v2 2026-07-28", "ts_v1"):
            async with signed_in(command, name, "ada", url, tmp_path) as client:
                assert "upstream_echo" in (await client.ask("list"))["text"].split(), name
                called = await client.ask("call", tool="upstream_echo", arguments={"text": "hello"})
                assert called["text"] == "you said hello", name


@asynccontextmanager
async def host(command: Command, name: str, person: str, url: str, place: Path) -> AsyncIterator[Host]:
    """The client called ``name``, in which ``person`` has signed in."""
    script, *mode = name.split()
    if script == "python_v2":
        async with python_host(url, mode[0], auth=provider(url, result=True, person=person)) as python:
            yield python
        return
    async with signed_in(command, name, person, url, place) as client:
        yield ScriptedHost(client)


async def test_the_inspector_signs_in(node: Path, oauth_programs: None, tmp_path: Path) -> None:
    """Its command line opens a browser for the person, and calls with the token."""
    async with (
        authorization_server(tmp_path) as issuer,
        Server(ECHO, tmp_path) as upstream,
        protected_adapter(tmp_path, upstream.url, issuer) as front,
    ):
        printed = await inspected(node, tmp_path, front.url, "ada", "tools/call", "--tool-name", "echo")
        assert "you said hi" in printed, printed
        assert (await issuer.counted())["/token"] == 1


async def inspected(node: Path, place: Path, url: str, person: str, method: str, *more: str) -> str:
    """The words of the inspector's command line for one request, in which ``person`` signs in."""
    launcher = (
        packages() / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
    )
    browser = place / "browser"
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.e2e.clients.open_browser {person} "$1"\n')
    browser.chmod(0o755)
    environment = {
        **os.environ,
        "HOME": str(place),
        "PYTHONPATH": str(ROOT),
        "BROWSER": str(browser),
        "DISPLAY": "",
        "MCP_AUTO_OPEN_ENABLED": "true",
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    callback = f"http://127.0.0.1:{free_port()}/callback"
    argv = ["--cli", url, "--transport", "http", "--callback-url", callback, "--method", method, *more]
    process = await asyncio.create_subprocess_exec(
        node,
        launcher,
        *argv,
        *("--tool-arg", "text=hi"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    async with asyncio.timeout(INSPECTOR_TIMEOUT):
        printed, _ = await process.communicate()
    return printed.decode()


async def test_a_session_goes_on_with_a_refreshed_token(
    command: Command, oauth_programs: None, tmp_path: Path
) -> None:
    """Tokens of three seconds: the client refreshes them, nobody signs in again, and the files are still there."""
    # Issuers round down to seconds, and the Python SDK signs in again if a token ends before it expects that.
    async with (
        authorization_server(tmp_path, lifetime=3) as issuer,
        Server(FILES, tmp_path) as upstream,
        protected_adapter(tmp_path, upstream.url, issuer, oauth={"leeway_seconds": 1}) as front,
    ):
        for name in ("python_v2 legacy", "ts_v2 legacy"):
            before = (await issuer.counted()).get("/token", 0)
            async with host(command, name, "ada", front.url, tmp_path) as ada:
                told = artifact(await ada.call("draw", seed=6, size=100, filename="a.bin"))
                deadline = asyncio.get_running_loop().time() + 20
                while (await issuer.counted())["/token"] < before + 3:
                    assert asyncio.get_running_loop().time() < deadline, "no token was refreshed"
                    assert content_of(await ada.read(told["artifact_uri"])) == drawing(6, 100)
                    await asyncio.sleep(0.3)
        counted = await issuer.counted()
        assert counted["/auth"] == 2, counted
