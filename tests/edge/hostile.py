"""An adapter between hostile clients and a hostile upstream, with something to steal, and what must never happen."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from adapter.app.file_keeping import KeptFiles
from adapter.rules.access.sessions import session_key
from adapter.rules.files.file_records import FileKind
from tests.edge.conftest import Adapter, StartAdapter, StartUpstream, done
from tests.edge.raw import Exchange, Head, RawClient, RawUpstream, Script

ROOT = "treasury-5f1c"
"""Part of the store's path, in letters that no way of writing a path changes."""

LARGEST = 32 * 1024
"""Bytes of a file that the adapter of these tests takes."""

QUOTA = 16 * LARGEST

SERVER = {
    "adapters": [
        {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"},
        {
            "type": "artifact_producer",
            "tools": ["write"],
            "output_path_argument": "filename",
            "output_locator": {"mode": "regex"},
        },
        {"type": "artifact_producer", "tools": ["name"], "output_locator": {"mode": "regex"}},
        {
            "type": "artifact_producer",
            "tools": ["point"],
            "output_locator": {"mode": "structured", "output_path_key": "file.path"},
        },
        {"type": "artifact_producer", "tools": ["hold"], "output_locator": {"mode": "embedded"}},
    ]
}

SETTINGS: dict[str, Any] = {
    "core": {"allow_artifacts_download": True, "access_log": True},
    "uploads": {"max_file_bytes": LARGEST, "max_files": 6, "stall_timeout_seconds": 2},
    "sessions": {"max_total_session_size": QUOTA},
}


async def write_honestly(exchange: Exchange) -> None:
    """Writes "honest" where the call says, where it says so."""
    arguments = arguments_of(exchange)
    if "filename" in arguments:
        Path(arguments["filename"]).write_text("honest")
    await done(exchange)


def arguments_of(exchange: Exchange) -> dict[str, Any]:
    """What a tool is called with; empty for every other exchange."""
    params = exchange.message.get("params")
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return arguments if isinstance(arguments, dict) else {}


@dataclass
class Victim:
    """Somebody else, whose upload and artifact are worth stealing."""

    scope: str
    upload: str
    artifact: str
    download: str
    paths: list[Path]


@dataclass
class Scene:
    """``play`` is what the upstream does. ``answers`` counts what clients were told, by HTTP status; of those from
    500 only ``excusable`` may occur.
    """

    front: Adapter
    up: RawUpstream
    root: Path
    play: Script = write_honestly
    secrets: list[bytes] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    excusable: tuple[int, ...] = (507,)

    @property
    def state(self) -> Path:
        return self.front.app.settings.state_path

    def scope_of(self, client: RawClient) -> str:
        assert client.session is not None
        return self.front.app.files.scopes.of_session_key(session_key(client.session)).id

    def check(self, answer: bytes) -> None:
        """Nothing in it is another's or tells where the store lies."""
        assert ROOT.encode() not in answer.lower(), answer[:2000]
        for secret in self.secrets:
            assert secret not in answer, answer[:2000]

    def check_status(self, status: int) -> None:
        self.answers[status] += 1
        assert status < 500 or status in self.excusable, status

    async def ask(
        self, client: RawClient, method: str, body: bytes = b"", path: str = "/mcp", **fields: str
    ) -> tuple[Head, bytes]:
        """A request whose answer is checked."""
        head, answer = await client.request(method, body, path, **fields)
        self.check(repr(head).encode() + answer)
        self.check_status(head.status)
        return head, answer

    async def call(self, client: RawClient, tool: str, arguments: object) -> dict[str, Any]:
        """A tool call whose answer is checked; the JSON-RPC response. Its error, if any, is none of ours."""
        response = await self.rpc(client, "tools/call", {"name": tool, "arguments": arguments})
        assert response.get("error", {}).get("code") != -32603, response
        return response

    async def rpc(self, client: RawClient, method: str, params: object) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, answer = await self.ask(client, "POST", json.dumps(message).encode())
        response = json.loads(answer)  # reads lone surrogates too, which orjson refuses
        assert isinstance(response, dict)
        return response

    async def upload(self, client: RawClient, content: bytes, name: str = "mine.txt") -> dict[str, Any]:
        """An upload as it should be."""
        assert client.session is not None
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--b--\r\n' % (
            name.encode(),
            content,
        )
        head, answer = await self.ask(
            client, "POST", body, "/upload/raw", content_type="multipart/form-data; boundary=b"
        )
        assert head.status == 200, answer
        read = orjson.loads(answer)
        assert isinstance(read, dict)
        return read

    async def captured(self, client: RawClient, response: dict[str, Any]) -> bytes | None:
        """What was captured of a call: downloaded, which is checked too. None where nothing was."""
        artifact = (response.get("result") or {}).get("_meta", {}).get("artifact")
        if artifact is None:
            return None
        base, slash, path = artifact["download_url"].partition("/artifacts/")
        head, content = await self.ask(client, "GET", b"", slash + path)
        assert base and head.status == 200
        return content

    async def robbed(self) -> Victim:
        """A session of somebody else, with secrets of its own in an upload and an artifact."""
        secret = f"CANARY{os.urandom(16).hex()}".encode()
        async with self.front.client() as client:
            await client.initialize()
            scope = self.scope_of(client)
            handle = (await self.upload(client, b"of an upload: " + secret))["upload_handle"]
            written: list[Path] = []

            async def write(exchange: Exchange) -> None:
                written.append(Path(arguments_of(exchange)["filename"]))
                written[0].write_bytes(b"of an artifact: " + secret)
                await done(exchange)

            self.play, before = write, self.play
            artifact = (await self.call(client, "write", {}))["result"]["_meta"]["artifact"]
            self.play = before
        (staged,) = (self.root / "uploads" / scope).rglob("mine.txt")
        self.secrets += [secret, b"root:x:0:0", b"SQLite format 3"]
        download = "/artifacts/" + artifact["download_url"].partition("/artifacts/")[2]
        return Victim(scope, handle, artifact["artifact_uri"], download, [staged, *written])

    # --- what is left -----------------------------------------------------------------------------------------

    def open_files(self) -> Counter[str]:
        """What is open below the root, but for the state store's connections."""
        found: Counter[str] = Counter()
        for number in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(number.readlink())
                if ROOT in target and not target.startswith(str(self.state)):
                    found[target] += 1
        return found

    def staged(self) -> list[Path]:
        return [path for path in (self.root / "staging").rglob("*") if path.is_file()]

    def on_disk(self) -> Counter[str]:
        """Paths of uploads and artifacts; whatever is no directory counts."""
        areas = (self.root / "uploads", self.root / "artifacts")
        return Counter(str(path) for area in areas for path in area.rglob("*") if not path.is_dir())

    async def swept(self) -> Counter[str]:
        """What no record knows and the cleanup leaves all the same."""
        # What has just changed is not old yet, by the clock of the file system.
        files = self.front.app.files
        assert isinstance(files, KeptFiles)
        async with asyncio.timeout(20):
            while left := self.on_disk() - await self.recorded():
                await files.tidy_own()
                await files.tidy()
                await asyncio.sleep(0.01)
        return left

    async def recorded(self) -> Counter[str]:
        """The files that records know, and the copies that tools were given of them."""
        filing = self.front.app.files
        assert isinstance(filing, KeptFiles)
        found: Counter[str] = Counter()
        for area in (self.root / "uploads", self.root / "artifacts"):
            kind = FileKind.UPLOAD if area.name == "uploads" else FileKind.ARTIFACT
            for scope in area.iterdir():
                for record in await filing.registry.list(scope.name, kind):
                    path = Path(filing.files.path_of(record.place))
                    copies = (each / path.name for each in path.parent.iterdir() if each.is_dir())
                    found.update(str(each) for each in (path, *copies))
        return found


def tasks_at_work() -> int:
    """Tasks but for those that only read from a connection that is kept."""
    idle = ("RawUpstream._serve", "StreamReaderProtocol")
    return sum(not any(name in repr(task) for name in idle) for task in asyncio.all_tasks())


async def serves_as_ever(scene: Scene) -> None:
    """A new client uploads, has its file read, gets one written, and downloads it."""
    scene.play = write_honestly
    async with scene.front.client() as client:
        await client.initialize()
        handle = (await scene.upload(client, b"as ever"))["upload_handle"]
        assert (await scene.call(client, "read", {"path": handle}))["result"]["content"][0]["text"] == "done"
        assert Path(arguments_of(scene.up.calls("tools/call")[-1])["path"]).read_bytes() == b"as ever"
        assert await scene.captured(client, await scene.call(client, "write", {})) == b"honest"
        await client.request("DELETE")


@contextlib.asynccontextmanager
async def scene_of(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Scene]:
    """The scene. When all is over nothing may be left, the log tells no path, and the adapter serves as ever."""
    root = tmp_path / ROOT

    async def play(exchange: Exchange) -> None:
        await scene.play(exchange)

    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(upstream(play))
        front = await stack.enter_async_context(
            adapter(
                up, server=SERVER, storage={"root": str(root), "orphan_sweeper_grace_seconds": 0}, **SETTINGS
            )
        )
        scene = Scene(front, up, root)
        await serves_as_ever(scene)
        tasks, opened = tasks_at_work(), scene.open_files()
        yield scene
        gc.collect()
        async with asyncio.timeout(10):
            while scene.staged() or scene.open_files() != opened or tasks_at_work() > tasks:
                await asyncio.sleep(0.01)
        assert await scene.recorded() == scene.on_disk(), "a file without its record, or the reverse"
        await serves_as_ever(scene)
    said = capsys.readouterr().err
    assert ROOT not in said and "unexpectedly" not in said and "Traceback" not in said, said[:3000]
    for secret in scene.secrets:
        assert secret.decode() not in said
    assert quote(ROOT) == ROOT, "it is written the same in every URL"


StartScene = Callable[[], AbstractAsyncContextManager[Scene]]
