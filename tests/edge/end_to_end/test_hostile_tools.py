"""Tools that plant links and pipes, name what is not theirs, and answer what is no answer.

As for hostile clients: no escape, nobody else's bytes, no path of the store, and nothing left; see ``hostilities``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.edge.hostile import QUOTA, Scene, StartScene, Victim, arguments_of
from tests.edge.hostile_forms import NAMES
from tests.edge.raw import Exchange, in_json, modern_body, modern_fields, result

Plant = Callable[[Path, Path], None]


def treasures(scene: Scene, victim: Victim) -> list[Path]:
    """What a tool may want to read; the secrets in all of it are known to ``scene``."""
    secret, outside = b"CANARY beside the store", scene.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret.txt").write_bytes(secret)
    scene.secrets.append(secret)
    return [*victim.paths, scene.state, Path("/etc/passwd"), outside / "secret.txt"]


# --- what is planted where the tool was told to write ---------------------------------------------------------


def link(path: Path, treasure: Path) -> None:
    path.symlink_to(treasure)


def link_to_a_link(path: Path, treasure: Path) -> None:
    path.with_suffix(".step").symlink_to(treasure)
    path.symlink_to(path.with_suffix(".step").name)


def link_to_itself(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def second_name(path: Path, treasure: Path) -> None:
    if treasure.stat().st_dev == path.parent.stat().st_dev:
        path.hardlink_to(treasure)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, treasure: Path) -> None:
    path.mkdir()
    (path / "inner").symlink_to(treasure)


def listening_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        back = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            made.bind(path.name)
        finally:
            os.chdir(back)


def linked_directory(path: Path, treasure: Path) -> None:
    elsewhere = path.parent.with_name("elsewhere")
    elsewhere.mkdir()
    second_name(elsewhere / path.name, treasure)
    path.parent.rename(path.parent.with_name("before"))
    path.parent.symlink_to(elsewhere)


def directory_of_another(path: Path, treasure: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))
    path.parent.symlink_to(treasure.parent)


def pipe_for_a_directory(path: Path, _: Path) -> None:
    shutil.rmtree(path.parent)
    os.mkfifo(path.parent)


def far_too_large(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def a_little_too_large(path: Path, _: Path) -> None:
    path.write_bytes(b"x" * (QUOTA + 1))


def nothing(_path: Path, _treasure: Path) -> None:
    pass


def tree(path: Path, _: Path) -> None:
    path.joinpath(*["d"] * 50).mkdir(parents=True)


PLANTS: tuple[Plant, ...] = (
    link,
    link_to_a_link,
    link_to_itself,
    second_name,
    pipe,
    directory,
    listening_socket,
    linked_directory,
    directory_of_another,
    pipe_for_a_directory,
    far_too_large,
    a_little_too_large,
    nothing,
    tree,
)


@pytest.mark.parametrize("plant", PLANTS)
async def test_what_is_planted_at_the_allocated_path(hostilities: StartScene, plant: Plant) -> None:
    """It is not captured, the call keeps its result and says so, and nothing of it stays."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        await client.initialize()
        planted: list[Path] = []
        for treasure in treasures(scene, victim):

            async def play(exchange: Exchange, treasure: Path = treasure) -> None:
                path = Path(arguments_of(exchange)["filename"])
                planted.append(path)
                plant(path, treasure)
                await exchange.json(result(1, f"Saved to {path}."))

            before = treasure.stat().st_nlink, treasure.read_bytes()[:100]
            scene.play = play
            # With the name of the victim's own file, so that a directory of the victim's would have it.
            answer = (await scene.call(client, "write", {"filename": treasure.name}))["result"]
            assert "could not be captured" in answer["_meta"]["artifact_error"], answer
            assert len(answer["content"]) == 1 and "isError" not in answer
            assert await scene.swept() == Counter(), "the cleanup takes what was put elsewhere"
            assert before == (treasure.stat().st_nlink, treasure.read_bytes()[:100])
        assert len(planted) == 5 and scene.front.app.files.registry.used(scene.scope_of(client)) == 0


@pytest.mark.parametrize("plant", PLANTS)
async def test_what_is_planted_where_a_file_was_kept(hostilities: StartScene, plant: Plant) -> None:
    """A file that is no longer the one that was kept is given to nobody: to no download, no read and no tool."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        for treasure in treasures(scene, victim):
            # A session for each: some of what is planted leaves no room for another file beside it.
            await client.initialize()
            handle = (await scene.upload(client, b"mine", treasure.name))["upload_handle"]
            written = await scene.call(client, "write", {"filename": treasure.name})
            artifact = written["result"]["_meta"]["artifact"]
            kept = Path(arguments_of(scene.up.calls("tools/call")[-1])["filename"])
            await scene.call(client, "read", {"path": handle})
            # The tool was given a copy, in a folder beside the stored file.
            copy = Path(arguments_of(scene.up.calls("tools/call")[-1])["path"])
            for path in (kept, copy.parents[1] / copy.name):
                path.unlink()
                plant(path, treasure)
            called = len(scene.up.calls("tools/call"))
            for gone in (handle, artifact["artifact_uri"]):
                answer = await scene.call(client, "read", {"path": gone})
                assert answer["result"]["isError"] is True
            assert len(scene.up.calls("tools/call")) == called
            read = await scene.rpc(client, "resources/read", {"uri": artifact["artifact_uri"]})
            assert "error" in read
            link = "/artifacts/" + artifact["download_url"].partition("/artifacts/")[2]
            is_gone = not os.path.lexists(kept)
            assert (await scene.ask(client, "GET", b"", link))[0].status == (404 if is_gone else 409)
            await client.request("DELETE")
            assert await scene.swept() == Counter()


# --- what changes while it is captured ------------------------------------------------------------------------


def swap_file_and_link(path: Path, treasure: Path) -> None:
    other = path.with_suffix(".other")
    other.symlink_to(treasure)
    other.replace(path)
    other.write_bytes(b"honest")
    other.replace(path)


def swap_directory_and_link(path: Path, treasure: Path) -> None:
    path.parent.rename(path.parent.with_suffix(".away"))
    path.parent.symlink_to(treasure.parent)
    path.parent.unlink()
    path.parent.with_suffix(".away").rename(path.parent)


def grow(path: Path, _: Path) -> None:
    with path.open("ab") as file:
        file.write(b"honest")


def come_and_go(path: Path, _: Path) -> None:
    path.unlink()
    path.write_bytes(b"honest")


def give_second_name(path: Path, treasure: Path) -> None:
    path.with_suffix(".other").hardlink_to(path)
    path.with_suffix(".other").unlink()
    assert treasure != path


@pytest.mark.parametrize(
    "change", [swap_file_and_link, swap_directory_and_link, grow, come_and_go, give_second_name]
)
async def test_what_changes_while_it_is_captured(hostilities: StartScene, change: Plant) -> None:
    """What is captured was the tool's own at one moment, or the call says that nothing was."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        await client.initialize()
        for treasure in treasures(scene, victim) * 6:
            over = threading.Event()
            changing: list[asyncio.Task[None]] = []

            def keep_changing(path: Path, treasure: Path = treasure, over: threading.Event = over) -> None:
                try:
                    while not over.is_set():
                        change(path, treasure)
                except OSError:
                    pass  # the adapter took the directory away

            async def play(
                exchange: Exchange, changing: list[asyncio.Task[None]] = changing, run: Plant = change
            ) -> None:
                path = Path(arguments_of(exchange)["filename"])
                path.write_bytes(b"honest")
                changing.append(asyncio.create_task(asyncio.to_thread(keep_changing, path)))
                assert run is change
                await exchange.json(result(1, f"Saved to {path}."))

            scene.play = play
            response = await scene.call(client, "write", {"filename": treasure.name})
            over.set()
            await asyncio.gather(*changing)
            meta = response["result"]["_meta"]
            if "artifact" in meta:
                url = "/artifacts/" + meta["artifact"]["download_url"].partition("/artifacts/")[2]
                head, content = await scene.ask(client, "GET", b"", url)
                assert head.status in (404, 409) or content.replace(b"honest", b"") == b"", content
            else:
                assert "could not be captured" in meta["artifact_error"]
        await client.request("DELETE")


# --- what callers want files to be called ---------------------------------------------------------------------


async def test_what_callers_want_files_to_be_called(hostilities: StartScene) -> None:
    """The tool writes in a directory of the call's own, and what it wrote can be read and downloaded."""
    odd: tuple[object, ...] = (*NAMES, "", None, 7, [], {"a": 1}, "\ud800.txt", "a" * 100_000, True)
    async with hostilities() as scene, scene.front.client() as client:
        await client.initialize()
        own = scene.root / "artifacts" / scene.scope_of(client)
        for name in odd:
            response = await scene.call(client, "write", {"filename": name})
            assert await scene.captured(client, response) == b"honest", (name, response)
            uri = response["result"]["_meta"]["artifact"]["artifact_uri"]
            read = await scene.rpc(client, "resources/read", {"uri": uri})
            assert read["result"]["contents"][0].get("text", "honest") == "honest"
            path = Path(arguments_of(scene.up.calls("tools/call")[-1])["filename"])
            assert path.parents[1] == own and path.resolve() == path and len(path.name.encode()) <= 200
        await client.request("DELETE")


# --- what is named --------------------------------------------------------------------------------------------


def spellings(path: Path, own: Path) -> Iterator[str]:
    """Ways to name a file, of which none may reach it; ``own`` is the artifact area of the tool's own scope."""
    yield f"Saved to {path}"
    yield f'{{"path": "{path}"}}'
    yield f"file://{path}"
    yield f"FILE://localhost{quote(str(path))}"
    yield f"file:{path}"
    yield f"`/{path}`"
    yield f"'{own}/../../../{path.relative_to(path.anchor)}'"
    yield f"{own}/x/../../{path.parent.name}/{path.name}"
    yield f"{own}/%2e%2e/%2e%2e/{path.name}"
    yield f"{own}\\..\\..\\{path.name}"
    yield f"{own}/{path.name}\0.txt"
    yield f"{own}/link-{path.name}"
    yield f"{own}/directory-{path.name}/{path.name}"
    yield f"{own}/second-{path.name}"
    yield f"see {own} {own}/ {own}/."


ELSEWHERE = (
    "/proc/self/root/etc/passwd",
    "/proc/self/environ",
    "/proc/self/maps",
    "/proc/self/cwd/pyproject.toml",
    "file:///etc/passwd",
    "file://evil.example/etc/passwd",
    "\\\\evil.example\\share\\x",
    "C:\\Windows\\win.ini",
    "/dev/stdin",
    "/dev/zero",
    "/" * 100_000,
    "/a" * 50_000,
    "/\ud800",
    "'" + "/x " * 20_000,
    "/" + "x" * 5000,
    *(f"/proc/self/fd/{number}" for number in range(40)),
)


async def test_what_a_result_names(hostilities: StartScene) -> None:
    """In text or structured: of all that is named only a file of the scope's own, written now, is captured."""
    async with hostilities() as scene, scene.front.client() as client:
        victim = await scene.robbed()
        await client.initialize()
        handle = (await scene.upload(client, b"CANARY of its own upload"))["upload_handle"]
        scene.secrets.append(b"CANARY of its own upload")
        own = scene.root / "artifacts" / scene.scope_of(client)
        own.mkdir(parents=True)
        staged = next((scene.root / "uploads" / scene.scope_of(client)).rglob("mine.txt"))
        others = [*treasures(scene, victim), staged, scene.root / "lock"]
        for treasure in others:
            (own / f"link-{treasure.name}").unlink(missing_ok=True)
            (own / f"link-{treasure.name}").symlink_to(treasure)
            (own / f"directory-{treasure.name}").unlink(missing_ok=True)
            (own / f"directory-{treasure.name}").symlink_to(treasure.parent)
            (own / f"second-{treasure.name}").unlink(missing_ok=True)
            second_name(own / f"second-{treasure.name}", treasure)
        named = [text for treasure in others for text in spellings(treasure, own)]
        for text in [*named, *ELSEWHERE]:

            async def play(exchange: Exchange, text: str = text) -> None:
                content = [{"type": "text", "text": text}]
                said = {"content": content, "structuredContent": {"file": {"path": text}}}
                body = {"jsonrpc": "2.0", "id": 1, "result": said}
                await exchange.json(dumps(body))

            scene.play = play
            for tool in ("name", "point"):
                answer = (await scene.call(client, tool, {}))["result"]
                assert "could not be captured" in answer["_meta"]["artifact_error"], (text[:200], answer)
        for left in own.iterdir():
            left.unlink()
        (own / "new.txt").write_text("honest")

        scene.play = in_json(result(1, f"Saved to {own / 'new.txt'}"))
        assert await scene.captured(client, await scene.call(client, "name", {})) == b"honest"
        (own / "new.txt").unlink()
        assert handle.startswith("upload://")


# --- what is no answer ----------------------------------------------------------------------------------------


def odd_answers(path: str) -> Iterator[tuple[str, bytes]]:
    """A first header field and a body, with the path where an honest tool may well have it."""
    text = b'{"type":"text","text":"Saved to %s"}' % path.encode()
    as_json = "Content-Type: application/json"
    for inside in (
        b'"result":null',
        b'"result":[]',
        b'"result":"%s"' % path.encode(),
        b'"result":{}',
        b'"result":{"content":null}',
        b'"result":{"content":{}}',
        b'"result":{"content":"%s"}' % path.encode(),
        b'"result":{"content":[%s],"_meta":7}' % text,
        b'"result":{"content":[null,7,[],%s,{"type":"text","text":null}],"_meta":{"artifact":"x"}}' % text,
        b'"result":{"content":[%s],"content":[%s],"isError":"yes"}' % (text, text),
        b'"result":{"content":[%s],"isError":true}' % text,
        b'"result":{"content":[%s],"structuredContent":%s"%s"%s}'
        % (text, b"[" * 500, path.encode(), b"]" * 500),
        b'"result":{"content":[{"type":"resource","resource":[]},{"type":"image"},{"type":"audio","data":7}]}',
        b'"result":{"content":[{"type":"image","data":"%%%","mimeType":"image/png"}]}',
        b'"result":{"content":[{"type":"resource","resource":{"uri":"file:///../..","blob":"QUJD"}}]}',
        b'"result":{"content":[{"type":"resource","resource":{"uri":"a:/\\ud800","text":"\\ud800"}}]}',
        b'"error":{"code":-1,"message":"EACCES: %s"}' % path.encode(),
        b'"error":{"code":-1,"message":"no","data":{"path":"%s"}}' % path.encode(),
        b'"error":"%s"' % path.encode(),
        b'"result":{"resultType":"input_required","content":[%s]}' % text,
    ):
        yield as_json, b'{"jsonrpc":"2.0","id":1,%s}' % inside
    for body in (
        b"",
        b"null",
        b"7",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"result":',
        b"\xff",
    ):
        yield as_json, body
        yield "Content-Type: text/event-stream", b"data: %s\n\n" % body
    yield "Content-Type: text/html", b"<html>"
    yield as_json + "\r\nContent-Encoding: gzip", b"not gzip"


async def test_what_is_no_answer(hostilities: StartScene) -> None:
    """It is passed on or told to be broken, never an internal failure; the path the tool was told is withheld."""
    async with hostilities() as scene, scene.front.client() as client:
        await scene.robbed()
        await client.initialize()
        scene.excusable = (502,)  # which a modern client is told of an upstream whose answer cannot be read
        for tool in ("write", "name", "point", "hold", "read"):
            for number in range(len([*odd_answers("")])):

                async def play(exchange: Exchange, number: int = number) -> None:
                    path = arguments_of(exchange).get("filename", "/tmp/x")
                    fields, body = [*odd_answers(path)][number]
                    await exchange.answer(200, body, fields)
                    if "event-stream" in fields:
                        exchange.hang_up()

                scene.play = play
                await scene.ask(client, "POST", call(tool))
                await scene.ask(client, "POST", modern_body(tool), **modern_fields(tool))


def call(tool: str) -> bytes:
    return dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    )


def dumps(message: object) -> bytes:
    """JSON that may hold a lone surrogate, as JavaScript writes it."""
    return json.dumps(message).encode("ascii")
