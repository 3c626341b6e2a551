"""Downloading over HTTP: who may, what of a file is sent and how, and what a reader sees when it is gone."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from adapter.rules.access.principals import Scope
from tests.edge.filing import MIB, PAGE, Desk, filed, filing, sha256
from tests.edge.raw import Head, read_body
from tests.waiting import until

CONTENT = bytes(range(256)) * 40


async def get(desk: Desk, path: str, method: str = "GET", **fields: str) -> tuple[Head, bytes]:
    async with desk.client() as client:
        await client.send(method, b"", path, **fields)
        head = await client.head()
        return head, b"" if method == "HEAD" or head.status == 304 else await read_body(client.reader, head)


# --- what is sent ---------------------------------------------------------------------------------------------


async def test_an_artifact_is_an_attachment_and_never_a_page(desk: Desk, scope: Scope) -> None:
    """Its bytes, its type, its Unicode name; nothing in it runs under the adapter's origin."""
    record = await desk.artifact(scope, b"<script>alert(1)</script>", '名 前".html')
    head, body = await get(desk, desk.artifact_path(record))
    assert head.status == 200 and body == b"<script>alert(1)</script>"
    assert head["content-type"] == record.content.media_type == "text/html"
    assert head["content-disposition"].startswith("attachment; filename=")
    assert "filename*=UTF-8''%E5%90%8D%20%E5%89%8D%22.html" in head["content-disposition"]
    assert head["x-content-type-options"] == "nosniff"
    assert head["content-security-policy"] == "sandbox; default-src 'none'"
    assert head["cache-control"] == "private"
    assert head["etag"] == f'"{record.content.sha256}"' and head["accept-ranges"] == "bytes"


async def test_head_tells_what_get_would_send(tmp_path: Path) -> None:
    """The same fields and length, no body; the connection goes on."""
    async with filed(tmp_path) as (desk, scope), desk.client() as client:
        path = desk.artifact_path(await desk.artifact(scope, CONTENT))
        got, _ = await client.request("GET", b"", path)
        await client.send("HEAD", b"", path, range="bytes=0-1")
        asked = await client.head()
        assert asked.status == 200 and asked["content-length"] == str(len(CONTENT))
        assert [name for name, _ in asked.fields] == [name for name, _ in got.fields]
        assert (await client.request("GET", b"", path))[1] == CONTENT


@pytest.mark.parametrize("size", [0, 1, 3 * MIB + 1])
async def test_files_of_any_size_come_whole(desk: Desk, scope: Scope, size: int) -> None:
    """Empty ones too."""
    content = CONTENT[:1] * size
    head, body = await get(desk, desk.artifact_path(await desk.artifact(scope, content)))
    assert head.status == 200 and sha256(body) == sha256(content)


async def test_a_part_of_it_is_206(desk: Desk, scope: Scope) -> None:
    """From the front, the middle or the end; several parts or no range at all give the whole."""
    path = desk.artifact_path(await desk.artifact(scope, CONTENT))
    size = len(CONTENT)
    parts = [("0-0", 0, 0), ("5-9", 5, 9), ("10000-", 10000, size - 1), ("-3", size - 3, size - 1)]
    for said, first, last in parts:
        head, body = await get(desk, path, range=f"bytes={said}")
        assert head.status == 206 and body == CONTENT[first : last + 1]
        assert head["content-range"] == f"bytes {first}-{last}/{size}"
    for said in ("bytes=0-1,5-6", "lines=1-2", "bytes=x"):
        head, body = await get(desk, path, range=said)
        assert head.status == 200 and body == CONTENT and head.get("content-range") is None


async def test_a_part_behind_the_end_is_416(desk: Desk, scope: Scope) -> None:
    """With the size that the file has."""
    path = desk.artifact_path(await desk.artifact(scope, CONTENT))
    head, body = await get(desk, path, range=f"bytes={len(CONTENT)}-")
    assert head.status == 416 and head["content-range"] == f"bytes */{len(CONTENT)}"
    assert list(orjson.loads(body)) == ["detail"]


async def test_what_the_client_has_is_not_sent_again(desk: Desk, scope: Scope) -> None:
    """If-None-Match gives 304; If-Range gives the part only of the very same file."""
    record = await desk.artifact(scope, CONTENT)
    path, etag = desk.artifact_path(record), f'"{record.content.sha256}"'
    head, _ = await get(desk, path, if_none_match=f'"x", {etag}')
    assert head.status == 304 and head["etag"] == etag and head.get("content-length") is None
    assert (await get(desk, path, if_none_match='"x"'))[0].status == 200
    assert (await get(desk, path, range="bytes=0-1", if_range=etag))[0].status == 206
    assert (await get(desk, path, range="bytes=0-1", if_range='"x"'))[0].status == 200


# --- who may --------------------------------------------------------------------------------------------------


async def refused(desk: Desk, path: str, **fields: str) -> int:
    """The status of a refusal, which GET and HEAD share."""
    head, body = await get(desk, path, **fields)
    assert list(orjson.loads(body)) == ["detail"]
    assert (await get(desk, path, "HEAD", **fields))[0].status == head.status
    return head.status


async def test_a_link_is_good_for_one_file_until_it_expires(desk: Desk, scope: Scope) -> None:
    """Changed in any part, meant for something else or late it is 401, and says no more."""
    one = await desk.artifact(scope, CONTENT, "one.png")
    two = await desk.artifact(scope, CONTENT, "two.png")
    path = desk.artifact_path(one)
    query = path.partition("?")[2]
    assert (await get(desk, path))[0].status == 200
    for bad in (
        path[:-2],
        path.replace("exp=", "exp=9"),
        f"{path}&sig=x",
        desk.artifact_path(two, signed=False) + "?" + query,
        desk.artifact_path(one, signed=False),
        desk.artifact_path(one, ttl=-2),
        desk.delivery_path(one).replace("/upload/", "/artifacts/"),
    ):
        assert await refused(desk, bad) == 401


async def test_without_a_link_it_takes_the_sessions_own_id(desk: Desk) -> None:
    """The public id proves nothing (401); for another session's own id the file is not there (404)."""
    session_id, scope = await desk.session()
    other_id, _ = await desk.session()
    path = desk.artifact_path(await desk.artifact(scope, CONTENT), signed=False)
    assert (await get(desk, path, mcp_session_id=session_id))[0].status == 200
    for wrong in (scope.id, "0" * 32, "x", "é"):
        assert await refused(desk, path, mcp_session_id=wrong) == 401
    assert await refused(desk, path) == 401
    assert await refused(desk, path, mcp_session_id=other_id) == 404


async def test_with_auth_on_it_takes_the_token_too(tmp_path: Path) -> None:
    """Of the session's principal; a principal's own files need no session, and a link no token. A wrong token is 401;
    for a good one of somebody else the file is not there."""
    tokens = {"ann": "ann-secret", "ben": "ben-secret"}
    ann, ben = {"authorization": "Bearer ann-secret"}, {"authorization": "Bearer ben-secret"}
    async with filing(tmp_path, tokens=tokens) as desk:
        principal = f"ann:{sha256(b'ann-secret')[:16]}"
        session_id, scope = await desk.session(principal)
        record = await desk.artifact(scope, CONTENT)
        path = desk.artifact_path(record, signed=False)
        own = {"mcp_session_id": session_id}
        assert (await get(desk, path, **own, **ann))[0].status == 200
        assert await refused(desk, path, **own) == 401
        assert await refused(desk, path, **own, authorization="Bearer wrong") == 401
        assert await refused(desk, path, **own, **ben) == 404
        assert await refused(desk, path, **ben) == 404
        assert await refused(desk, path, **ann) == 404
        assert (await get(desk, desk.artifact_path(record)))[0].status == 200
        held = await desk.artifact(desk.scopes.of(None, principal), CONTENT)
        path = desk.artifact_path(held, signed=False)
        assert (await get(desk, path, **ann))[0].status == 200
        assert (await get(desk, path, **own, **ann))[0].status == 200
        assert await refused(desk, path, **ben) == 404


@pytest.mark.parametrize("made", [False, True], ids=["upload", "artifact"])
async def test_a_file_is_sent_to_whom_a_delivery_link_was_given(tmp_path: Path, made: bool) -> None:
    """Also what another tool made, whether downloads are on or not; no session id opens it, nor their links."""
    async with filing(tmp_path, downloads=not made) as desk:
        session_id, scope = await desk.session()
        record = await (desk.artifact if made else desk.uploaded)(scope, CONTENT, "名前.bin")
        head, body = await get(desk, desk.delivery_path(record))
        assert head.status == 200 and body == CONTENT
        assert (await get(desk, desk.delivery_path(record), range="bytes=0-4"))[1] == CONTENT[:5]
        unsigned = desk.delivery_path(record).partition("?")[0]
        assert await refused(desk, unsigned, mcp_session_id=session_id) == 401
        assert await refused(desk, desk.delivery_path(record, purpose="download")) == 401


# --- what is not there ----------------------------------------------------------------------------------------


async def test_what_is_not_there_is_404(desk: Desk) -> None:
    """Another name, another server, a file that was dropped or has expired, or whose bytes are gone."""
    session_id, scope = await desk.session()
    record = await desk.artifact(scope, CONTENT)
    path = desk.artifact_path(record)
    for other in (
        path.replace("shot.png", "other.png"),
        path.replace("/desk/", "/nobody/"),
        path.replace("/shot.png", ""),
        path.replace("shot.png", "%FF"),
        path.replace("shot.png", "a/shot.png"),
    ):
        assert await refused(desk, other) == 404
    for file_id in ("0" * 32, "x", "%00", "%ED%A0%80"):
        unknown = f"/artifacts/desk/{scope.id}/{file_id}/shot.png"
        assert await refused(desk, unknown, mcp_session_id=session_id) == 404
    (on_disk,) = desk.files()
    on_disk.unlink()
    assert await refused(desk, path) == 404
    expired = await desk.artifact(scope, CONTENT, "late.png")
    path = desk.artifact_path(expired, ttl=10_000)
    desk.clock.ahead = 601
    assert await refused(desk, path) == 404


async def test_what_something_else_has_changed_is_409(desk: Desk, scope: Scope) -> None:
    """The answer says what has happened, and the bytes stay where they are."""
    path = desk.artifact_path(await desk.artifact(scope, CONTENT))
    (on_disk,) = desk.files()
    on_disk.write_bytes(b"scribble")
    for _ in range(2):
        assert await refused(desk, path) == 409
    assert on_disk.read_bytes() == b"scribble"


async def test_downloads_are_off_unless_enabled(tmp_path: Path) -> None:
    """Then not even a good link says whether there is something."""
    async with filed(tmp_path, downloads=False) as (desk, scope):
        record = await desk.artifact(scope, CONTENT)
        assert await refused(desk, desk.artifact_path(record)) == 404
        uploaded = await desk.uploaded(scope, CONTENT)
        assert (await get(desk, desk.delivery_path(uploaded)))[0].status == 200


async def test_an_open_download_finishes_when_its_file_is_removed(tmp_path: Path) -> None:
    """A slow reader gets every byte of what it began to read, though nobody else can any more."""
    content = CONTENT * 2400
    async with filed(tmp_path) as (desk, scope), desk.client() as client:
        record = await desk.artifact(scope, content)
        await client.send("GET", b"", desk.artifact_path(record))
        head = await client.head()
        client.stop_reading()
        await desk.registry.drop_scope(scope.id)
        assert desk.files() == []
        client.read_on()
        assert sha256(await read_body(client.reader, head)) == sha256(content)


async def test_who_goes_away_in_the_middle_leaves_nothing_open(desk: Desk, scope: Scope) -> None:
    """Neither the file nor the socket: what was removed meanwhile frees its room on the disk."""
    path = desk.artifact_path(await desk.artifact(scope, CONTENT * 2400))
    before = descriptors()
    async with desk.client() as client:
        await client.send("GET", b"", path)
        await client.head()
        client.stop_reading()
        assert descriptors() > before
    await until(lambda: descriptors() <= before)


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_connection_goes_on_after_a_download_of_any_way(tmp_path: Path) -> None:
    """What the kernel sends and what is written stand behind each other in order, also when asked for at once."""
    async with filed(tmp_path) as (desk, scope), desk.client() as client:
        large = await desk.artifact(scope, CONTENT * 100, "large.bin")
        small = await desk.artifact(scope, CONTENT, "small.bin")
        for record in (large, small, large, large):
            await client.send("GET", b"", desk.artifact_path(record))
        for size in (100, 1, 100, 100):
            head = await client.head()
            assert await read_body(client.reader, head) == CONTENT * size


# --- methods and browsers -------------------------------------------------------------------------------------


async def test_other_methods_are_405_and_pages_may_read_what_they_need(tmp_path: Path) -> None:
    """A page at an allowed origin sees the name, the part and the tag of what it gets."""
    async with filed(tmp_path, cors_origins=[PAGE]) as (desk, scope):
        record = await desk.artifact(scope, CONTENT)
        for path in (desk.artifact_path(record), desk.delivery_path(record)):
            head, _ = await get(desk, path, "POST")
            assert head.status == 405 and head["allow"] == "GET, HEAD, OPTIONS"
            asked = {"access_control_request_method": "GET", "access_control_request_headers": "range"}
            head, _ = await get(desk, path, "OPTIONS", origin=PAGE, **asked)
            assert head.status == 204 and head["access-control-allow-methods"] == "GET, HEAD"
            assert head["access-control-allow-headers"] == "range"
        head, _ = await get(desk, desk.artifact_path(record), origin=PAGE)
        exposed = head["access-control-expose-headers"]
        assert "Content-Disposition" in exposed and "Content-Range" in exposed and "ETag" in exposed
        assert (
            await refused(desk, desk.artifact_path(record, signed=False), origin="https://evil.example")
            == 403
        )
        assert await refused(desk, desk.artifact_path(record), host="evil.example") == 421


@pytest.mark.parametrize("origin", ["https://widget.example", "null"])
async def test_pages_of_every_origin_may_read_what_a_link_leads_to(
    desk: Desk, scope: Scope, origin: str
) -> None:
    """Without credentials, and by links alone: the signature is the right. A program's answer has no such field."""
    record = await desk.artifact(scope, CONTENT)
    for path in (desk.artifact_path(record), desk.delivery_path(record)):
        head, body = await get(desk, path, origin=origin)
        assert (head.status, body, head["access-control-allow-origin"]) == (200, CONTENT, "*")
        assert head.get("access-control-allow-credentials") is None
        assert "Content-Disposition" in head["access-control-expose-headers"]
        assert (await get(desk, path))[0].get("access-control-allow-origin") is None
        head, _ = await get(desk, path.partition("?")[0], origin=origin)
        assert head.status == 403 and head.get("access-control-allow-origin") is None
