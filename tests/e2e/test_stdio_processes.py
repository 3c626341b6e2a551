"""Many processes behind one adapter: none is crossed with another, and none is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.over_stdio import PATIENCE, Command, serving, settings
from tests.e2e.processes import Adapter, answers, start
from tests.ports import free_port

pytestmark = pytest.mark.e2e

STAMPING = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "stamping", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "stamp", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        text = f"{os.getpid()} {message['params']['arguments']['text']}"
        result = {"content": [{"type": "text", "text": text}]}
    else: result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""A server whose answers begin with its process id."""


@pytest.fixture
def stamping(tmp_path: Path) -> Command:
    """The stamping server, with a mark of this test among its arguments."""
    return sys.executable, ["-S", "-c", STAMPING, str(tmp_path)]


def of_test(place: Path) -> set[int]:
    """The processes that have the mark of a test among their arguments, other than the adapter."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(place) in words:
                found.add(int(entry.name))
    return found


async def none_left(place: Path, seconds: float) -> bool:
    """Wait until no such process is left. Returns False if that takes longer."""
    end = time.monotonic() + seconds
    while of_test(place):
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


class RawSession:
    """A session without an SDK, so that many are cheap."""

    def __init__(self, http: aiohttp.ClientSession, url: str, **fields: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"Accept": "application/json, text/event-stream", **fields}

    async def post(self, method: str, number: int | None, params: dict[str, Any]) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        async with self._http.post(self._url, json=message, headers=self._headers) as reply:
            if method == "initialize":
                self._headers["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
            return None if number is None else await reply.json()

    async def open(self) -> None:
        """Open the session."""
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        await self.post("initialize", 0, params)
        await self.post("notifications/initialized", None, {})

    def accepts(self, kinds: str) -> None:
        """Name other media types in the requests that follow."""
        self._headers["Accept"] = kinds

    def listen(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Open a GET stream."""
        return self._http.get(self._url, headers={**self._headers, "Accept": "text/event-stream"})

    async def stamp(self, text: str, number: int = 1) -> str:
        """Call the tool; the process id and the text."""
        answer = await self.post("tools/call", number, {"name": "stamp", "arguments": {"text": text}})
        return str(answer["result"]["content"][0]["text"])

    async def close(self) -> None:
        """End the session."""
        async with self._http.delete(self._url, headers=self._headers) as reply:
            assert reply.status == 200


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=PATIENCE)
    ) as session:
        yield session


async def opened(http: aiohttp.ClientSession, front: Adapter, count: int) -> list[RawSession]:
    sessions = [RawSession(http, front.url) for _ in range(count)]
    await asyncio.gather(*(session.open() for session in sessions))
    return sessions


async def test_a_client_finds_its_session_after_its_process_was_idle(
    stamping: Command, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The process is started again with the client's own initialize; the client notices nothing."""
    async with serving(tmp_path, stamping, idle_ttl_seconds=0.5) as front:
        (session,) = await opened(http, front, 1)
        first = await session.stamp("one")
        assert await none_left(tmp_path, PATIENCE)
        second = await session.stamp("two")
        assert first.split()[1] == "one" and second.split()[1] == "two"
        assert first.split()[0] != second.split()[0]


async def test_a_session_goes_on_after_a_crash(
    stamping: Command, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A process that was killed is started again with the client's own initialize; other sessions keep theirs."""
    async with serving(tmp_path, stamping) as front:
        lost, other = await opened(http, front, 2)
        before, kept = await lost.stamp("one"), await other.stamp("other")
        os.kill(int(before.split()[0]), signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while "process ended" not in (tmp_path / "adapter.log").read_text():
                await asyncio.sleep(0.01)
        after = await lost.stamp("two")
        assert after.split()[1] == "two" and after.split()[0] != before.split()[0]
        assert await other.stamp("other") == kept


@pytest.mark.parametrize(
    "how",
    [
        {"process": "per_principal"},
        {"process": "shared"},
        {"sessions": {"upstream": "principal"}},
    ],
    ids=["principal", "shared", "sessions.upstream"],
)
async def test_sessions_share_a_process(
    how: dict[str, Any], stamping: Command, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """All call at once with the same ids, and each gets its own answer."""
    async with serving(tmp_path, stamping, **how) as front:
        sessions = await opened(http, front, 20)
        texts = await asyncio.gather(*(session.stamp(f"mine-{n}") for n, session in enumerate(sessions)))
        assert len({text.split()[0] for text in texts}) == 1
        assert [text.split()[1] for text in texts] == [f"mine-{n}" for n in range(20)]
    assert await none_left(tmp_path, PATIENCE)


async def test_a_server_that_does_not_start_is_in_healthz(
    http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Operators read the reason there; a client reads which server failed, and how."""
    program = "import sys; sys.stderr.write('KEY is not set'); sys.exit(7)"
    port, config = free_port(), tmp_path / "adapter.json"
    config.write_text(json.dumps(settings(tmp_path, (sys.executable, ["-c", program]))))
    argv = [sys.executable, "-m", "adapter", "serve", "--config", str(config), "--port", str(port)]
    running = await start(argv, tmp_path / "adapter.log")
    try:
        await answers(f"http://127.0.0.1:{port}/livez", running)
        async with asyncio.timeout(PATIENCE):
            while True:
                async with http.get(f"http://127.0.0.1:{port}/healthz") as reply:
                    ping = (await reply.json())["servers"][0]["ping"]
                if ping["last_error"] and "KEY" in ping["last_error"]:
                    break
                await asyncio.sleep(0.1)
        assert "exit code 7" in ping["last_error"] or "not started again" in ping["last_error"]
    finally:
        await running.stop()


async def test_what_comes_beside_a_list_of_the_adapters_own_waits(
    http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A message that belongs to no request is not lost on the adapter's own: the next GET stream has it."""
    note = (
        '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "found"}}'
    )
    noting = STAMPING.replace('"tools/list":', f'"tools/list":\n        print({note!r}, flush=True)', 1)
    async with serving(tmp_path, (sys.executable, ["-S", "-c", noting])) as front:
        session = RawSession(http, front.url)
        await session.open()
        # The client may be sent no stream, so only the adapter's own list could be one.
        session.accepts("application/json")
        assert await session.stamp("hello")
        async with asyncio.timeout(PATIENCE), session.listen() as stream:
            assert note.encode() in await stream.content.readuntil(b"\n\n")


async def test_health_tells_operators_how_many_processes_run(
    stamping: Command, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Callers with credentials read the number and the limit, others neither."""
    token, given = "a-token-of-sixteen-letters", settings(tmp_path, stamping, max_processes=7)
    front = Adapter(tmp_path, given | {"core": {"auth": {"enabled": True, "token": token}}})
    try:
        await front.start()
        operator = {"Authorization": f"Bearer {token}"}
        session = RawSession(http, front.url, **operator)
        await session.open()
        assert await session.stamp("hello")
        address = front.url.replace("/mcp", "/healthz")
        async with http.get(address, headers=operator) as told, http.get(address) as public:
            known, shown = (await told.json())["servers"][0], (await public.json())["servers"][0]
        assert known["processes"]["limit"] == 7 and 1 <= known["processes"]["running"] <= 2
        assert "processes" not in shown
    finally:
        await front.stop()
