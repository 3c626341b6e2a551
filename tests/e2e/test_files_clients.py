"""Hosts that people use move files through the adapter: all the way round, as one principal, on a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.disks import DISK, as_seen_by, fill, small_disk
from tests.e2e.files_server import drawing
from tests.e2e.filing import (
    ADAPTERS,
    HELPER,
    MIB,
    READER,
    Answer,
    Host,
    Json,
    ScriptedHost,
    Unreadable,
    artifact,
    content_of,
    curl,
    offered,
    post,
    python_host,
    said,
    sha256,
    texts,
    uploaded,
)
from tests.e2e.processes import Server, adapter
from tests.e2e.talk import Command, connected

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.files_server"
HOSTS = ("python_v2 legacy", "python_v2 2026-07-28", "ts_v1", "ts_v2 legacy", "ts_v2 2026-07-28")
DOWNLOADS = {"allow_artifacts_download": True}


@asynccontextmanager
async def hosted(
    command: Command, name: str, url: str, place: Path, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Host]:
    """The host called ``name``, an SDK and what it shall speak."""
    script, *mode = name.split()
    if script == "python_v2":
        async with python_host(url, mode[0], headers) as host:
            yield host
        return
    async with connected(command, name, url, place, headers) as client:
        yield ScriptedHost(client)


def written(place: Path, name: str, content: bytes) -> Path:
    """A file of the user's."""
    file = place / name
    file.write_bytes(content)
    return file


def line(content: bytes, *name: str) -> str:
    """What the upstream tells of a file that it was given."""
    return " ".join((sha256(content), str(len(content)), *name))


# --- all the way round --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTS)
async def test_a_host_goes_all_the_way_round(name: str, command: Command, tmp_path: Path) -> None:
    """Two files up in one batch and into one argument, a file out, listed, read, downloaded, and handed on; one into a
    tool and another out of the same call."""
    first = written(tmp_path, "Größe 名前.txt", b"\0first" * 999)
    second = written(tmp_path, "second.pdf", b"%PDF-second" * 300_000)
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS, core=DOWNLOADS) as front,
        hosted(command, name, front.url, tmp_path) as host,
    ):
        own = [HELPER, "upstream_upload_status", READER]
        assert await host.tools() == [*own, "digest", "digests", "digest_inline", "draw", "turn_round"]
        uploads = await uploaded(host, first, second)
        read = await host.call("digests", paths=[upload["upload_handle"] for upload in uploads])
        assert said(read).splitlines() == [line(file.read_bytes(), file.name) for file in (first, second)]

        drawn = await host.call("draw", seed=3, size=200_000, filename="Bild 画.bin")
        told = artifact(drawn)
        assert (told["filename"], told["sha256"]) == ("Bild 画.bin", sha256(drawing(3, 200_000)))
        assert str(tmp_path) not in texts(drawn)
        listed = {resource["uri"]: resource["name"] for resource in await host.resources()}
        assert listed["note://upstream"] == "note"
        assert listed[told["artifact_uri"]] == "Bild 画.bin"
        assert content_of(await host.read(told["artifact_uri"])) == drawing(3, 200_000)
        assert await curl(told["download_url"]) == Answer(200, drawing(3, 200_000))

        handed_on = await host.call("digest", path=told["artifact_uri"])
        assert said(handed_on) == line(drawing(3, 200_000), "Bild 画.bin")

        turned = await host.call("turn_round", path=uploads[0]["upload_handle"], filename="turned.bin")
        uri = artifact(turned)["artifact_uri"]
        assert content_of(await host.read(uri)) == first.read_bytes()[::-1]
        assert texts(turned).startswith(f"from {uploads[0]['upload_handle']} to {uri}")
        refused = await host.call("digest", path=uploads[0]["upload_handle"] + "/../../x")
        assert refused["isError"]
        assert HELPER in texts(refused)


# --- whose files they are -----------------------------------------------------------------------------------------

TOKENS = {"ada": "token-of-ada-for-this-test", "ben": "token-of-ben-for-this-test"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


async def test_files_of_a_principal_outlive_its_sessions(command: Command, tmp_path: Path) -> None:
    """What one session brought and made, every later session of the same principal has, in either era and from
    either SDK; for another principal none of it is there."""
    file = written(tmp_path, "kept.txt", b"kept")
    auth = {"enabled": True, "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()]}
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(
            tmp_path,
            upstream.url,
            adapters=ADAPTERS,
            core={**DOWNLOADS, "auth": auth},
            sessions={"scope": "principal"},
        ) as front,
    ):
        async with python_host(front.url, "legacy", bearer("ada")) as host:
            (upload,) = await uploaded(host, file)
            told = artifact(await host.call("draw", seed=4, size=5000, filename="kept.bin"))
        for name in HOSTS:
            async with hosted(command, name, front.url, tmp_path, bearer("ada")) as host:
                await _has(host, upload, told)
            async with hosted(command, name, front.url, tmp_path, bearer("ben")) as host:
                await _has_not(host, upload, told)
        unsigned = urlsplit(told["download_url"])._replace(query="").geturl()
        assert await curl("-H", f"Authorization: {bearer('ada')['Authorization']}", unsigned) == Answer(
            200, drawing(4, 5000)
        )
        assert (await curl("-H", f"Authorization: {bearer('ben')['Authorization']}", unsigned)).status == 404
        assert (await curl(unsigned)).status == 401


async def _has(host: Host, upload: Json, told: Json) -> None:
    assert said(await host.call("digest", path=upload["upload_handle"])) == line(b"kept", "kept.txt")
    assert told["artifact_uri"] in [resource["uri"] for resource in await host.resources()]
    assert content_of(await host.read(told["artifact_uri"])) == drawing(4, 5000)


async def _has_not(host: Host, upload: Json, told: Json) -> None:
    for handle in (upload["upload_handle"], told["artifact_uri"]):
        assert (await host.call("digest", path=handle))["isError"]
    assert told["artifact_uri"] not in [resource["uri"] for resource in await host.resources()]
    with pytest.raises(Unreadable, match="Resource not found"):
        await host.read(told["artifact_uri"])


# --- a full disk --------------------------------------------------------------------------------------------------


def kept(disk: Path) -> list[str]:
    """The names of the files that uploads have left on ``disk``, finished or not."""
    areas = (disk / "uploads", disk / "staging")
    return sorted(file.name for area in areas for file in area.rglob("*") if file.is_file())


@pytest.mark.parametrize("state_too", [False, True], ids=["state elsewhere", "state on it"])
async def test_a_full_disk_fails_the_upload_and_nobody_else(
    state_too: bool, namespaces: None, tmp_path: Path
) -> None:
    """Where the disk is full an upload is 507 and leaves nothing; others read their files, call tools and bring what
    still fits; once there is room the same URL takes the same file."""
    store = tmp_path / "data"
    store.mkdir()
    small = written(tmp_path, "small.bin", b"s" * 100_000)
    large = written(tmp_path, "large.bin", b"l" * (6 * MIB))
    huge = written(tmp_path, "huge.bin", b"h" * (2 * DISK))
    elsewhere = {"disk": {"local_path": str(tmp_path / "state.sqlite3")}}
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(
            tmp_path,
            upstream.url,
            adapters=ADAPTERS,
            launcher=small_disk(store),
            uploads={"max_file_bytes": 4 * DISK},
            state_persistence={} if state_too else elsewhere,
        ) as front,
        python_host(front.url) as ada,
        python_host(front.url) as ben,
    ):
        disk = as_seen_by(front, store)
        (upload,) = await uploaded(ada, small)
        fill(disk, leave=MIB)
        url = await offered(ada)
        assert (await post(url, large)).status == 507
        assert kept(disk) == ["small.bin"]

        (other,) = await uploaded(ben, small)
        for host, handle in ((ada, upload["upload_handle"]), (ben, other["upload_handle"])):
            assert said(await host.call("digest_inline", data=handle)) == line(small.read_bytes())

        another = await offered(ben)
        fill(disk, leave=0)
        assert (await post(another, small)).status == 507
        assert said(await ben.call("digest_inline", data=other["upload_handle"])) == line(small.read_bytes())

        (disk / "filler").unlink()
        assert (await post(url, large)).status == 200
        told, failed = await asyncio.gather(
            ben.call("digest_inline", data=other["upload_handle"]), post(await offered(ada), huge)
        )
        assert (said(told), failed.status) == (line(small.read_bytes()), 507)
        assert kept(disk) == ["large.bin", "small.bin", "small.bin"]
        await uploaded(ben, large)
