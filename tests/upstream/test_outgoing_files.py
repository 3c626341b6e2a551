"""Downloads of files at URLs that callers name, over sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapter.upstream.outgoing import LONGEST_URL, REDIRECTS, FileHttp
from adapter.upstream.port import DownloadFailed
from tests.edge.attaching import FileHost, file_host, whole

STALL = 10.0


async def fetched(
    url: str, allowed: Collection[str] = (), stall: float = STALL
) -> tuple[int | None, str, bytes]:
    async with FileHttp(allowed, stall).open(url) as download:
        content = b"".join([chunk async for chunk in download.chunks])
        return download.length, download.media_type, content


async def test_a_file_is_fetched(depot: FileHost) -> None:
    """With its announced length and type. Its URL is asked for as it is spelled, since it is signed."""
    url = depot.put("/a%2Fb", b"hello", "Content-Type: text/csv; charset=utf-8")
    assert await fetched(f"{url}?sig=a%2Bb+c%3d&x=%C3%BC", [depot.authority]) == (5, "text/csv", b"hello")
    (head,) = depot.asked
    assert head.startswith("GET /a%2Fb?sig=a%2Bb+c%3d&x=%C3%BC HTTP/1.1\r\n")
    assert "accept-encoding: identity" in head.lower() and "cookie" not in head.lower()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "127.1"])
async def test_private_addresses_are_not_asked(depot: FileHost, name: str) -> None:
    """The address that is judged is the one that is connected to, whatever name leads there (DNS rebinding)."""
    with pytest.raises(DownloadFailed, match="cannot be reached at a public address"):
        await fetched(depot.url("/", name))
    assert depot.asked == []


async def test_a_private_host_may_be_named(depot: FileHost) -> None:
    """By its name, with its port or for all ports; another name of the same machine is another host."""
    url = depot.put("/a", b"hello")
    for allowed in ([depot.authority], ["127.0.0.1"]):
        assert (await fetched(url, allowed))[2] == b"hello"
    for other in (["localhost"], [f"127.0.0.1:{depot.port + 1}"], ["10.0.0.1"]):
        with pytest.raises(DownloadFailed, match="public address"):
            await fetched(url, other)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "file:///etc/passwd",
        "ftp://files.test/",
        "https://user:secret@127.0.0.1/",
        "https://127.0.0.1/#part",
        "https://",
        "https://127.0.0.1/a b",
        "https://b\u00fccher.test/",
        "https://127.0.0.1\\@files.test/",
        "https://127.0.0.1/" + "x" * LONGEST_URL,
        "",
    ],
)
async def test_other_urls_are_refused(url: str) -> None:
    """Also where their host may be asked."""
    with pytest.raises(DownloadFailed, match="must begin with https://"):
        await fetched(url, ["127.0.0.1"])


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".test", ".test", "[::1]x"])
async def test_hosts_without_a_possible_name_are_refused(depot: FileHost, name: str) -> None:
    """Also as the target of a redirect: systems and libraries have exceptions of their own for them."""
    for url, allowed in ((f"https://{name}/a", ()), (depot.redirect("/a", f"//{name}/"), [depot.authority])):
        with pytest.raises(DownloadFailed, match=r"public address|https"):
            await fetched(url, allowed)


async def test_few_redirects_are_followed(depot: FileHost) -> None:
    """Each is judged as a URL of its own."""
    depot.put("/0", b"hello")
    for number in range(1, REDIRECTS + 2):
        depot.redirect(f"/{number}", f"/{number - 1}")
    assert (await fetched(depot.url(f"/{REDIRECTS}"), [depot.authority]))[2] == b"hello"
    with pytest.raises(DownloadFailed, match="redirected more than 3 times"):
        await fetched(depot.url(f"/{REDIRECTS + 1}"), [depot.authority])


@pytest.mark.parametrize(
    "to", ["https://localhost:{port}/in", "http://127.0.0.1:{port}/in", "file:///etc/passwd", "https://["]
)
async def test_a_redirect_leads_to_no_other_place_inside(depot: FileHost, to: str) -> None:
    """Neither to a private host that was not named, nor away from https."""
    depot.put("/in", b"secret")
    url = depot.redirect("/a", to.format(port=depot.port))
    with pytest.raises(DownloadFailed, match=r"public address|https"):
        await fetched(url, [depot.authority])
    assert len(depot.asked) == 1


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (whole(b"expired", status="403 Forbidden"), "127.0.0.1 answered with status 403 instead of the file"),
        (whole(b"", status="206 Partial Content"), "status 206"),
        (whole(b"\x1f\x8b", "Content-Encoding: gzip"), "compressed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "broke off its answer"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "redirected more than"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no valid one"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "no valid one"),
    ],
)
async def test_what_is_no_whole_file_is_told(depot: FileHost, answer: bytes, sentence: str) -> None:
    """With a reason that a model can act on."""
    depot.answers["/a"] = answer
    with pytest.raises(DownloadFailed, match=sentence):
        await fetched(depot.url("/a"), [depot.authority])


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_silent_server_is_left(depot: FileHost, begun: bytes) -> None:
    """Before its answer, and in the middle of it."""
    left = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await left.wait()

    depot.answers["/a"] = silent
    with pytest.raises(DownloadFailed, match="sent nothing for too long"):
        await fetched(depot.url("/a"), [depot.authority], stall=0.1)
    left.set()


async def test_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    """Also for a host that was named."""
    server, _ = file_host(tmp_path)
    async with server.running():
        with pytest.raises(DownloadFailed, match="cannot be reached"):
            await fetched(server.put("/a", b"x"), [server.authority])


async def test_names_are_looked_up_beside_other_work(depot: FileHost) -> None:
    """Servers of names that callers choose may never answer; threads that others need are not those that wait then."""
    url = depot.put("/a", b"hello")
    files = FileHttp(["localhost", "127.0.0.1"], STALL)
    async with files.open(url):
        """The certificates are read."""
    busy = threading.Event()
    with ThreadPoolExecutor(1) as others:
        asyncio.get_running_loop().set_default_executor(others)
        waiting = asyncio.create_task(asyncio.to_thread(busy.wait))
        try:
            async with asyncio.timeout(STALL):
                # The name leads somewhere, whose certificate is of another name.
                with pytest.raises(DownloadFailed, match="cannot be reached"):
                    async with files.open(depot.url("/a", "localhost")):
                        """Not reached."""
        finally:
            busy.set()
            await waiting
