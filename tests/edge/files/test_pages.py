"""Pages of signed links as they are served: who gets one, under which fields, and what all others get as before."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import orjson
import pytest

from adapter.rules.access.principals import Scope
from tests.edge.filing import FORM, PAGE, Desk, file_part, filed, form
from tests.edge.raw import Head, read_body

HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ONE = form(file_part(b"hello", "<b>one</b>.txt"))


async def ask(desk: Desk, method: str, path: str, body: bytes = b"", **fields: str) -> tuple[Head, str]:
    async with desk.client() as client:
        await client.send(method, body, path, **{"accept": HTML, "content_type": FORM, **fields})
        head = await client.head()
        return head, "" if method == "HEAD" else (await read_body(client.reader, head)).decode()


def check_fields(head: Head, body: str) -> None:
    """Nothing may be loaded, framed, kept or told to others; what is inline is named by its digest."""
    policy = head["content-security-policy"]
    assert head["content-type"] == "text/html; charset=utf-8" and head["cache-control"] == "no-store"
    assert head["referrer-policy"] == "no-referrer" and head["x-content-type-options"] == "nosniff"
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
        assert part in policy
    for _, text in re.findall(r"<(style|script)[^>]*>(.*?)</\1>", body, re.DOTALL):
        assert f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy and "http" not in policy and " src=" not in body


async def test_looking_at_a_link_uses_nothing_up(desk: Desk, scope: Scope) -> None:
    """The page may be opened, and looked at by previews, any number of times; then the upload is taken."""
    path = desk.upload_path(scope)
    for method in ("GET", "HEAD", "GET"):
        head, body = await ask(desk, method, path)
        assert head.status == 200 and ("up to 5 files of 4 MB" in body) == (method == "GET")
    check_fields(head, body)
    head, body = await ask(desk, "POST", path, ONE)
    check_fields(head, body)
    assert head.status == 200 and "&lt;b&gt;one&lt;/b&gt;.txt" in body and "<b>" not in body
    assert f"upload://sessions/{scope.id}/" in body
    assert (await ask(desk, "GET", path))[0].status == 401


JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
"""What HttpURLConnection sends for a program that sets no Accept."""


async def test_programs_get_what_they_got(desk: Desk, scope: Scope) -> None:
    """Whoever does not prefer HTML gets JSON, and no GET."""
    path = desk.upload_path(scope)
    for accept in ("*/*", "application/json", "application/json, text/html", "text/html;q=0, */*", JAVA):
        for query in (path, path.partition("?")[0]):
            for method in ("GET", "HEAD"):
                head, body = await ask(desk, method, query, accept=accept)
                assert (head.status, head["allow"]) == (405, "POST, OPTIONS")
                assert body in ("", '{"detail":"This HTTP method is not served here."}')
                assert [name.lower() for name, _ in head.fields] == [
                    "content-type", "x-content-type-options", "allow", "date", "server", "content-length",
                ]  # fmt: skip
    for accept in ("application/json, text/html", JAVA):
        head, body = await ask(desk, "POST", desk.upload_path(scope), ONE, accept=accept)
        assert head.status == 200 and orjson.loads(body)["count"] == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_link_that_is_not_good_is_a_page(desk: Desk, scope: Scope, method: str) -> None:
    """With the status that programs get, for all reasons the same one."""
    path = desk.upload_path(scope)
    bodies = set()
    for bad in (path[:-2], path.replace("sid=", "sid=0"), f"{path}&sig=x"):
        head, body = await ask(desk, method, bad, ONE if method == "POST" else b"")
        assert head.status == 401 and head["www-authenticate"].startswith("Bearer")
        check_fields(head, body)
        bodies.add(body)
    desk.clock.ahead = 3600
    bodies.add((await ask(desk, method, path, ONE if method == "POST" else b""))[1])
    assert len(bodies) == 1 and "ask your assistant for a new upload link" in bodies.pop()
    assert (await ask(desk, "GET", "/upload/nobody?sig=x"))[0].status == 404


async def test_a_bare_path_says_that_the_link_is_not_complete(desk: Desk) -> None:
    """A mail program may have cut it; only a person who looks is told, and a foreign page sends nothing."""
    head, body = await ask(desk, "GET", "/upload/desk")
    assert head.status == 401 and "not complete" in body
    head, body = await ask(desk, "POST", "/upload/desk", ONE, origin=PAGE)
    assert head.status == 403 and list(orjson.loads(body)) == ["detail"]


async def test_a_form_without_an_origin_is_taken(desk: Desk, scope: Scope) -> None:
    """No referrer means ``Origin: null`` in a form; the signature is the right, wherever the form stood."""
    assert (await ask(desk, "POST", desk.upload_path(scope), ONE, origin="null"))[0].status == 200


async def test_a_refused_form_is_a_page_with_a_way_back(tmp_path: Path) -> None:
    """It says what was wrong, keeps nothing and the link is good still."""
    async with filed(tmp_path, max_file_bytes=4) as (desk, scope):
        path = desk.upload_path(scope)
        head, body = await ask(desk, "POST", path, ONE)
        assert head.status == 413 and "uploads.max_file_bytes" in body and 'href=""' in body
        check_fields(head, body)
        assert not desk.files()
        assert (await ask(desk, "POST", path, form(file_part(b"1234"))))[0].status == 200


async def test_a_limit_of_one_file_is_said(tmp_path: Path) -> None:
    """The form takes one file then; digests that are required need JavaScript, and the page says so."""
    async with filed(tmp_path, max_files=1, require_sha256=True, quota=2048) as (desk, scope):
        _, body = await ask(desk, "GET", desk.upload_path(scope))
        assert "one file of up to 4 MB (all together 2 KB)" in body
        assert " multiple" not in body.partition("<script")[0] and "<noscript>" in body


# --- files that tools wrote -----------------------------------------------------------------------------------


async def test_a_file_that_may_act_is_announced(desk: Desk, scope: Scope) -> None:
    """To a browser that opens the link; the button and all programs get the file itself."""
    record = await desk.artifact(scope, b"<script>1</script>", '"><i>.html')
    path = desk.artifact_path(record)
    head, body = await ask(desk, "GET", path, sec_fetch_mode="navigate")
    check_fields(head, body)
    assert head.status == 200 and "&quot;&gt;&lt;i&gt;.html" in body and "18 bytes" in body
    for accept, mode in (("*/*", "navigate"), (HTML, "cors")):
        assert (await ask(desk, "GET", path, accept=accept, sec_fetch_mode=mode))[1] == "<script>1</script>"
    assert (await ask(desk, "GET", path))[1] == "<script>1</script>"
    head, body = await ask(desk, "GET", f"{path}&download=1", sec_fetch_mode="navigate")
    assert body == "<script>1</script>" and head["content-disposition"].startswith("attachment")


async def test_a_picture_is_what_it_was(desk: Desk, scope: Scope) -> None:
    """What only shows something comes at once, with the same fields as for a program."""
    path = desk.artifact_path(await desk.artifact(scope, b"\x89PNG\r\n\x1a\n", "a.png"))
    opened, _ = await ask(desk, "HEAD", path, sec_fetch_mode="navigate")
    plain, _ = await ask(desk, "HEAD", path, accept="*/*")
    assert opened.status == 200 and opened["content-type"] == "image/png"
    assert [name for name, _ in opened.fields] == [name for name, _ in plain.fields]


async def test_a_file_that_is_gone_is_a_page(desk: Desk, scope: Scope) -> None:
    """With the status that programs get."""
    record = await desk.artifact(scope, b"x", "a.zip")
    for path, status in (
        (desk.artifact_path(record, ttl=-2), 401),
        (desk.artifact_path(record) + "&sig=1", 401),
    ):
        head, body = await ask(desk, "GET", path, sec_fetch_mode="navigate")
        assert head.status == status and "Ask your assistant" in body
        check_fields(head, body)
        assert list(orjson.loads((await ask(desk, "GET", path))[1])) == ["detail"]
