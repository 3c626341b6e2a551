"""How long the adapter's loop computes in one go: ``python -m tests.bench.turns [--only WORDS] [--rounds N]``.

A turn is what the loop does from one wait for its sockets to the next. For each kind of load it prints the longest
turn, of which only the time counts for which the loop's own thread computed, so that a busy machine does not change it;
and what a bystander waited meanwhile, which a thread that keeps the interpreter to itself makes longer too.

``python -m tests.bench.turns --adapter FILE ARGUMENTS…`` is the adapter that keeps its longest turn in FILE;
``--upstream`` and ``--flood`` are the servers behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import mmap
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop
import uvloop.loop

from tests.bench.files import MIB
from tests.bench.fronts import (
    Running,
    adapter_settings,
    adapter_with,
    end_tidily_when_terminated,
    free_port,
    upstream_running,
)
from tests.bench.load import Address, Client, LoadFailed
from tests.bench.stalls import watched
from tests.bench.tool_lists import GUARDED, definitions
from tests.bench.transfers import TIMEOUT
from tests.bench.upstream import BIG_TEXT, PROTOCOL_VERSION, TOOLS, UpstreamConnection, json_answer
from tests.bench.upstream import serve as serve_upstream

MUST = 50
"""Milliseconds that nothing may hold the loop for."""

LINES = 300_000
LISTED = 5_000
SMALL = b"x" * 4096
TEXTS = {"big": BIG_TEXT, "letters": BIG_TEXT, "log": "wrote artifacts of step 17; " * (MIB // 28)}
READ = ("letters", "log")
"""Tools whose answers a stage reads: a text without a line end, and one that names a directory of the store often."""


class LongestTurn:
    """The seconds of the longest turn since they were taken last, in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._seconds = memoryview(mmap.mmap(file.fileno(), 8)).cast("d")

    def take(self) -> float:
        """Return them, and begin anew."""
        longest, self._seconds[0] = self._seconds[0], 0.0
        return float(longest)

    async def around(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run ``main``, and note the turns of its loop, which is one of uvloop's."""
        seconds, before = self._seconds, time.thread_time()

        def note(_: object) -> None:
            nonlocal before
            now = time.thread_time()
            if now - before > seconds[0]:
                seconds[0] = now - before
            before = now

        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        loops: Any = uvloop.loop
        loop = pointer(loops.libuv_get_loop_t_ptr(asyncio.get_running_loop()), None)
        # libuv calls it each time before it waits for sockets.
        called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(note)
        library, handle = ctypes.CDLL(uvloop.loop.__file__), ctypes.create_string_buffer(1024)
        library.uv_prepare_init(ctypes.c_void_p(loop), handle)
        library.uv_prepare_start(handle, called)
        try:
            return await main
        finally:
            library.uv_prepare_stop(handle)
            library.uv_close(handle, None)
            await asyncio.sleep(0)


def serve(path: Path, arguments: Sequence[str]) -> int:
    """The command ``mcp-adapter`` on a loop whose longest turn is kept in the file."""
    from adapter import cli

    run, turns = uvloop.run, LongestTurn(path)
    uvloop.run = lambda main: run(turns.around(main))  # type: ignore[assignment, misc]
    return cli.run(arguments)


def flood() -> None:
    """A server on standard input and output that says nothing with each call, 300,000 times."""
    for line in sys.stdin.buffer:
        message = orjson.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "tools/call":
            sys.stdout.buffer.write(b"{\n" * LINES)
        info = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "f"},
        }
        told = {"initialize": info, "tools/list": {"tools": TOOLS}}
        result = told.get(message["method"], {"content": []})
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


class LongAnswers(UpstreamConnection):
    """The bench's upstream with texts of ``mebibytes``, and with many tools at ``/listed``."""

    def _answer(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "tools/list":
            tools = definitions(LISTED) if self._url == b"/listed" else [*TOOLS, *map(_reading, READ)]
            self._write(json_answer(message["id"], orjson.dumps({"tools": tools})))
        elif method == "tools/call" and params["name"] in TEXTS:
            self._write(json_answer(message["id"], _long_result(params["name"], **params["arguments"])))
        else:
            super()._answer(message)


def _reading(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"The benchmark's {name}.", "inputSchema": {"type": "object"}}


@lru_cache(4)
def _long_result(tool: str, mebibytes: int) -> bytes:
    return orjson.dumps({"content": [{"type": "text", "text": TEXTS[tool] * mebibytes}]})


# --- the loads ------------------------------------------------------------------------------------------------


class Stand(NamedTuple):
    """The adapter that is loaded, and its longest turn."""

    front: Running
    turns: LongestTurn

    def at(self, server: str) -> Address:
        return self.front.address._replace(path=f"/mcp/{server}")


Work = Callable[[], Awaitable[object]]
Load = Callable[[Stand, int], Awaitable[Work]]
"""Makes everything ready for a number of units at once; what it returns does them."""


async def _clients(stand: Stand, count: int) -> list[Client]:
    clients = []
    for _ in range(count):
        clients.append(client := await Client.connect(stand.at("bench")))
        await client.initialize()
    return clients


async def calls(stand: Stand, count: int) -> Work:
    clients = await _clients(stand, count)
    return lambda: asyncio.gather(*(client.call() for client in clients))


async def uploads(stand: Stand, count: int) -> Work:
    clients = await _clients(stand, count)
    return lambda: asyncio.gather(*(client.upload(SMALL) for client in clients))


async def slow_uploads(stand: Stand, count: int) -> Work:
    """Each body comes in forty pieces, all of them at the same moments."""
    clients = await _clients(stand, count)
    opened = [await asyncio.open_connection("127.0.0.1", stand.front.address.port) for _ in clients]
    forms = [client.form(SMALL) for client in clients]

    async def work() -> None:
        for (_, writer), (head, _) in zip(opened, forms, strict=True):
            writer.write(head)
        step = len(forms[0][1]) // 40 + 1
        for at in range(0, len(forms[0][1]), step):
            for (_, writer), (_, body) in zip(opened, forms, strict=True):
                writer.write(body[at : at + step])
            await asyncio.sleep(0.05)
        for reader, _ in opened:
            if not (await reader.readline()).startswith(b"HTTP/1.1 2"):
                raise LoadFailed("A slow upload failed.")

    return work


def _answers(tool: str, mebibytes: int) -> Load:
    async def ready(stand: Stand, count: int) -> Work:
        clients = await _clients(stand, count)
        threads = ThreadPoolExecutor(count)
        loop = asyncio.get_running_loop()
        work = [partial(_brought, stand.at("bench"), each.session, tool, mebibytes) for each in clients]
        return lambda: asyncio.gather(*(loop.run_in_executor(threads, each) for each in work))

    return ready


def _brought(address: Address, session: str, tool: str, mebibytes: int) -> None:
    """Call the tool and throw its answer away, as fast as it comes."""
    params = {"name": tool, "arguments": {"mebibytes": mebibytes}}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST {address.path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nConnection: close\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {address.bearer}\r\nMcp-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", address.port), TIMEOUT) as connection:
        connection.sendall(head.encode() + body)
        size, block = 0, bytearray(MIB)
        while got := connection.recv_into(block):
            if not size and not block.startswith(b"HTTP/1.1 200"):
                raise LoadFailed(f"{tool} was answered {bytes(block[:got])!r}")
            size += got
    if size < (mebibytes - 1) * MIB:
        raise LoadFailed(f"{tool} brought {size} bytes: {bytes(block[:300])!r}")


async def first_list(stand: Stand, _: int) -> Work:
    client = await Client.connect(stand.at("listed"))

    async def work() -> None:
        await client.initialize()
        await client.list()

    return work


async def flooded(stand: Stand, _: int) -> Work:
    client = await Client.connect(stand.at("flood"))
    await client.initialize()
    return client.call


class Scenario(NamedTuple):
    name: str
    units: int
    load: Load


SCENARIOS = (
    Scenario("1,000 calls at once", 1000, calls),
    Scenario("500 uploads at once", 500, uploads),
    Scenario("400 slow uploads", 400, slow_uploads),
    Scenario("100 answers of 32 MiB", 100, _answers("big", 32)),
    Scenario("32 MiB read by a stage", 1, _answers("letters", 32)),
    Scenario("48 MiB read by a stage", 1, _answers("letters", 47)),
    Scenario("32 MiB log that names a store", 1, _answers("log", 32)),
    Scenario("first list of 5,000 tools", 1, first_list),
    Scenario("300,000 lines of a program", 1, flooded),
)


async def measured(names: Sequence[str], rounds: int) -> None:
    """Print a row for each scenario: the longest of all rounds."""
    end_tidily_when_terminated()
    print(f"{'longest, ms':32}{f'own turn (must: {MUST:.0f})':>20}{'bystander, p99':>16}{'longest':>9}")
    for scenario in SCENARIOS:
        if names and not any(name in scenario.name for name in names):
            continue
        longest, waits, p99 = 0.0, 0.0, 0.0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="bench-") as place:
                async with AsyncExitStack() as stack:
                    stand = await _stand(stack, Path(place))
                    work = await scenario.load(stand, scenario.units)
                    stand.turns.take()
                    async with watched(stand.front.address.port) as seen:
                        await work()
                longest = max(longest, stand.turns.take())
                waits, p99 = max(waits, seen.longest), max(p99, seen.p99)
        print(f"{scenario.name:32}{longest * 1e3:20.1f}{p99 * 1e3:16.1f}{waits * 1e3:9.1f}", flush=True)


async def _stand(stack: AsyncExitStack, place: Path) -> Stand:
    upstream = await stack.enter_async_context(upstream_running(place, "tests.bench.turns", "--upstream"))
    address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
    locator = {"mode": "regex", "every": True}
    producer: dict[str, object] = {
        "type": "artifact_producer",
        "tools": list(READ),
        "output_locator": locator,
    }
    consumer: dict[str, object] = {
        "type": "upload_consumer",
        "tools": ["take"],
        "file_path_argument": "path",
    }
    settings: dict[str, Any] = adapter_settings(
        upstream, address.port, address.bearer, place, [consumer, producer]
    )
    settings["core"] |= {**GUARDED, "upstream": {"max_connections": 2048}}
    program = {
        "transport": "stdio",
        "command": sys.executable,
        "args": ["-m", "tests.bench.turns", "--flood"],
    }
    settings["servers"] += [
        {
            "id": "listed",
            "mount_path": "/mcp/listed",
            "upstream": {"url": f"http://127.0.0.1:{upstream}/listed"},
        },
        {"id": "flood", "mount_path": "/mcp/flood", "upstream": program},
    ]
    file = place / "longest-turn"
    turns = LongestTurn(file)
    argv = [sys.executable, "-m", "tests.bench.turns", "--adapter", str(file)]
    return Stand(await stack.enter_async_context(adapter_with(settings, address, place, argv)), turns)


def main() -> int:
    if sys.argv[1:2] == ["--adapter"]:
        return serve(Path(sys.argv[2]), sys.argv[3:])
    if sys.argv[1:2] == ["--flood"]:
        flood()
        return 0
    if sys.argv[1:2] == ["--upstream"]:
        uvloop.run(serve_upstream(LongAnswers))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    uvloop.run(measured(given.only, given.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
