"""All Python calls of an exchange, of libraries too, where it comes and goes in pieces as over a real network.

The adapter is a process of its own, and ``sys.setprofile`` counts in the thread of its loop. The body of a request
comes in a packet behind its head, and the upstream's answer is an event stream in three writes: head, message, end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.file_tools import FORM, READS, form
from tests.edge.raw import Exchange, RawClient, RawUpstream, event, read_body
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.deep

COSTS = {
    "piped": 192,
    "guarded list": 284,
    "guarded call": 192,
    "consumer": 351,
    "staged": 326,
    "producer": 582,
    "hosted": 222,
    "upload": 386,
    "download": 156,
}
"""Python calls of one exchange, the least of ROUNDS. Whoever raises one says in the same commit why."""

WARM, ROUNDS = 4, 12

COUNTING = """
import sys, threading
calls = 0
def count(frame, what, argument):
    global calls
    calls += what == "call"
def tell():
    for _ in sys.stdin:
        print(calls, flush=True)
threading.Thread(target=tell, daemon=True).start()
sys.setprofile(count)
from adapter import cli
sys.exit(cli.run(["serve", "--config", sys.argv[1]]))
"""

WRITES = {"type": "artifact_producer", "tools": ["tool"], "output_path_argument": "output"}
TAKES = {**READS, "tools": ["tool"]}
CODE = "async def answer(payload, context):\n    return payload['inputs']\n"
GUARDED: dict[str, Any] = {"core": {"tool_definition_pinning": {"mode": "warn"}}}
HOSTED = {
    "upstream": {"transport": "hosted"},
    "tools": {"define": [{"name": "tool", "handler": "tools.py#answer"}]},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "piped": {},
    "guarded list": GUARDED,
    "guarded call": GUARDED,
    "consumer": {"server": {"adapters": [TAKES]}},
    "staged": {"server": {"stages": {"tool": {"limits": {"rate": {"window": 60, "max": 1_000_000}}}}}},
    "producer": {"server": {"adapters": [WRITES]}},
    "hosted": {"server": HOSTED},
    "upload": {"server": {"adapters": [TAKES]}},
    "download": {"core": {"allow_artifacts_download": True}, "server": {"adapters": [WRITES]}},
}


async def answering(exchange: Exchange) -> None:
    """Lists one tool; a call writes what it is asked to, and says so."""
    message: Any = exchange.message
    if exchange.head.method == "GET":
        return await exchange.answer(405, b"")
    if message["method"] == "tools/list":
        found: dict[str, Any] = {"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]}
    else:
        found = {"content": [{"type": "text", "text": "done"}]}
        if output := message["params"]["arguments"].get("output"):
            await asyncio.to_thread(Path(output).write_bytes, b"x" * 4096)
    told = event(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}))
    return await exchange.stream(told)


class CountedAdapter:
    """An adapter that says how many Python calls its loop has made."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port

    async def calls(self) -> int:
        """The number once it stands still."""
        assert self._process.stdin is not None and self._process.stdout is not None
        known, same = -1, 0
        while same < 3:
            self._process.stdin.write(b"\n")
            told = int(await self._process.stdout.readline())
            known, same = told, same + 1 if told == known else 0
            await asyncio.sleep(0.005)
        return known


@contextlib.asynccontextmanager
async def counted(place: Path, upstream: RawUpstream, more: dict[str, Any]) -> AsyncIterator[CountedAdapter]:
    port = free_port()
    server = {"id": "raw", "mount_path": "/mcp", "upstream": {"url": upstream.url}, **more.get("server", {})}
    core = {"port": port, "log_level": "error", "upstream_ping": {"enabled": False}, **more.get("core", {})}
    settings = {"core": core, "storage": {"root": str(place / "data")}, "servers": [server]}
    (place / "config.yaml").write_text(json.dumps(settings))
    (place / "tools.py").write_text(CODE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COUNTING, str(place / "config.yaml")),
        cwd=place,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: listens(port), 60)
        yield CountedAdapter(process, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def listens(port: int) -> bool:
    try:
        async with RawClient(port) as client:
            head, _ = await client.request("GET", path="/readyz")
            return head.status == 200
    except ConnectionError:
        return False


async def in_pieces(
    adapter: CountedAdapter, client: RawClient, body: bytes, path: str = "/mcp", **fields: str
) -> bytes:
    """Send the head of a request, and its body when that was read; the body of the answer."""
    await client.send("POST", b"", path, content_length=str(len(body)), **fields)
    await adapter.calls()
    await client.send_more(body)
    head = await client.head()
    assert head.status == 200, head
    return await read_body(client.reader, head)


def asked(method: str, arguments: dict[str, Any]) -> bytes:
    params = {} if method == "tools/list" else {"name": "tool", "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


@pytest.mark.parametrize("road", COSTS)
async def test_an_exchange_in_pieces_costs_no_more_than_is_known(
    tmp_path: Path, road: str, record_property: Callable[[str, object], None]
) -> None:
    """Also the loop, the streams and the libraries below count, which a change of ours may ask for more often."""
    upstream = RawUpstream(answering)
    await upstream.start()
    try:
        async with counted(tmp_path, upstream, SETTINGS[road]) as adapter, RawClient(adapter.port) as client:
            await client.initialize()
            await in_pieces(adapter, client, asked("tools/list", {}))
            arguments: dict[str, Any] = {"output": "out.bin"} if road in ("producer", "download") else {}
            if road == "consumer":
                _, answer = await client.request("POST", form(b"hello"), "/upload/raw", content_type=FORM)
                arguments = {"path": orjson.loads(answer)["upload_handle"]}
            _, told = await client.request("POST", asked("tools/call", arguments))
            link = "/" + told.rpartition(b"download_url")[2].partition(b'"}')[0].decode().split("/", 3)[-1]

            async def go() -> bytes:
                if road == "download":
                    return (await client.request("GET", path=link))[1]
                if road == "upload":
                    return await in_pieces(
                        adapter, client, form(b"x" * 4096), "/upload/raw", content_type=FORM
                    )
                method = "tools/list" if road == "guarded list" else "tools/call"
                return await in_pieces(adapter, client, asked(method, arguments))

            calls = await least(adapter, go)
    finally:
        await upstream.stop()
    record_property("whole road", road)
    record_property("python_calls", calls)
    assert calls <= COSTS[road]


async def least(adapter: CountedAdapter, go: Callable[[], Awaitable[bytes]]) -> int:
    """The fewest calls of a round; some meet a timer."""
    for _ in range(WARM):
        assert b'"isError":true' not in await go()
    found = []
    for _ in range(ROUNDS):
        before = await adapter.calls()
        await go()
        found.append(await adapter.calls() - before)
    return min(found)
