"""``mcp-adapter connect`` as a process, as a host starts it: signs in once, renews, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.commands.connect.hosting import META, PATIENCE, request, result
from tests.commands.running import ADAPTER
from tests.commands.signing import approving, register
from tests.edge.raw import RawUpstream, in_json
from tests.oauth.token_serving import ProtectedUpstream, TokenServer
from tests.waiting import until

pytestmark = pytest.mark.deep


class Process:
    """A running command; ``heard`` are all lines that it wrote."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[bytes] = []

    async def say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(message) + b"\n")
        await self.process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(2 * PATIENCE):
            self.heard.append(await self.process.stdout.readline())
        message: dict[str, Any] = orjson.loads(self.heard[-1])
        return message

    async def ask(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        await self.say(request(number, method, **params))
        return await self.hear()


@asynccontextmanager
async def connect(place: Path, url: str, **variables: str) -> AsyncIterator[Process]:
    environ = {name: value for name, value in os.environ.items() if "ADAPTER_" not in name.upper()}
    environ |= {"HOME": str(place), "XDG_DATA_HOME": "", **variables}
    with (place / "log").open("a") as log:
        process = await asyncio.create_subprocess_exec(
            *(ADAPTER, "connect", url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=place,
            env=environ,
        )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_token_is_renewed_while_it_runs(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """The host and the person notice nothing of it. Who could not sign in at the start reads how to do so before."""
    register(tokens)
    first = {"access_token": "t1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r1"}
    tokens.answers.append((200, first))
    async with connect(tmp_path, protected.url, BROWSER=approving(tmp_path)) as host:
        listed = await host.ask(1, "tools/list", _meta=META)
        assert listed["result"]["tools"][0]["name"] == "tool_t1"
        protected.protect("t2")
        tokens.answers.append((200, first | {"access_token": "t2"}))
        listed = await host.ask(2, "tools/list", _meta=META)
        assert listed["result"]["tools"][0]["name"] == "tool_t2"
    assert (tokens.forms[-1]["grant_type"], tokens.forms[-1]["refresh_token"]) == ("refresh_token", "r1")
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert f" tools {protected.url}\n" in (tmp_path / "log").read_text()


async def test_two_hosts_that_start_together_open_one_browser(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """The second one waits for the first, and uses its token. Standard output has nothing but messages."""
    register(tokens)
    opens = approving(tmp_path)
    script = tmp_path / "browser.py"
    noise = "import os, time\nprint('Opening in existing browser session.')\n"
    wait = f"{noise}while not os.path.exists('both'): time.sleep(0.05)\n"
    script.write_text(script.read_text().replace("url = sys.argv[1]\n", "url = sys.argv[1]\n" + wait))
    async with (
        connect(tmp_path, protected.url, BROWSER=opens) as one,
        connect(tmp_path, protected.url, BROWSER=opens) as other,
    ):
        for host in (one, other):
            await host.say(request(1, "tools/list", _meta=META))
        await until(lambda: len(protected.calls("tools/list")) >= 2, 2 * PATIENCE)
        (tmp_path / "both").touch()
        for host in (one, other):
            assert (await host.hear())["result"]["tools"][0]["name"] == "tool_t1"
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_and_its_session(number: signal.Signals, tmp_path: Path) -> None:
    """With status 0, as hosts end their servers."""
    async with RawUpstream(in_json(result(1))) as server, connect(tmp_path, server.url) as host:
        info = {"name": "h", "version": "1"}
        await host.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        assert server.sessions
        host.process.send_signal(number)
        async with asyncio.timeout(2 * PATIENCE):
            assert await host.process.wait() == 0
        assert not server.sessions


def test_only_messages_are_on_standard_output() -> None:
    """Whatever libraries and programs that are started print goes to standard error."""
    code = (
        "import os, sys; from adapter.commands.connect.command import own_pipes; source, target = own_pipes(); "
        "print('a', flush=True); os.system('echo b; cat'); os.write(target, b'c')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="mine", capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "c" and done.stderr == "a\nb\n"
