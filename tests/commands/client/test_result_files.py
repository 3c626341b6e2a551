"""``--save-to``: the files of a result, under safe names, none over another one."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
import pytest

from adapter.commands.client.result_files import save
from adapter.upstream.transfers import TransferFailed
from tests.commands.client.speaking import Speaking, reply, run, speaking
from tests.edge.raw import Exchange

PNG = base64.b64encode(b"a picture").decode()


async def many(exchange: Exchange, server: Speaking) -> None:
    """A result with a file of each kind, whose names lead elsewhere."""
    blocks = [
        {"type": "text", "text": "three"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource_link", "uri": "note://one", "name": "../../\x1b[2Jone.txt"},
        {"type": "resource", "resource": {"uri": "file:///etc/passwd", "blob": PNG}},
    ]
    await exchange.json(reply(exchange, content=blocks))


async def read(exchange: Exchange) -> bytes:
    return reply(exchange, contents=[{"uri": "note://one", "text": "one"}])


class Reading(Speaking):
    """Reads its resource."""

    async def _respond(self, exchange: Exchange) -> None:
        if exchange.message.get("method") == "resources/read":
            await exchange.json(await read(exchange))
        else:
            await super()._respond(exchange)


async def test_all_files_are_saved_under_safe_names(tmp_path: Path) -> None:
    """In the folder, which is made; a second call gives other names; what is text is printed."""
    async with Reading(many) as server:
        call = ("call", server.url, "paint", "what=x", "--save-to", "new/place")
        done = await run(tmp_path, *call)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "three\nnote://one\n"
        assert (await run(tmp_path, *call)).returncode == 0
    place = tmp_path / "new" / "place"
    assert {file.name: file.read_bytes() for file in place.iterdir() if "-2" not in file.name} == {
        "paint.png": b"a picture",
        "_._..__[2Jone.txt": b"one",
        "passwd": b"a picture",
    }
    assert len(list(place.iterdir())) == 6
    assert "\x1b" not in done.stderr and "Saved: new/place/passwd\n" in done.stderr


async def test_files_that_cannot_be_saved_are_told(tmp_path: Path) -> None:
    """The result is printed all the same, and the exit status is 1."""
    (tmp_path / "file").touch()

    async def broken(exchange: Exchange, server: Speaking) -> None:
        meta = {
            "artifact": {"artifact_uri": "artifact://a", "download_url": "http://127.0.0.1:9/", "filename": 5}
        }
        blocks = [{"type": "text", "text": "done"}, {"type": "image", "data": "A", "mimeType": "image/png"}]
        extra = {"_meta": meta} if server.arguments[-1]["what"] == "link" else {}
        await exchange.json(reply(exchange, content=blocks, **extra))

    async with speaking(broken) as server:
        for what, folder, says in (
            ("x", "file", "file is no folder: File exists."),
            ("x", "place", "base64 is broken"),
            ("link", "place", "The connection failed: "),
        ):
            done = await run(tmp_path, "call", server.url, "paint", f"what={what}", "--save-to", folder)
            assert (done.returncode, done.stdout) == (1, "done\n") and says in done.stderr, done.stderr
    assert not list((tmp_path / "place").iterdir())


async def test_without_a_folder_files_are_named_only(tmp_path: Path) -> None:
    """Their content is not printed."""
    async with Reading(many) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=x")
    assert "[image/png, 9 B; --save-to DIR saves it]\n" in done.stderr and PNG not in done.stdout
    assert orjson.dumps(PNG)[1:-1] not in done.stderr.encode()


async def test_more_than_may_be_saved_is_not(tmp_path: Path) -> None:
    """What one file leaves is for the next; of one that is too large nothing stays."""
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    saved = []
    with pytest.raises(TransferFailed, match="larger than the 3 bytes"):
        async for path in save({"content": [picture, picture]}, "paint", tmp_path, Nothing(), most=12):
            saved.append(path)
    assert saved == [tmp_path / "paint.png"] == list(tmp_path.iterdir())


class Nothing:
    """A server without resources."""

    async def read(self, uri: str) -> list[dict[str, object]]:
        raise AssertionError(uri)
