"""Files of results that ``connect`` saves: where, under which names, and what a hostile server cannot make it do."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.commands.connect.folders import Folders
from tests.commands.connect.hosting import META, Host, host_of, request
from tests.edge.raw import Exchange, RawUpstream

PNG = base64.b64encode(b"a picture").decode()


class ArtifactServer:
    """Answers each call with ``result``, each resource with ``contents``, and gives ``download`` to be downloaded."""

    def __init__(self, **result: Any) -> None:
        self.result = result
        self.contents: Any = [{"uri": "note://one", "text": "one"}]
        self.download = b"downloaded"

    async def script(self, exchange: Exchange) -> None:
        if exchange.head.method == "GET" and "/download/" in exchange.head.first:
            await exchange.answer(200, self.download)
        elif exchange.head.method != "POST":
            await exchange.answer(405, b"")
        else:
            reads = exchange.message["method"] == "resources/read"
            result = {"contents": self.contents} if reads else self.result
            await exchange.json(
                json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}).encode()
            )


@asynccontextmanager
async def saving_host(artifacts: ArtifactServer, folder: Path) -> AsyncIterator[tuple[RawUpstream, Host]]:
    async with RawUpstream(artifacts.script) as server, host_of(server.url, save_to=folder) as host:
        yield server, host


async def call(host: Host, number: int = 1) -> dict[str, Any]:
    answer: dict[str, Any] = (await host.ask(number, "tools/call", name="draw", _meta=META))["result"]
    return answer


def texts(result: dict[str, Any]) -> list[str]:
    return [each["text"] for each in result["content"] if each["type"] == "text"]


async def test_each_file_is_saved_and_the_model_is_told_where(tmp_path: Path) -> None:
    """None over another one, under names that lead nowhere, in a folder that is made; other content stays."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "done"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource_link", "uri": "note://one", "name": "../../.bashrc"},
    ]
    artifacts = ArtifactServer(content=blocks)
    place = tmp_path / "new" / "place"
    async with saving_host(artifacts, place) as (_, host):
        first, second = await call(host, 1), await call(host, 2)
        assert first["content"][:3] == blocks
    saved = {path.name: path.read_bytes() for path in place.iterdir()}
    assert sorted(saved.values()) == [b"a picture", b"a picture", b"one", b"one"]
    assert not any(name.startswith(".") for name in saved)
    told = "\n".join([*texts(first)[1:], *texts(second)[1:]])
    assert all(f"Saved on this machine: {place / name}" in told for name in saved)


async def test_artifacts_come_by_their_links(tmp_path: Path) -> None:
    """Of the server itself; a link to anywhere else is not followed, and the resource is read."""
    artifacts = ArtifactServer()
    async with saving_host(artifacts, tmp_path) as (server, host):
        own = server.url.replace("/mcp", "/download/1")
        for number, link in enumerate((own, "http://127.0.0.2:9/download/1")):
            meta = {"artifact_uri": "note://one", "download_url": link, "filename": f"{number}.txt"}
            artifacts.result = {"content": [], "_meta": {"artifact": meta}}
            await call(host, number)
    assert (tmp_path / "0.txt").read_bytes() == b"downloaded"
    assert (tmp_path / "1.txt").read_bytes() == b"one"


@pytest.mark.parametrize(
    "link", ["http://127.0.0.2:9/x", "http://169.254.169.254/latest/meta-data", "https://a/b"]
)
async def test_no_other_address_is_fetched(link: str, tmp_path: Path) -> None:
    """A server chooses nothing of what this machine reaches: its link passes as it is."""
    result = {"content": [{"type": "resource_link", "uri": link, "name": "x"}]}
    artifacts = ArtifactServer(**result)
    async with saving_host(artifacts, tmp_path) as (_, host):
        assert await call(host) == result
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "x"}], "structuredContent": {"n": 1.50}},
        {"content": [{"type": "image", "data": 5}]},
        {"content": {"type": "image"}},
        {"task": {"taskId": "1"}},
        {"resultType": "input_required", "inputRequests": {}},
    ],
)
async def test_results_without_files_stay_as_they_are(result: dict[str, Any], tmp_path: Path) -> None:
    """Also those that are none of a tool."""
    async with saving_host(ArtifactServer(**result), tmp_path) as (_, host):
        assert await call(host) == result
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "contents",
    [[{"uri": "note://one", "blob": "A"}], [{"uri": "note://one", "text": "\ud800"}], "x", [5, {"blob": 7}]],
)
async def test_what_cannot_be_saved_is_told(contents: Any, tmp_path: Path) -> None:
    """The result passes all the same, and nothing half stays in the folder."""
    artifacts = ArtifactServer(content=[{"type": "resource_link", "uri": "note://one", "name": "a"}])
    artifacts.contents = contents
    async with saving_host(artifacts, tmp_path) as (_, host):
        assert (await call(host))["content"][0]["uri"] == "note://one"
    assert all(path.read_bytes() == b"" and path.name == "a" for path in tmp_path.iterdir())


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """To the model, behind the whole result."""
    (tmp_path / "file").touch()
    artifacts = ArtifactServer(content=[{"type": "image", "data": PNG, "mimeType": "image/png"}])
    async with saving_host(artifacts, tmp_path / "file") as (_, host):
        (told,) = texts(await call(host))
        assert told.startswith("Not saved on this machine: ") and "no folder" in told


async def test_a_uri_that_is_none_names_a_file_all_the_same(tmp_path: Path) -> None:
    """By its end; the answer comes."""
    block = {"type": "resource", "resource": {"uri": "http://[/a.png", "blob": PNG}}
    async with saving_host(ArtifactServer(content=[block]), tmp_path) as (_, host):
        (told,) = texts(await call(host))
    assert told == f"Saved on this machine: {tmp_path / 'a.png'}"


async def test_a_link_that_leads_nowhere_keeps_its_name(tmp_path: Path) -> None:
    """The file gets a number, and nothing is written where the link leads."""
    (tmp_path / "a.png").symlink_to(tmp_path / "nowhere")
    block = {"type": "resource", "resource": {"uri": "note://x/a.png", "blob": PNG}}
    async with saving_host(ArtifactServer(content=[block]), tmp_path) as (_, host):
        (told,) = texts(await call(host))
    assert told == f"Saved on this machine: {tmp_path / 'a-2.png'}"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[' + b"0," * (64 << 10) + b"}",
        b'{"jsonrpc":"2.0","id":1,"result":{"odd":"\\ud800","content":[' + b"0," * (1 << 20) + b"0]}}",
        b'[{"jsonrpc":"2.0","id":1,"result":{"content":[]}},{"jsonrpc":"2.0","method":"x-mcp-header"}]',
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_an_answer_that_cannot_be_read_passes(method: str, answer: bytes, tmp_path: Path) -> None:
    """As it came, since the host waits for it: JSON that is broken, has too much that is odd, or is a batch."""

    async def script(exchange: Exchange) -> None:
        await exchange.json(answer)

    # A call would read the definitions first.
    folders = None if method == "tools/call" else Folders([tmp_path], [])
    async with RawUpstream(script) as server, host_of(server.url, folders=folders, save_to=tmp_path) as host:
        await host.say(request(1, method, name="draw", _meta=META))
        assert await host.line() == answer
