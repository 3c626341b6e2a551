"""Attacks by way of files: on the disk, in forms, by names and in rounds. A bystander must not notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.e2e.processes import Adapter, adapter
from tests.edge.file_tools import FORM, call, form, rpc, text_of
from tests.edge.raw import Exchange, RawClient, RawUpstream, result
from tests.waiting import until

pytestmark = pytest.mark.e2e

MIB = 1 << 20
TIB = 1 << 40

ADAPTERS = [
    {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"},
    {"type": "artifact_producer", "tools": ["write", "ask"], "output_path_argument": "filename"},
]

Tool = Callable[[Path], Awaitable[None] | None]
"""What the upstream does at the path that it was told to write to."""


@asynccontextmanager
async def playing(tool: Tool | None = None) -> AsyncIterator[str]:
    """The URL of an upstream whose ``write`` is that tool, and whose ``ask`` asks for ever."""
    asked = iter(range(1 << 30))

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message.get("method") != "tools/call":
            await exchange.json(
                orjson.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {"tools": []}})
            )
            return
        number, params = message["id"], message["params"]
        if params["name"] == "ask":
            state = params["arguments"].get("state", "") + str(next(asked))
            answer = {"resultType": "input_required", "inputRequests": {}, "requestState": state}
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": answer}))
            return
        if tool is not None and "filename" in params["arguments"]:
            work = tool(Path(params["arguments"]["filename"]))
            if work is not None:
                await work
        await exchange.json(result(number, "done"))

    async with RawUpstream(script) as upstream:
        yield upstream.url


@asynccontextmanager
async def scene(place: Path, tool: Tool | None = None, **sections: Any) -> AsyncIterator[Arena]:
    """The arena with that upstream."""
    async with playing(tool) as url, attacked(place, url, server={"adapters": ADAPTERS}, **sections) as arena:
        yield arena


@asynccontextmanager
async def attacker(arena: Arena) -> AsyncIterator[RawClient]:
    """A client with a session at the attacked server."""
    async with arena.client() as client:
        await client.initialize()
        yield client


def stored(place: Path) -> list[Path]:
    """Files that lie in the store, whatever they are."""
    # A folder may go while it is looked through, which pathlib does not take.
    return [
        Path(folder, name) for folder, _, names in os.walk(place / "data" / "artifacts") for name in names
    ]


# --- on the disk ----------------------------------------------------------------------------------------------


def sparse(path: Path) -> None:
    """A file that takes no room and would take an hour to read."""
    path.touch()
    os.truncate(path, TIB)


async def test_sparse_tebibyte_is_refused_by_its_size(tmp_path: Path) -> None:
    """At once, in a sentence that names the setting, many times at once, and its bytes go."""
    async with scene(tmp_path, sparse) as arena, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(attacker(arena)) for _ in range(16)]
        before = arena.cpu_seconds()
        for _ in range(8):
            async with asyncio.timeout(20):
                for answer in await asyncio.gather(*(call(client, "write", {}) for client in clients)):
                    assert "artifacts.max_file_bytes" in answer["_meta"]["artifact_error"]
        assert arena.cpu_seconds() - before < 5
        assert stored(tmp_path) == []


async def test_reading_stops_when_the_client_leaves_or_the_time_is_over(tmp_path: Path) -> None:
    """Where the operator allows a tebibyte: whoever leaves is not worked for, and who stays waits no longer than a call
    may take."""
    sections = {
        "artifacts": {"max_file_bytes": 2 * TIB},
        "core": {"defaults": {"tool_call_timeout_seconds": 2}},
    }
    async with scene(tmp_path, sparse, **sections) as arena:
        for _ in range(4):
            async with attacker(arena) as client:
                await client.send("POST", CALL)
                await until(lambda: stored(tmp_path))
                await asyncio.sleep(0.2)
            await until(lambda: not (stored(tmp_path)))
        await settled(arena)
        async with attacker(arena) as client, asyncio.timeout(10):
            answer = await call(client, "write", {})
            assert "core.defaults.tool_call_timeout_seconds" in answer["_meta"]["artifact_error"]
        await settled(arena)


CALL = orjson.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write", "arguments": {}}}
)


async def settled(arena: Arena) -> None:
    """Returns when the adapter does nothing for the attacker any more; the bystander needs a little."""
    async with asyncio.timeout(10):
        while True:
            before = arena.cpu_seconds()
            await asyncio.sleep(0.5)
            if arena.cpu_seconds() - before < 0.35:
                return


async def test_stop_does_not_wait_for_a_file_to_be_read(tmp_path: Path) -> None:
    """The adapter ends within its grace while a tebibyte is read."""
    core = {"shutdown_grace_seconds": 0.5}
    async with (
        playing(sparse) as url,
        adapter(tmp_path, url, adapters=ADAPTERS, artifacts={"max_file_bytes": 2 * TIB}, core=core) as front,
        RawClient(front.port) as client,
    ):
        await client.initialize()
        await client.send("POST", CALL)
        await until(lambda: stored(tmp_path))
        assert front.running is not None
        front.running.process.terminate()
        async with asyncio.timeout(20):
            assert await front.running.process.wait() == 0


async def test_tool_that_never_stops_writing_is_read_to_the_cap(tmp_path: Path) -> None:
    """And not again and again; meanwhile it may write on."""
    over = threading.Event()

    def write_on(path: Path) -> None:
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while not over.wait(0.004):
                # Room on the disk is not what is tried here, so most of it are holes.
                file.seek(MIB, os.SEEK_END)
                file.write(b"x")

    async def begin(path: Path) -> None:
        threading.Thread(target=write_on, args=(path,), daemon=True).start()
        await until(lambda: not (not path.exists() or path.stat().st_size < 64 * MIB))

    try:
        async with scene(tmp_path, begin, artifacts={"max_file_bytes": 256 * MIB}) as arena:
            for _ in range(3):
                async with attacker(arena) as client, asyncio.timeout(20):
                    meta = (await call(client, "write", {}))["_meta"]
                # It may have been the tool's own at one moment, as long as it was below the cap.
                assert "artifact_error" in meta or meta["artifact"]["size_bytes"] <= 256 * MIB
    finally:
        over.set()


KINDS = ("pipe", "device", "socket", "link", "directory")


def make(kind: str, path: Path, secret: Path) -> None:
    """Put something there that is no file of the tool's."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                # Its name would be too long as a path.
                here = os.open(path.parent, os.O_PATH)
                bound.bind(f"/proc/self/fd/{here}/{path.name}")
                os.close(here)
        case "link":
            path.symlink_to(secret)
        case "directory":
            path.mkdir()


async def test_what_is_swapped_in_while_it_is_captured_is_no_file(tmp_path: Path) -> None:
    """Nothing waits at a pipe or reads a device without end, and nothing of another file comes out."""
    secret = tmp_path / "secret.txt"
    secret.write_bytes(b"secret")
    kind, over = "", threading.Event()

    def swap(path: Path, kind: str, over: threading.Event) -> None:
        other = path.with_name("other")
        while not over.is_set():
            with contextlib.suppress(OSError):
                make(kind, other, secret)
                if kind == "directory":
                    path.unlink()
                other.rename(path)
                if kind == "directory":
                    path.rmdir()
                other.write_bytes(b"honest")
                other.replace(path)

    def begin(path: Path) -> None:
        path.write_bytes(b"honest" * 1000)
        threading.Thread(target=swap, args=(path, kind, over), daemon=True).start()

    async with scene(tmp_path, begin) as arena, attacker(arena) as client:
        for kind in 20 * KINDS:
            over = threading.Event()
            try:
                async with asyncio.timeout(20):
                    meta = (await call(client, "write", {}))["_meta"]
                if "artifact" not in meta:
                    assert "could not be captured" in meta["artifact_error"], kind
                    continue
                read = await rpc(client, "resources/read", {"uri": meta["artifact"]["artifact_uri"]})
                contents = read.get("contents", [{"text": ""}])[0]["text"]
                assert contents.replace("honest", "") == "", kind
            finally:
                over.set()


# --- in forms -------------------------------------------------------------------------------------------------


async def refused(client: RawClient, body: bytes) -> tuple[int, str]:
    """Status and sentence of an upload into the client's session."""
    head, answer = await client.request("POST", body, "/upload/upstream", content_type=FORM)
    return head.status, orjson.loads(answer).get("detail", "")


def part(head: bytes, content: bytes = b"x") -> bytes:
    return b"--b\r\n" + head + b"\r\n\r\n" + content + b"\r\n"


NAMED = b'Content-Disposition: form-data; name="file"; filename="%b"'


async def test_ten_thousand_parts_are_too_many_files(tmp_path: Path) -> None:
    """413 at the first beyond ``uploads.max_files``, all rolled back; parts that are no files are as bounded."""
    files = b"".join(part(NAMED % b"a%d" % number) for number in range(10_000)) + b"--b--\r\n"
    fields = b"".join(part(b'Content-Disposition: form-data; name="n"') for _ in range(10_000)) + b"--b--\r\n"
    digests = b"".join(part(b'Content-Disposition: form-data; name="sha256"') for _ in range(30_000))
    async with scene(tmp_path, uploads={"max_files": 100}) as arena:
        for body, status in ((files, 413), (fields, 400), (digests + b"--b--\r\n", 400)):
            async with attacker(arena) as client:
                assert (await refused(client, body))[0] == status
        assert list((tmp_path / "data" / "uploads").rglob("*")) == []


async def test_head_of_a_part_has_an_end(tmp_path: Path) -> None:
    """Megabytes of a field, of its name, of a file's name, of parameters or of a preamble: 400, and no time is lost."""
    heads = [
        b"X-Long: " + b"x" * 8 * MIB,
        b"X" * 8 * MIB + b": x",
        NAMED % (b"n" * 8 * MIB),
        b'Content-Disposition: form-data; name="file"' + b'; a="\\"' * MIB,
        b"Content-Disposition: form-data" + b";" * 8 * MIB,
        b"\r\n".join(b"X-%d: x" % number for number in range(100_000)),
    ]
    bodies = [part(head) + b"--b--\r\n" for head in heads]
    bodies += [
        b"\n--" * 3 * MIB,
        b"--b" * 3 * MIB,
        b"\r\n--bb" * MIB,
        part(NAMED % b"a", b"\r\n--" * 2 * MIB)[:-9],
    ]
    async with scene(tmp_path) as arena:
        for body in bodies:
            async with attacker(arena) as client, asyncio.timeout(10):
                assert (await refused(client, body))[0] == 400, body[:60]
        assert list((tmp_path / "data" / "uploads").rglob("*")) == []


NAMES = [
    "../../../etc/passwd",
    "..\\..\\boot.ini",
    ".",
    "..",
    "/",
    "\\",
    "~root/.ssh/authorized_keys",
    "C:\\Windows\\win.ini",
    "\\\\host\\share\\file",
    "file:///etc/passwd",
    "con",
    "NUL.txt",
    "a\u202egpj.exe",
    "名前.txt",
    "e\u0301.txt",
    "\u200b.txt",
    ".htaccess",
    "-rf",
    "$(reboot)",
    "`reboot`",
    "a;b|c&d",
    "<script>alert(1)</script>.html",
    "a\tb\x01c",
    " ",
    "a" * 4000,
    "😀" * 900,
    "%2e%2e%2f",
    "%00.txt",
    "a%0D%0ASet-Cookie: x=1.txt",
]


async def test_names_are_only_names(tmp_path: Path) -> None:
    """As upload and as what a caller wants a tool's file to be called: it lies in its own directory, and comes back."""
    told: list[Path] = []

    def write(path: Path) -> None:
        told.append(path)
        path.write_bytes(b"honest")

    root = tmp_path / "data"
    sections: dict[str, Any] = {"core": {"allow_artifacts_download": True}}
    async with scene(tmp_path, write, **sections) as arena, attacker(arena) as client:
        for name in NAMES:
            head, answer = await client.request(
                "POST", form(b"hello", name.replace('"', "%22")), "/upload/upstream", content_type=FORM
            )
            assert head.status == 200, (name, answer)
            handle = orjson.loads(answer)["upload_handle"]
            assert text_of(await call(client, "read", {"path": handle})) == "done"
            told_of = (await call(client, "write", {"filename": name}))["_meta"]["artifact"]
            assert (
                told[-1].resolve().is_relative_to(root / "artifacts")
                and told[-1].parent.name == told_of["artifact_id"]
            )
            link = "/artifacts/" + told_of["download_url"].partition("/artifacts/")[2]
            head, content = await client.request("GET", b"", link)
            assert (head.status, content) == (200, b"honest")
            assert head["content-disposition"].startswith("attachment; ") and head.get("set-cookie") is None
        for path in [*(root / "uploads").rglob("*"), *(root / "artifacts").rglob("*")]:
            copied = (path.parents[1] / path.name).is_file()
            assert path.is_dir() or len(path.relative_to(root).parts) == (5 if copied else 4)


# --- in rounds ------------------------------------------------------------------------------------------------

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


async def asking(client: RawClient, number: int, arguments: Any, state: str | None = None) -> Any:
    """One round of a modern call of ``ask``."""
    params: dict[str, Any] = {"name": "ask", "arguments": arguments, "_meta": META}
    if state is not None:
        params |= {"requestState": state, "inputResponses": {}}
    body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "ask"}
    _, answer = await client.request("POST", body, **fields)
    return orjson.loads(answer)


async def test_rounds_without_end_are_bounded(tmp_path: Path) -> None:
    """A thousand calls that nobody goes on with, one that is asked a thousand times, and states of a mebibyte: as many
    places stay as ``sessions.max_rounds`` allows, and memory does not grow."""
    async with scene(tmp_path, sessions={"max_rounds": 20}) as arena, arena.client() as client:
        before = arena.resident_bytes()
        for number in range(1000):
            assert "result" in await asking(client, number, {"n": number})
        state = None
        for number in range(1000):
            state = (await asking(client, number, {}, state))["result"]["requestState"]
        for number in range(20):
            assert "result" in await asking(client, number, {"state": "s" * MIB, "n": number})
        assert len(list((tmp_path / "data" / "artifacts").glob("*/*"))) <= 20
        assert arena.resident_bytes() - before < 64 * MIB


async def test_kill_9_in_the_midst_of_rounds_leaves_what_can_be_gone_on_with(tmp_path: Path) -> None:
    """Whenever it comes: each state that a client was given leads to the place that was told with it, and nothing else
    stays for long."""
    sections: dict[str, Any] = {
        "core": {"cleanup_interval_seconds": 0.2},
        "storage": {"root": str(tmp_path / "data"), "orphan_sweeper_grace_seconds": 0.2},
        "sessions": {"round_ttl_seconds": 10},
    }
    given: dict[int, str] = {}

    async def play(front: Adapter, numbers: range) -> None:
        with contextlib.suppress(OSError, EOFError):
            async with RawClient(front.port) as client:
                for number in numbers:
                    answer = await asking(client, number, {"n": number})
                    given[number] = answer["result"]["requestState"]

    async with playing() as url, adapter(tmp_path, url, adapters=ADAPTERS, **sections) as front:
        at_work = [asyncio.ensure_future(play(front, range(start, start + 999))) for start in (0, 1000, 2000)]
        await until(lambda: len(given) >= 60)
        await front.kill()
        await asyncio.gather(*at_work)
        places = set((tmp_path / "data" / "artifacts").glob("*/*"))
        await front.start()
        async with RawClient(front.port) as client:
            for number, state in list(given.items())[-20:]:
                assert "result" in await asking(client, number, {"n": number}, state)
                assert set((tmp_path / "data" / "artifacts").glob("*/*")) <= places
        await until(lambda: not (list((tmp_path / "data" / "artifacts").glob("*/*"))), 30)
