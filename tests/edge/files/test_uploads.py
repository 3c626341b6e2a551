"""Uploading over HTTP: who may, what a form may be, what the answer says, and what is left after a refusal."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.edge.files.multipart import Event, FileBegins, Form, Mark
from adapter.errors import UploadRefused
from adapter.relay.files.upload_batch import LEAST_FILL
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind
from tests.edge.filing import (
    BOUNDARY,
    FORM,
    MIB,
    PAGE,
    SERVER,
    Desk,
    field_part,
    file_part,
    filed,
    filing,
    form,
    part,
    send_form,
    sha256,
)
from tests.edge.raw import Head, read_body
from tests.waiting import until

ONE = form(file_part(b"hello"))
ONES = sha256(b"1")
NAMED = 'Content-Disposition: form-data; name="file"; '


async def upload(desk: Desk, path: str, body: bytes, **fields: str) -> tuple[Head, dict[str, Any]]:
    async with desk.client() as client:
        return await send_form(client, path, body, **fields)


async def refusal(desk: Desk, scope: Scope, body: bytes, **fields: str) -> tuple[int, str]:
    """Status and sentence of a refused upload; nothing of it may be left, and its credential be good still."""
    path, before = desk.upload_path(scope), desk.files()
    head, answer = await upload(desk, path, body, **fields)
    assert list(answer) == ["detail"] and desk.files() == before
    head_then, _ = await upload(desk, path, form(file_part(b"x")))
    assert head_then.status == 200
    return head.status, answer["detail"]


# --- the answer -----------------------------------------------------------------------------------------------


async def test_one_file_is_kept_and_told_of_in_full(desk: Desk, scope: Scope) -> None:
    """The answer for one file has its handle at the top too; what is kept is what was sent."""
    head, answer = await upload(desk, desk.upload_path(scope), ONE)
    assert head.status == 200
    one = answer["upload"]
    assert answer == {
        "server_id": SERVER,
        "session_id": scope.id,
        "uploads": [one],
        "upload_handles": [one["upload_handle"]],
        "count": 1,
        "upload_handle": f"upload://sessions/{scope.id}/{one['upload_id']}",
        "upload": one,
    }
    assert one == {
        "upload_handle": answer["upload_handle"],
        "upload_id": one["upload_id"],
        "filename": "a.txt",
        "mime_type": "text/plain",
        "size_bytes": 5,
        "sha256": sha256(b"hello"),
    }
    record = await desk.registry.find(scope.id, FileKind.UPLOAD, one["upload_id"])
    assert record is not None and await desk.read(record) == b"hello"


async def test_several_files_of_any_size_come_in_order(desk: Desk, scope: Scope) -> None:
    """Empty ones and ones of several reads, with their digests, other fields between them."""
    contents = [b"", b"x", bytes(range(256)) * 4096 * 2, b"\r\n--" + BOUNDARY.encode()[:5]]
    parts = [file_part(content, f"{number}.bin") for number, content in enumerate(contents)]
    digests = [field_part("sha256", sha256(content).upper() + " ") for content in contents]
    body = form(*digests[:1], field_part("note", "for you"), *parts, *digests[1:])
    head, answer = await upload(desk, desk.upload_path(scope), body)
    assert head.status == 200 and answer["count"] == 4 and "upload" not in answer
    assert [each["filename"] for each in answer["uploads"]] == ["0.bin", "1.bin", "2.bin", "3.bin"]
    assert [each["sha256"] for each in answer["uploads"]] == [sha256(content) for content in contents]
    assert [each["size_bytes"] for each in answer["uploads"]] == [len(content) for content in contents]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('filename="名前.txt"'.encode(), "名前.txt"),
        (b'filename="a%22b%0D%0A.txt"', 'a"b\r\n.txt'),
        (b'filename="a\\"b\\\\c.txt"', 'a"b\\c.txt'),
        (b'filename="C:\\temp\\a.txt"', "C:\\temp\\a.txt"),
        (b'filename="100%25.txt"', "100%25.txt"),
        (b"filename=plain.txt", "plain.txt"),
        (b'filename="a;b=c.txt"', "a;b=c.txt"),
        (b"filename=\"x.txt\"; filename*=UTF-8''%E2%82%AC.txt", "€.txt"),
        (b'filename="caf\xe9.txt"', "café.txt"),
        (b'filename="../../etc/passwd"', "../../etc/passwd"),
    ],
)
async def test_a_name_is_kept_as_its_sender_has_it(
    desk: Desk, scope: Scope, tmp_path: Path, said: bytes, meant: str
) -> None:
    """As browsers, curl and clients that still send extended values spell it; it is never a path."""
    body = b"--%s\r\n%s%s\r\n\r\nx\r\n" % (BOUNDARY.encode(), NAMED.encode(), said)
    head, answer = await upload(desk, desk.upload_path(scope), form(body))
    assert head.status == 200 and answer["upload"]["filename"] == meant
    (kept,) = desk.files()
    assert kept.relative_to(tmp_path / "uploads" / scope.id)


# --- who may --------------------------------------------------------------------------------------------------


async def test_a_signed_url_is_enough_and_good_for_one_batch(tmp_path: Path) -> None:
    """With auth on or off; used again it is 401, and so is any other that is not as it was issued."""
    for tokens in (None, {"ann": "ann-secret"}):
        async with filing(tmp_path / str(tokens is None), tokens=tokens) as desk:
            _, scope = await desk.session("ann")
            path = desk.upload_path(scope)
            for bad in (
                path[:-1],
                path.replace("sig=", "sig=x"),
                f"{path}&sig=x",
                path.replace("/desk", "/x"),
            ):
                head, _ = await upload(desk, bad, ONE)
                assert head.status == (404 if "/x?" in bad else 401)
            assert (await upload(desk, path, ONE))[0].status == 200
            head, answer = await upload(desk, path, ONE)
            assert head.status == 401 and list(answer) == ["detail"]
            late = desk.upload_path(scope)
            desk.clock.ahead = 121
            assert (await upload(desk, late, ONE))[0].status == 401
            assert len(desk.files()) == 1


async def test_a_session_id_beside_the_signature_must_be_of_its_scope(desk: Desk) -> None:
    """The public id or the session's own; another session's is 401 and burns nothing."""
    session_id, scope = await desk.session()
    other_id, other = await desk.session()
    path = desk.upload_path(scope)
    for wrong in (other_id, other.id, "x", "é"):
        assert (await upload(desk, path, ONE, mcp_session_id=wrong))[0].status == 401
    assert (await upload(desk, path, ONE, mcp_session_id=scope.id))[0].status == 200
    path = desk.upload_path(scope)
    assert (await upload(desk, path, ONE, mcp_session_id=session_id))[0].status == 200


async def test_without_a_signature_it_takes_the_sessions_own_id(desk: Desk) -> None:
    """The public id proves nothing, nor does an id of another server, of nobody, or none at all."""
    session_id, scope = await desk.session()
    elsewhere, _ = await desk.session(server="other")
    for fields in ({}, {"mcp_session_id": scope.id}, {"mcp_session_id": elsewhere}):
        assert (await upload(desk, "/upload/desk", ONE, **fields))[0].status == 401
    head, answer = await upload(desk, "/upload/desk", ONE, mcp_session_id=session_id)
    assert head.status == 200 and answer["session_id"] == scope.id


async def test_with_auth_on_it_also_takes_the_token(tmp_path: Path) -> None:
    """The principal's own session, or no session and the principal itself."""
    async with filing(tmp_path, tokens={"ann": "ann-secret", "ben": "ben-secret"}) as desk:
        ann = {"authorization": "Bearer ann-secret"}
        ben = {"x_mcp_adapter_auth_token": "ben-secret"}
        path = "/upload/desk"
        head, answer = await upload(desk, path, ONE, **ben)
        assert head.status == 200
        bens = answer["session_id"]
        assert (await upload(desk, path, ONE, **ann))[1]["session_id"] != bens
        head, _ = await upload(desk, path, ONE, authorization="Bearer wrong")
        assert head.status == 401 and head["www-authenticate"].startswith("Bearer")
        session_id, _ = await desk.session("somebody else")
        assert (await upload(desk, path, ONE, mcp_session_id=session_id))[0].status == 401
        head, _ = await upload(desk, path, ONE, mcp_session_id=session_id, **ann)
        assert head.status == 401 and head["www-authenticate"].startswith("Bearer")


async def test_who_may_not_is_told_before_the_body(desk: Desk, scope: Scope) -> None:
    """Nothing of the body need have been sent, and one that waits to be asked for is not asked for."""
    good = desk.upload_path(scope)
    cases: list[tuple[str, dict[str, str], int]] = [
        ("/upload/desk", {}, 401),
        ("/upload/nobody", {}, 404),
        ("/upload/desk/x", {}, 404),
        (good, {"host": "evil.example"}, 421),
        ("/upload/desk", {"origin": "https://evil.example"}, 403),
        (good, {"content_type": "application/json"}, 415),
        (good, {"content_type": "multipart/mixed; boundary=x"}, 415),
        (good, {"content_encoding": "gzip"}, 415),
        (good, {"content_type": "multipart/form-data"}, 400),
        (good, {"content_length": str(100 * MIB)}, 413),
    ]
    for path, fields, status in cases:
        async with desk.client() as client:
            given_ = {"content_type": FORM, "content_length": "1000", "expect": "100-continue", **fields}
            head, text = await client.request("POST", b"", path, **given_)
            assert head.status == status, (path, fields)
            assert list(orjson.loads(text)) == ["detail"]


# --- what a form may be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form at all",
        ONE[:-4],
        ONE[: len(ONE) // 2],
        form(),
        form(field_part("note", "x")),
        form(part(b"x", 'Content-Disposition: form-data; name="file"')),
        form(part(b"x", f'{NAMED}filename=""')),
        form(part(b"x", f'{NAMED}filename="a"', "Content-Transfer-Encoding: base64")),
        form(part(b"x", "no field at all")),
        form(part(b"x", f'{NAMED}filename="{"n" * 17_000}"')),
        form(part(b"x", f'{NAMED}filename="{"n" * 4_097}"')),
        form(part(b"x", *[f"X-{number}: x" for number in range(20)])),
        form(field_part("note", "x" * 100_000), file_part(b"x")),
        form(field_part("sha256", "0" * 1000), file_part(b"x")),
        form(file_part(b"x")) + b"epilogue" * 100_000,
        b"preamble" * 100_000 + b"\r\n" + form(file_part(b"x")),
        b"preamble" + form(file_part(b"x")),
        b"preamble\r\n" + form() + form(file_part(b"x")),
    ],
)
async def test_what_is_no_form_with_a_file_is_400(desk: Desk, scope: Scope, body: bytes) -> None:
    """Broken off, without a file, or with too much beside files: nothing is kept and the credential is good still."""
    status, detail = await refusal(desk, scope, body)
    assert status == 400 and detail


@pytest.mark.parametrize(
    "preamble",
    [
        b"",
        b"\r\n",
        b"This is a message in MIME format.\r\n",
        b"--\r\n--other\r\nContent-Disposition: form-data\r\n\r\nx\r\n",
        b"a--" + BOUNDARY.encode() + b"\r\n",
        b"preamble " * 1000 + b"\r\n",
    ],
)
async def test_what_stands_before_and_behind_the_form_harms_nothing(
    desk: Desk, scope: Scope, preamble: bytes
) -> None:
    """A preamble up to the first line that is a delimiter, and an epilogue (RFC 2046 §5.1.1)."""
    body = preamble + ONE + b"epilogue\r\n" + ONE
    head, answer = await upload(desk, desk.upload_path(scope), body)
    assert head.status == 200 and answer["upload"]["size_bytes"] == 5
    assert len(desk.files()) == 1


@pytest.mark.parametrize(
    ("digests", "sentence"),
    [
        ([ONES, sha256(b"3")], "file 2"),
        ([sha256(b"2"), ONES], "file 1"),
        ([ONES], "2 files and 1 digest"),
        ([ONES] * 3, "2 files and 3 digests"),
        *(([ONES, odd], "file 2") for odd in ("x", "", "é")),
    ],
)
async def test_a_digest_that_does_not_fit_is_400(
    desk: Desk, scope: Scope, digests: list[str], sentence: str
) -> None:
    """Another file's, one too few or too many, or none at all: no file of the upload is kept."""
    files = [file_part(b"1"), file_part(b"2")]
    body = form(*files, *[field_part("sha256", digest) for digest in digests])
    status, detail = await refusal(desk, scope, body)
    assert status == 400 and sentence in detail


async def test_digests_are_asked_for_where_configured(tmp_path: Path) -> None:
    """The refusal names the setting."""
    async with filed(tmp_path, require_sha256=True) as (desk, scope):
        head, answer = await upload(desk, desk.upload_path(scope), ONE)
        assert head.status == 400 and "uploads.require_sha256" in answer["detail"]
        body = form(file_part(b"hello"), field_part("sha256", sha256(b"hello")))
        assert (await upload(desk, desk.upload_path(scope), body))[0].status == 200


# --- limits, while reading ------------------------------------------------------------------------------------


async def test_a_file_too_large_is_413_as_soon_as_it_is(tmp_path: Path) -> None:
    """The rest is not waited for; the answer is read though more was announced, and names the setting."""
    async with filed(tmp_path, max_file_bytes=1000, max_files=3) as (desk, scope):
        assert (await refusal(desk, scope, form(file_part(b"x" * 1001))))[0] == 413
        announced = {"content_type": FORM, "content_length": "60000"}
        async with desk.client() as client:
            body = file_part(b"x" * 2000)
            head, text = await client.request("POST", body, desk.upload_path(scope), **announced)
            assert head.status == 413 and "uploads.max_file_bytes" in orjson.loads(text)["detail"]


async def test_more_files_than_allowed_are_413(tmp_path: Path) -> None:
    """uploads.max_files is of one batch."""
    async with filed(tmp_path, max_files=2) as (desk, scope):
        status, detail = await refusal(desk, scope, form(*[file_part(b"x")] * 3))
        assert status == 413 and "uploads.max_files" in detail
        assert (await upload(desk, desk.upload_path(scope), form(*[file_part(b"x")] * 2)))[0].status == 200


async def test_more_than_the_quota_is_429_and_all_the_disk_507(tmp_path: Path) -> None:
    """Said before the body where its length says it, while reading where it does not; each names its setting."""
    async with filed(tmp_path / "a", quota=100_000) as (desk, scope):
        for size in (100_001, 900_000):
            status, detail = await refusal(desk, scope, form(file_part(b"x" * size)))
            assert status == 429 and "sessions.max_total_session_size" in detail
    async with filed(tmp_path / "b", total=100_000) as (desk, scope):
        status, detail = await refusal(desk, scope, form(file_part(b"x" * 100_001)))
        assert status == 507 and "storage.max_size" in detail


async def test_a_refused_upload_can_read_its_answer_while_it_still_sends(tmp_path: Path) -> None:
    """What still arrives is thrown away for a moment, so that no reset takes the answer with it."""
    async with (
        filed(tmp_path, max_file_bytes=1000, max_files=10_000) as (desk, scope),
        desk.client() as client,
    ):
        said = {"content_type": FORM, "content_length": str(9 * MIB)}
        await client.send("POST", file_part(b"x" * 2 * MIB), desk.upload_path(scope), **said)
        await client.send_more(b"x" * 6 * MIB)
        assert (await client.head()).status == 413


# --- large files, which threads read from the socket ------------------------------------------------------------

FALSE = b"\r\n--" + BOUNDARY.encode() + b"x"
"""Not a delimiter, though it begins as one."""


async def test_large_files_are_kept_as_they_were_sent(tmp_path: Path) -> None:
    """Random bytes, a file of false delimiters and one of their beginnings, small ones between, on one connection."""
    contents = [
        random.Random(1).randbytes(3 * MIB),
        b"small",
        FALSE * (2 * MIB // len(FALSE)),
        b"",
        FALSE[:-2] * (2 * MIB // (len(FALSE) - 2)),
        b"\r" * 2 * MIB,
        b"last",
    ]
    parts = [file_part(content, f"{number}.bin") for number, content in enumerate(contents)]
    digests = [field_part("sha256", sha256(content)) for content in contents]
    async with filed(tmp_path, max_files=7) as (desk, scope), desk.client() as client:
        for _ in range(2):
            head, answer = await send_form(client, desk.upload_path(scope), form(*parts, *digests))
            assert head.status == 200
            assert [each["sha256"] for each in answer["uploads"]] == [sha256(content) for content in contents]
            assert [each["size_bytes"] for each in answer["uploads"]] == [
                len(content) for content in contents
            ]


async def test_a_pause_within_the_last_delimiter_ends_nothing(tmp_path: Path) -> None:
    """Wherever the network cuts the end of a form, also where less is still to come than has come of the delimiter."""
    preamble = b"x" * LEAST_FILL + b"\r\n"  # else the last bytes of a body come by the loop
    whole = preamble + form(file_part(b"x" * 2 * MIB))
    said = {"content_type": FORM, "content_length": str(len(whole))}
    async with filed(tmp_path) as (desk, scope), desk.client() as client:
        for left in range(1, len(FALSE) + 4):
            kept = len(desk.files())
            await client.send("POST", whole[:-left], desk.upload_path(scope), **said)
            async with asyncio.timeout(20):
                while sum(file.stat().st_size for file in desk.files()) < (kept + 1) * 2 * MIB:
                    await asyncio.sleep(0.001)
                await client.send_more(whole[-left:])
                head = await client.head()
                assert (head.status, left) == (200, left)
                await read_body(client.reader, head)


@pytest.mark.parametrize("size", [2 * MIB, 2 * MIB + 40_000])
async def test_a_large_file_may_have_all_that_its_limit_allows(tmp_path: Path, size: int) -> None:
    """Not a byte more; neither the limit of a file nor the quota of its scope nor that of the disk."""
    for name, limit in {"max_file_bytes": 413, "quota": 429, "total": 507}.items():
        limits = {"quota": None, "total": None, "max_file_bytes": 4 * MIB, name: size}
        async with filed(tmp_path / name, **limits) as (desk, scope):
            head, answer = await upload(desk, desk.upload_path(scope), form(file_part(b"x" * size)))
            assert head.status == 200 and answer["upload"]["sha256"] == sha256(b"x" * size)
            record = await desk.registry.find(scope.id, FileKind.UPLOAD, answer["upload"]["upload_id"])
            assert record is not None
            await desk.registry.drop(record)
            assert (await refusal(desk, scope, form(file_part(b"x" * (size + 1)))))[0] == limit


async def test_a_large_upload_that_ends_amid_a_file_leaves_nothing(tmp_path: Path) -> None:
    """One that stalls is 408; one whose body has no last delimiter is 400; one whose client leaves is just gone."""
    whole = form(file_part(b"x" * 3 * MIB))
    async with filed(tmp_path, stall_timeout=0.3) as (desk, scope):
        said = {"content_type": FORM, "content_length": str(len(whole))}
        async with desk.client() as client:
            head, text = await client.request("POST", whole[: 2 * MIB], desk.upload_path(scope), **said)
            assert head.status == 408 and "uploads.stall_timeout_seconds" in orjson.loads(text)["detail"]
        assert desk.files() == []
        assert (await refusal(desk, scope, whole[: 2 * MIB]))[0] == 400
        kept = desk.files()
        async with desk.client() as client:
            await client.send("POST", whole[: 2 * MIB], desk.upload_path(scope), **said)
            await until(lambda: desk.files() != kept)
        await until(lambda: desk.files() == kept)


async def test_half_of_a_large_upload_takes_no_memory(tmp_path: Path) -> None:
    """Of twenty clients that have sent a half, and then wait, nothing is held: what came is on disk."""
    whole = form(file_part(b"x" * 2 * MIB))
    said = {"content_type": FORM, "content_length": str(len(whole))}
    async with filed(tmp_path) as (desk, scope), contextlib.AsyncExitStack() as clients:
        everyone = [await clients.enter_async_context(desk.client()) for _ in range(20)]
        tracemalloc.start()
        for client in everyone:
            await client.send("POST", whole[:MIB], desk.upload_path(scope), **said)
        async with asyncio.timeout(20):
            await until(lambda: sum(file.stat().st_size for file in desk.files()) >= 20 * (MIB - 400))
            await until(lambda: tracemalloc.get_traced_memory()[0] <= MIB)
        tracemalloc.stop()
        for client in everyone:
            await client.send_more(whole[MIB:])
            assert (await client.head()).status == 200


# --- time and leaving -----------------------------------------------------------------------------------------


async def test_a_stalled_upload_is_408_and_nothing_is_left(tmp_path: Path) -> None:
    """Silence ends it, wherever in the body it falls."""
    async with filed(tmp_path, stall_timeout=0.05) as (desk, scope):
        for begun in (b"", ONE[:10], ONE[:-10]):
            async with desk.client() as client:
                said = {"content_type": FORM, "content_length": str(len(ONE))}
                head, text = await client.request("POST", begun, desk.upload_path(scope), **said)
                assert head.status == 408
                assert "uploads.stall_timeout_seconds" in orjson.loads(text)["detail"]
        assert desk.files() == []


@pytest.mark.parametrize("kept", [64, 20], ids=["all-fit", "more-than-fit"])
async def test_64_uploads_at_once_keep_to_the_quota_to_the_byte(tmp_path: Path, kept: int) -> None:
    """What fits is never refused, and on disk is just what fits: old ones made room for the others."""
    size = 10_000
    async with filed(tmp_path, quota=kept * size) as (desk, scope):
        body = form(file_part(b"x" * size))
        answers = await asyncio.gather(*(upload(desk, desk.upload_path(scope), body) for _ in range(64)))
        assert {head.status for head, _ in answers} == {200}
        assert desk.registry.used(scope.id) == kept * size
        assert sum(file.stat().st_size for file in desk.files()) == kept * size


# --- methods and browsers -------------------------------------------------------------------------------------


async def test_other_methods_are_405_and_told_which_are_served(tmp_path: Path) -> None:
    """OPTIONS tells it too; a page at an allowed origin gets a preflight answer and may read the result."""
    async with filing(tmp_path, cors_origins=[PAGE]) as desk, desk.client() as client:
        for method in ("GET", "PUT", "DELETE"):
            head, _ = await client.request(method, b"", "/upload/desk")
            assert head.status == 405 and head["allow"] == "POST, OPTIONS"
        head, _ = await client.request("OPTIONS", b"", "/upload/desk")
        assert head.status == 204 and head["allow"] == "POST, OPTIONS"
        asked = {"origin": PAGE, "access_control_request_method": "POST"}
        head, _ = await client.request("OPTIONS", b"", "/upload/desk", **asked)
        assert head["access-control-allow-methods"] == "POST"
        assert head["access-control-allow-origin"] == PAGE
        head, _ = await send_form(client, "/upload/desk", ONE, origin=PAGE)
        assert head.status == 401 and head["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", ["https://widget.example", "null"])
async def test_pages_of_every_origin_may_use_a_link(desk: Desk, scope: Scope, origin: str) -> None:
    """After a preflight, without credentials; what they may not do without a link stays refused."""
    path = desk.upload_path(scope)
    asked = {"origin": origin, "access_control_request_method": "POST"}
    async with desk.client() as client:
        head, _ = await client.request("OPTIONS", b"", path, access_control_request_headers="x-a", **asked)
        assert head.status == 204 and head["access-control-allow-origin"] == "*"
        assert (
            head["access-control-allow-headers"] == "x-a" and "POST" in head["access-control-allow-methods"]
        )
        head, _ = await send_form(client, path, ONE, origin=origin)
        assert head.status == 200 and head["access-control-allow-origin"] == "*"
        assert head.get("access-control-allow-credentials") is None and head["vary"] == "Origin"
        head, answer = await send_form(client, path, ONE, origin=origin)
        assert head.status == 401 and head["access-control-allow-origin"] == "*" and answer["detail"]
        for method in ("OPTIONS", "POST", "GET"):
            head, _ = await client.request(method, b"", "/upload/desk", content_type=FORM, **asked)
            assert head.status == 403 and head.get("access-control-allow-origin") is None


# --- the form's reader ----------------------------------------------------------------------------------------


def read(pieces: list[bytes]) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The files and digests of a form that comes in these pieces."""
    reader = Form(BOUNDARY.encode(), beside=100_000)
    files: list[tuple[str, bytes]] = []
    events: list[Event] = [event for piece in pieces for event in reader.feed(piece)]
    reader.end()
    for event in events:
        if isinstance(event, FileBegins):
            files.append((event.filename, b""))
        elif isinstance(event, bytes):
            files[-1] = (files[-1][0], files[-1][1] + event)
        else:
            assert event is Mark.FILE_ENDS
    return files, reader.digests


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [f"--{BOUNDARY}".encode(), b"--", b"\r\n", NAMED.encode(), b'filename="a"', b":"]
            ),
            st.binary(max_size=20),
        ),
        max_size=12,
    )
)
def test_hostile_bytes_are_a_form_or_refused(pieces: list[bytes]) -> None:
    """Nothing but UploadRefused ever comes out of reading."""
    try:
        read(pieces)
    except UploadRefused as refused:
        assert str(refused)
