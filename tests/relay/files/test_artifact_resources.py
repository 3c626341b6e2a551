"""Artifacts as resources: how they are listed behind the upstream's, and what reading one answers."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.relay.files.artifact_resources import CURSOR, PAGE
from adapter.relay.files.file_transactions import NewFile
from adapter.rules.access.principals import Scope, principal_scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from adapter.upstream.port import UpstreamRequest
from tests.relay.tooling import DOCUMENT, META, PNG, Act, Tools, answering, tools, uri_of
from tests.scripted import ScriptedAnswer

UPSTREAMS = '{"uri":"file:///a","name":"a","n":1.50}'
GUIDE = {"uri": "doc://guide.md", "name": "guide.md", "title": "Guide", "mimeType": "text/markdown"}
UNKNOWN_METHOD = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'
NUMBERS = itertools.count()
"""Ids in the order of their files, where the clock stands still."""
ANYBODY = principal_scope(b"", "anonymous")


async def kept(process: Tools, data: bytes = b"made", name: str = "a.txt", **more: Any) -> FileRecord:
    """An artifact of the session, or of another scope or server."""
    scope: Scope = more.pop("scope", process.scope)
    staging = process.files.stage()
    await staging.write(data)
    number = next(NUMBERS)
    place = Place(FileKind.ARTIFACT, scope.id, f"{number:032x}", f"{number}.bin")
    file = NewFile(more.pop("server", "one"), name, await staging.finish(), **more)
    return await process.registry.keep_artifact(scope, place, file, staging)


def uris(response: dict[str, Any]) -> list[str]:
    return [each["uri"] for each in response["result"]["resources"]]


# --- listed ---------------------------------------------------------------------------------------------------


async def test_own_resources_follow_the_upstreams(tmp_path: Path) -> None:
    """The upstream's entries keep their bytes; documents and artifacts come behind."""
    upstream = f'"resources":[ {UPSTREAMS} ], "x":1e2'
    async with tools(tmp_path, answering(upstream)) as one:
        record = await kept(one, PNG, "bild ü.png")
        body = b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}'
        raw = await one.post(body)
        assert raw.startswith(b'{"jsonrpc":"2.0","id":1,"result":{"resources":[ ' + UPSTREAMS.encode())
        assert b' ], "x":1e2' in raw and one.upstream.requests[0].body == body
        _, guide, artifact = orjson.loads(raw)["result"]["resources"]
        assert guide == GUIDE and artifact["uri"] == uri_of(record)
        assert (artifact["name"], artifact["mimeType"], artifact["size"]) == ("bild ü.png", "image/png", 208)


async def test_many_artifacts_come_in_pages(tmp_path: Path) -> None:
    """The pages behind the upstream's are the adapter's own; one that expired meanwhile ends none of them."""
    async with tools(tmp_path, answering(f'"resources":[{UPSTREAMS}]')) as one:
        records = [await kept(one) for _ in range(2 * PAGE + 1)]
        first = await one.request("resources/list", {})
        assert len(uris(first)) == PAGE + 2
        cursor = first["result"]["nextCursor"]
        assert cursor.startswith(CURSOR)
        await one.registry.drop(records[PAGE - 1])
        second = await one.request("resources/list", {"cursor": cursor})
        third = await one.request("resources/list", {"cursor": second["result"]["nextCursor"]})
        assert "nextCursor" not in third["result"] and len(one.upstream.requests) == 1
        listed = [*uris(first)[2:], *uris(second), *uris(third)]
        assert listed == [uri_of(record) for record in records]


async def test_cursor_that_is_none_is_refused(tmp_path: Path) -> None:
    """One that begins like the adapter's own, but is not."""
    async with tools(tmp_path, answering("")) as one:
        came = await one.request("resources/list", {"cursor": CURSOR + "x"})
        assert came["error"]["code"] == -32602 and one.upstream.requests == []


@pytest.mark.parametrize("cursor", [{}, {"cursor": None}])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("status", [200, 404])
async def test_upstream_without_resources(
    tmp_path: Path, cursor: dict[str, Any], modern: bool, status: int
) -> None:
    """It says so with an error, in the modern era with a status too; the adapter's own are listed all the same."""
    async with tools(tmp_path, lambda request: ScriptedAnswer(status, chunks=[UNKNOWN_METHOD])) as one:
        record = await kept(one, scope=ANYBODY if modern else one.scope)
        if status == 404 and not modern:
            return  # to a legacy client's session it means that the session is gone
        meta = {"_meta": META} if modern else {}
        came = await one.request("resources/list", {**cursor, **meta}, modern=modern)
        assert uris(came) == ["doc://guide.md", uri_of(record)]
        templates = await one.request("resources/templates/list", meta, modern=modern)
        assert templates["result"]["resourceTemplates"] == []
        for answer in (came, templates):
            cache = {key: answer["result"].get(key) for key in ("resultType", "ttlMs", "cacheScope")}
            expected = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            assert cache == (expected if modern else dict.fromkeys(expected))


async def test_templates_of_an_upstream_stay(tmp_path: Path) -> None:
    """The adapter has none of its own."""
    async with tools(tmp_path, answering('"resourceTemplates":[{"uriTemplate":"a://{x}"}]')) as one:
        came = await one.request("resources/templates/list", {})
        assert came["result"]["resourceTemplates"] == [{"uriTemplate": "a://{x}"}]


async def test_modern_list_with_additions_is_private(tmp_path: Path) -> None:
    """How long it may be kept stays the upstream's word; who may share it does not."""
    members = '"resultType":"complete","resources":[],"ttlMs":5000,"cacheScope":"public"'
    async with tools(tmp_path, answering(members)) as one:
        came = (await one.request("resources/list", {"_meta": META}, modern=True))["result"]
        assert (came["resultType"], came["ttlMs"], came["cacheScope"]) == ("complete", 5000, "private")
        assert came["resources"] == [GUIDE]


async def test_what_is_not_to_be_seen_is_not_listed(tmp_path: Path) -> None:
    """Another scope's, another server's, what is not exposed, and what has expired."""
    async with tools(tmp_path, answering('"resources":[]')) as one:
        expired = await kept(one)
        one.clock.now += 101
        await kept(one, scope=ANYBODY)
        await kept(one, server="two")
        await kept(one, exposed=False)
        seen = await kept(one)
        assert uris(await one.request("resources/list", {})) == ["doc://guide.md", uri_of(seen)]
        assert expired.id != seen.id


async def test_failed_list_leaves_as_it_came(tmp_path: Path) -> None:
    """Nothing is added to what is no list."""
    failed = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}'
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[failed])) as one:
        assert await one.post(b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}') == failed


# --- read -----------------------------------------------------------------------------------------------------


def nobody() -> Act:
    """An upstream that must not be asked."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        raise AssertionError(f"asked for {request.body!r}")

    return act


@pytest.mark.parametrize(
    ("data", "name", "media_type", "text"),
    [
        ("héllo".encode(), "a.txt", "text/plain", True),
        (b'{"a":1}', "a.json", "application/json", True),
        (PNG, "a.png", "image/png", False),
        (b"\xff\xfe\x00", "a.txt", "text/plain", False),
        (b"", "a.txt", "text/plain", True),
    ],
)
async def test_artifact_is_read_as_text_or_blob(
    tmp_path: Path, data: bytes, name: str, media_type: str, text: bool
) -> None:
    """Text types as text where they are, everything else in base64; the upstream is not asked."""
    async with tools(tmp_path, nobody()) as one:
        record = await kept(one, data, name)
        (held,) = (await one.request("resources/read", {"uri": uri_of(record)}))["result"]["contents"]
        assert held["uri"] == uri_of(record) and held["mimeType"] == media_type
        assert (held["text"].encode() if text else base64.b64decode(held["blob"])) == data


async def test_modern_reads_say_how_long_they_are_good(tmp_path: Path) -> None:
    """Complete, not to be kept, and nobody else's."""
    async with tools(tmp_path, nobody()) as one:
        record = await kept(one, scope=ANYBODY)
        for uri in (uri_of(record), DOCUMENT.uri):
            came = await one.request("resources/read", {"uri": uri, "_meta": META}, modern=True)
            assert came["result"]["resultType"] == "complete"
            assert (came["result"]["ttlMs"], came["result"]["cacheScope"]) == (0, "private")


async def test_document_is_read(tmp_path: Path) -> None:
    """What the adapter has to say about uploads, as Markdown."""
    async with tools(tmp_path, nobody()) as one:
        came = await one.request("resources/read", {"uri": DOCUMENT.uri})
        shown = {"uri": DOCUMENT.uri, "mimeType": "text/markdown", "text": DOCUMENT.text}
        assert came["result"] == {"contents": [shown]}


@pytest.mark.parametrize(("modern", "code"), [(False, -32002), (True, -32602)])
async def test_what_cannot_be_read_never_was(tmp_path: Path, modern: bool, code: int) -> None:
    """Another scope's, what expired, what is not exposed, another name and what never was get the same answer."""
    async with tools(tmp_path, nobody()) as one:
        mine, others = (ANYBODY, one.scope) if modern else (one.scope, ANYBODY)
        expired = uri_of(await kept(one, scope=mine))
        one.clock.now += 101
        foreign = uri_of(await kept(one, scope=others))
        hidden = uri_of(await kept(one, scope=mine, exposed=False))
        renamed = uri_of(await kept(one, scope=mine)).replace("a.txt", "b.txt")
        vanished = await kept(one, scope=mine, name="gone.txt")
        (tmp_path / "artifacts" / vanished.scope / vanished.id / vanished.place.name).unlink()
        never = f"artifact://sessions/{mine.id}/{'e' * 32}/a.txt"
        escaping = f"{uri_of(vanished)}/../../x"
        meta = {"_meta": META} if modern else {}
        answers = []
        for uri in (
            expired,
            foreign,
            hidden,
            renamed,
            uri_of(vanished),
            never,
            escaping,
            "artifact://sessions/",
        ):
            answer = await one.request("resources/read", {"uri": uri, **meta}, modern=modern)
            assert answer["error"]["data"].pop("uri") == uri
            answers.append(answer)
        assert answers[0]["error"]["code"] == code and all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("downloads", [True, False])
async def test_large_artifact_is_to_be_downloaded(tmp_path: Path, downloads: bool) -> None:
    """The error names the limit's setting and the URL, or the setting that would give one."""
    async with tools(tmp_path, nobody(), resource_limit=10, downloads=downloads) as one:
        fits, exceeds = await kept(one, b"x" * 10), await kept(one, b"x" * 11)
        assert "result" in await one.request("resources/read", {"uri": uri_of(fits)})
        error = (await one.request("resources/read", {"uri": uri_of(exceeds)}))["error"]
        assert "artifacts.max_resource_bytes" in error["message"]
        url = f"http://adapter.test/artifacts/one/{exceeds.scope}/{exceeds.id}/a.txt?exp="
        assert (url if downloads else "core.allow_artifacts_download") in error["message"]
        assert error["data"].get("download_url", "").startswith(url) == downloads


async def test_upstreams_own_resources_of_that_scheme_are_its_own(tmp_path: Path) -> None:
    """What cannot be an artifact of the adapter's is asked of the upstream; one without any gets no such error."""
    async with tools(tmp_path, answering('"contents":[{"uri":"artifact://x","text":"theirs"}]')) as one:
        came = await one.request("resources/read", {"uri": "artifact://x"})
        assert came["result"]["contents"][0]["text"] == "theirs"
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[UNKNOWN_METHOD])) as one:
        assert (await one.request("resources/read", {"uri": "artifact://x"}))["error"]["code"] == -32002
