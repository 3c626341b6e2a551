"""``mcp-adapter wrap`` as a person meets it: started in an empty folder, read, used by a client, stopped."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands.running import ADAPTER, mcp_adapter
from tests.e2e.filing import artifact, content_of, curl, python_host, said, uploaded
from tests.e2e.over_stdio import settings
from tests.e2e.processes import Adapter
from tests.e2e.provision import ROOT
from tests.ports import free_port

pytestmark = pytest.mark.e2e

PATIENCE = 60
FILES = [sys.executable, "-c", "from tests.e2e.files_server import server; server.run('stdio')"]
HERE = ["--env", f"PYTHONPATH={ROOT}"]
COUNTER = """
import json, sys
calls, info = 0, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "c"}}
for message in map(json.loads, sys.stdin):
    calls += message["method"] == "tools/call"
    count = {"content": [{"type": "text", "text": str(calls)}]}
    tools = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
    known = {"initialize": info, "tools/list": tools, "tools/call": count, "ping": {}}
    answer = known.get(message["method"])
    said = {"error": {"code": -32601, "message": "?"}} if answer is None else {"result": answer}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""
"""A program that speaks only a legacy revision, and counts the calls of its process."""


@dataclass(frozen=True)
class Wrapped:
    """A running command, and what it printed before it served."""

    process: asyncio.subprocess.Process
    text: str

    @property
    def url(self) -> str:
        found = re.search(r"^\S+ is at (\S+)$", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    async def ended(self, number: signal.Signals) -> tuple[int, str]:
        """Its status after a signal, and the rest that it said on standard error."""
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


@asynccontextmanager
async def serving(
    place: Path, *arguments: str | Path, command: str = "wrap"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The command in ``place`` once it serves, and what it said on standard error before."""
    process = await asyncio.create_subprocess_exec(
        ADAPTER,
        command,
        *map(str, arguments),
        cwd=place,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        errors = ""
        async with asyncio.timeout(PATIENCE):
            while '"serving"' not in errors and (line := await process.stderr.readline()):
                errors += line.decode()
        assert '"serving"' in errors, errors
        yield process, errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def running(place: Path, *arguments: str | Path, command: str = "wrap") -> AsyncIterator[Wrapped]:
    """The command in ``place``, once it serves and has printed what it found."""
    async with serving(place, *arguments, command=command) as (process, _):
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            text = (await process.stdout.read(65536)).decode() if command == "wrap" else ""
        yield Wrapped(process, text)


def children(words: Sequence[str], place: Path) -> list[str]:
    """The command lines of processes that were started with a word of this test's own."""
    mark = str(place)
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_text().replace("\0", " ") if entry.name.isdigit() else ""
        except OSError:
            continue
        if mark in line and any(word in line for word in words):
            found.append(line)
    return found


async def test_ctrl_c_leaves_no_process(node: Path, server_packages: Path, tmp_path: Path) -> None:
    """The server's tools and the snippets are printed; Ctrl-C ends it quietly with all that it started."""
    script = server_packages / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    linked = tmp_path / "server-everything.js"
    linked.symlink_to(script)
    async with running(tmp_path, "--port", "0", "--", node, linked, "stdio") as wrapped:
        assert wrapped.url.endswith("/mcp/everything")
        assert "Everything Reference Server 2.0.0, MCP 2025-11-25, 13 tools" in wrapped.text
        assert f"claude mcp add --transport http everything {wrapped.url}" in wrapped.text
        async with python_host(wrapped.url) as host:
            assert "echo" in await host.tools()
            assert said(await host.call("echo", message="hi")) == "Echo: hi"
            assert children(["server-everything.js"], tmp_path)
            status, errors = await wrapped.ended(signal.SIGINT)
    assert (status, "Traceback" in errors) == (0, False), errors
    assert children(["server-everything.js"], tmp_path) == []


async def test_a_stop_behind_the_report_ends_it(tmp_path: Path) -> None:
    """A signal that comes after the look at the server, and before it is served, is not swallowed."""
    process = await asyncio.create_subprocess_exec(
        ADAPTER,
        *("wrap", "--port", "0", *HERE, "--", *FILES),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        await process.stdout.readline()
        process.terminate()
        await process.communicate()
    assert process.returncode in (0, -signal.SIGTERM)


async def test_a_file_goes_up_and_an_artifact_comes_down(tmp_path: Path) -> None:
    """With --auto, through the SDK's client; --save writes settings with which serve does the same."""
    sent = tmp_path / "sent.bin"
    sent.write_bytes(b"\0sent" * 999)
    flags = ["--port", "0", "--name", "upstream", *HERE, "--auto", "--save", "config.yaml"]
    flags += ["--produce", "turn_round:filename"]
    async with running(tmp_path, *flags, "--", *FILES) as wrapped:
        assert "draw writes the file in filename" in wrapped.text
        url = wrapped.url
        await _round(url, sent)
        await wrapped.ended(signal.SIGINT)
    assert (tmp_path / "data" / "upstream" / "artifacts").is_dir()
    async with running(tmp_path, command="serve"):
        await _round(url, sent)


async def _round(url: str, sent: Path) -> None:
    async with python_host(url) as host:
        (upload,) = await uploaded(host, sent)
        told = artifact(await host.call("turn_round", path=upload["upload_handle"], filename="turned.bin"))
        assert content_of(await host.read(told["artifact_uri"])) == sent.read_bytes()[::-1]
        assert (await curl(told["download_url"])).body == sent.read_bytes()[::-1]


async def test_without_a_flag_nothing_is_applied(tmp_path: Path) -> None:
    """Proposals are printed with their reasons, and the tools stay as they are; a flag applies one."""
    async with running(tmp_path, "--port", "0", *HERE, "--", *FILES) as wrapped:
        assert (
            "--consume digest:path\n      digest may change the file in path: it is called path"
            in wrapped.text
        )
        async with python_host(wrapped.url) as host:
            assert not any(name.endswith("_get_upload_url") for name in await host.tools())
    named = ["--consume", "digest:path", "--consume", "digest_inline:data"]
    async with running(tmp_path, "--port", "0", *HERE, *named, "--", *FILES) as wrapped:
        assert "Handled as files:\n  digest may change the file in path" in wrapped.text
        async with python_host(wrapped.url) as host:
            assert any(name.endswith("_get_upload_url") for name in await host.tools())


@pytest.mark.parametrize(("flags", "counts"), [([], ["1", "1"]), (["--one-session"], ["1", "2"])])
async def test_a_modern_client_is_told_how_a_legacy_program_remembers(
    flags: list[str], counts: list[str], tmp_path: Path
) -> None:
    """Each of its calls has a session of its own until a flag says otherwise; the report names that."""
    program = (sys.executable, "-c", COUNTER)
    async with running(tmp_path, "--port", "0", "--name", "c", *flags, "--", *program) as wrapped:
        assert ("start again with --one-session" in wrapped.text) == (not flags)
        async with python_host(wrapped.url, "auto") as host:
            assert [said(await host.call("count")) for _ in counts] == counts


async def test_a_program_is_started_once_until_a_client_comes(tmp_path: Path) -> None:
    """Its tools are seen in the session of the health check: the adapter serves while a slow program starts, and
    reports when it has started.
    """
    python, flag, program = FILES
    starts, gate = tmp_path / "starts", tmp_path / "gate"
    os.mkfifo(gate)
    slow = f"open({str(starts)!r}, 'a').write('x'); open({str(gate)!r}).read(); {program}"
    flags = ["--port", "0", "--name", "slow", *HERE]
    async with serving(tmp_path, *flags, "--", python, flag, slow) as (process, errors):
        assert "slow will be at http://127.0.0.1:" in errors
        assert process.stdout is not None
        report = asyncio.create_task(process.stdout.read(65536))
        # A fifo opens when the program reads it.
        await asyncio.to_thread(gate.write_text, "")
        async with asyncio.timeout(PATIENCE):
            wrapped = Wrapped(process, (await report).decode())
        assert "5 tools" in wrapped.text
        gate.unlink()
        gate.write_text("")
        assert starts.read_text() == "x"
        async with python_host(wrapped.url) as host:
            assert "draw" in await host.tools()
        assert starts.read_text() == "xx"
        assert (await wrapped.ended(signal.SIGINT))[0] == 0


async def test_several_servers_are_at_one_address(tmp_path: Path) -> None:
    """Programs and a URL, each under its name; one that does not start is named and takes no other along."""
    line = shlex.join(["env", f"PYTHONPATH={ROOT}", *FILES])
    async with running(tmp_path, "--port", "0", "--name", "first", *HERE, "--", *FILES) as first:
        flags = ["--port", "0", "--save", "config.yaml"]
        async with running(tmp_path, *flags, "--", line, "--", first.url, "--", "false") as wrapped:
            assert wrapped.url.endswith("/mcp/all")
            assert "env (" in wrapped.text and "127-0-0-1 (" in wrapped.text
            assert "false does not start" in wrapped.text
            async with python_host(wrapped.url) as host:
                async with asyncio.timeout(PATIENCE):
                    # A list does not wait for slow programs.
                    while not {"env_draw", "127-0-0-1_draw"} <= set(await host.tools()):
                        await asyncio.sleep(0.1)
                assert said(await host.call("127-0-0-1_digest_inline", data="aGk="))
            await wrapped.ended(signal.SIGINT)
    assert "mounts:" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said_"),
    [
        (["--", "sh", "-c", "echo first >&2; echo last >&2; exit 3"], "exit code 3.\n  first\n  last\n"),
        (["no-such-program-here"], "'no-such-program-here' was not found on PATH"),
        (
            ["no-such-program-here -y", "x"],
            """: write 'no-such-program-here' and its words without quotes: ["-y"].""",
        ),
        (["mcp.example.com/mcp"], " A URL begins with https://."),
        (["http://127.0.0.1:9/mcp"], "http://127.0.0.1:9/mcp cannot be used: "),
    ],
)
def test_a_server_that_does_not_start_is_one_sentence(
    arguments: list[str], said_: str, tmp_path: Path
) -> None:
    """With the last lines of its standard error; nothing is left in the folder."""
    ran = mcp_adapter(tmp_path, "wrap", "--port", str(free_port()), *arguments)
    assert ran.returncode == 1 and said_ in ran.stderr and "Traceback" not in ran.stderr
    assert ran.stdout == "" and list(tmp_path.iterdir()) == []


def secured(place: Path, token: str) -> Adapter:
    """Another adapter, which asks for a token."""
    more = {"core": {"auth": {"enabled": True, "token": token}}}
    return Adapter(place, {**settings(place, (FILES[0], FILES[1:])), **more})


async def test_a_url_that_needs_a_token_says_which_flag_gives_it(tmp_path: Path) -> None:
    """The header reaches the server; without it the sentence names the flag."""
    token = "a-token-of-sixteen-letters"
    async with secured(tmp_path, token) as front:
        port = str(free_port())
        ran = await asyncio.to_thread(mcp_adapter, tmp_path, "wrap", "--port", port, front.url)
        assert ran.returncode == 1 and "pass --header 'Authorization: Bearer …'" in ran.stderr, ran.stderr
        header = ["--header", f"Authorization: Bearer {token}"]
        async with running(tmp_path, front.url, "--port", "0", *header) as wrapped:
            assert "5 tools" in wrapped.text and token not in wrapped.text


def test_what_stands_in_the_way_is_said_before_the_start(tmp_path: Path) -> None:
    """A file that exists is not overwritten; an unknown name is refused with the nearest."""
    (tmp_path / "config.yaml").write_text("mine")
    port = ["--port", str(free_port())]
    ran = mcp_adapter(tmp_path, "wrap", *port, "--save", "config.yaml", "--", "true")
    assert ran.returncode == 1 and "config.yaml exists: use --force" in ran.stderr
    assert (tmp_path / "config.yaml").read_text() == "mine"
    ran = mcp_adapter(tmp_path, "wrap", *port, *HERE, "--consume", "digst:path", "--", *FILES)
    assert ran.returncode == 2 and "no tool digst; did you mean digest?" in ran.stderr
    for wrong in ([], ["--env", "NOT_SET_HERE", "--", "true"], ["--header", "x", "http://x/mcp"]):
        assert mcp_adapter(tmp_path, "wrap", *wrong).returncode == 2
