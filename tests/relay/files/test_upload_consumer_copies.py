"""Tools that change the file that they are given: what they work on, what is kept, and what their client is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import FileChanged
from adapter.files.lending import KEPT
from adapter.files.port import CaptureLimit
from adapter.rules.access.principals import principal_scope
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.upstream.port import UpstreamRequest
from adapter.wire.signed_urls import upload_handle
from tests.relay.tooling import (
    META,
    READ,
    Act,
    Tools,
    arguments_of,
    producing,
    result,
    said,
    tools,
    uri_of,
    writing,
)
from tests.scripted import ScriptedAnswer
from tests.waiting import until

Change = Callable[[Path], object]

EDITS = producing(edits=True, argument=None)
DAY = 86_400


def changing(change: Change, answer: Callable[[Path], bytes] = lambda _: said("Heading added.")) -> Act:
    """A tool that does something to each file that it is given."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        for path in given(request):
            change(path)
        return ScriptedAnswer(chunks=[answer(given(request)[0])])

    return act


def given(request: UpstreamRequest) -> list[Path]:
    """The paths that the tool was called with."""
    path = arguments_of(request)["path"]
    return [Path(each.removeprefix("file://")) for each in ([path] if isinstance(path, str) else path)]


def more(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" and more")


def same_size(path: Path) -> None:
    path.write_bytes(path.read_bytes().upper())


def replaced(path: Path) -> None:
    path.with_name("temporary").write_bytes(b"other")
    path.with_name("temporary").replace(path)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def nothing(path: Path) -> None:
    assert path.read_bytes()


async def bytes_of(one: Tools, record: FileRecord) -> bytes:
    opened = await one.registry.read(record)
    try:
        return await opened.whole()
    finally:
        opened.close()


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines of the log so far."""
    return [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]


def calling(*records: FileRecord) -> str:
    """The arguments that name these uploads."""
    return f'{{"path":{[upload_handle(each.scope, each.id) for each in records]}}}'.replace("'", '"')


# --- the stored file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["path", "file_uri"])
@pytest.mark.parametrize("change", [more, same_size, replaced, emptied, Path.unlink])
async def test_a_tool_that_changes_its_file_changes_no_stored_one(
    tmp_path: Path, change: Change, delivery: Any
) -> None:
    """Whatever a tool does to an upload that it is given, the next call is given the file that was uploaded."""
    async with tools(
        tmp_path, changing(change), consuming=READ.model_copy(update={"delivery": delivery})
    ) as one:
        record = await one.uploaded(b"hello")
        for _ in range(2):
            assert "isError" not in (await one.call("read", calling(record)))["result"]
            assert await bytes_of(one, record) == b"hello"


async def test_each_call_has_a_copy_of_its_own(tmp_path: Path) -> None:
    """Two calls at once with one file disturb each other no more than two with a file each; both see its name."""
    go_on = asyncio.Event()

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        more(given(request)[0])
        return ScriptedAnswer(chunks=[said("done")], after=go_on)

    async with tools(tmp_path, act) as one:
        record = await one.uploaded(b"hello", "名前 1.txt")
        calls = [asyncio.create_task(one.call("read", calling(record))) for _ in range(2)]
        await until(lambda: len(one.upstream.requests) >= 2)
        [first], [second] = (given(request) for request in one.upstream.requests)
        assert first != second and first.name == second.name == "名前 1.txt"
        assert first.read_bytes() == second.read_bytes() == b"hello and more"
        go_on.set()
        await asyncio.gather(*calls)


async def test_a_file_that_is_named_twice_is_copied_once(tmp_path: Path) -> None:
    """All mentions of a file in one call are one path."""
    async with tools(tmp_path, changing(nothing)) as one:
        record = await one.uploaded(b"hello")
        await one.call("read", calling(record, record))
        first, second = given(one.upstream.requests[0])
        assert first == second


async def test_the_text_shows_the_handle_of_a_copy(tmp_path: Path) -> None:
    """A tool that names its copy, however it spells it, names the file; the stored file's own path is withheld."""

    def answer(path: Path) -> bytes:
        stored = path.parents[1] / path.name
        return said(f"read {path}, file://{path}, ../data{str(path).removeprefix(str(tmp_path))}; {stored}")

    async with tools(tmp_path, changing(nothing, answer)) as one:
        record = await one.uploaded(b"hello")
        (block,) = (await one.call("read", calling(record)))["result"]["content"]
        handle = upload_handle(record.scope, record.id)
        assert block["text"] == f"read {handle}, {handle}, {handle}; [withheld path]"


async def test_a_copy_stays_for_whoever_reads_it_later(tmp_path: Path) -> None:
    """A browser sends a file after the call that chose it, so the copies of the last calls stay as long as the file."""
    async with tools(tmp_path, changing(nothing)) as one:
        record = await one.uploaded(b"hello")
        for _ in range(KEPT + 3):
            await one.call("read", calling(record))
        there = [given(request)[0].exists() for request in one.upstream.requests]
        assert there == [False] * 2 + [True] * (KEPT + 1)
        await one.registry.drop(record)
        assert one.on_disk() == []


async def test_a_call_that_is_refused_leaves_no_copy(tmp_path: Path) -> None:
    """Of two files one is unknown: the copy of the other goes with the next call of it, or with the file."""
    async with tools(tmp_path, changing(nothing)) as one:
        record = await one.uploaded(b"hello")
        for _ in range(KEPT + 3):
            refused = calling(record).replace("]", ',"upload://sessions/x/y"]')
            assert (await one.call("read", refused))["result"]["isError"] is True
        assert len(list(tmp_path.glob("uploads/*/*/*/note.txt"))) == KEPT + 1
        assert one.upstream.requests == []


async def test_a_task_keeps_its_copy(tmp_path: Path) -> None:
    """The call is answered at once, and its tool goes on to write after that."""
    task = result('"task":{"taskId":"t","status":"working"}')
    async with tools(tmp_path, changing(nothing, lambda _: task), producing=EDITS) as one:
        record = await one.uploaded(b"hello")
        await one.call("read", calling(record))
        await one.registry.tidy()
        assert given(one.upstream.requests[0])[0].read_bytes() == b"hello"
        assert await one.artifacts() == []


async def test_a_tool_that_only_reads_gets_the_stored_file(tmp_path: Path) -> None:
    """Nothing is copied where the settings say that the tool changes nothing."""
    async with tools(tmp_path, changing(nothing), consuming=READ.model_copy(update={"edits": False})) as one:
        record = await one.uploaded(b"hello")
        await one.call("read", calling(record))
        assert given(one.upstream.requests[0]) == [Path(one.files.path_of(record.place))]
        assert not list(tmp_path.glob("uploads/*/*/*/note.txt"))


# --- a stored file that was changed all the same --------------------------------------------------------------


@pytest.mark.parametrize("change", [more, same_size, replaced, emptied])
async def test_a_changed_file_is_kept_and_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Change
) -> None:
    """Nobody gets it any more: the log says it once, each call says it, and it is there for a day."""
    async with tools(tmp_path, changing(nothing), consuming=READ.model_copy(update={"edits": False})) as one:
        record = await one.uploaded(b"hello")
        path = Path(one.files.path_of(record.place))
        change(path)
        kept = path.read_bytes()
        for _ in range(2):
            answer = (await one.call("read", calling(record)))["result"]
            assert answer["isError"] and "changed by something other" in answer["content"][0]["text"]
            with pytest.raises(FileChanged):
                await one.registry.read(record)
        [line] = logged(capsys)
        assert "changed by something other" in line["event"]
        assert (line["level"], line["file"]) == ("warning", record.key)
        assert record.key in one.registry.changed
        assert one.upstream.requests == []
        one.clock.now += DAY - 1
        await one.registry.tidy()
        assert path.read_bytes() == kept
        one.clock.now += 2
        await one.registry.tidy()
        assert one.on_disk() == [] and not one.registry.changed


async def test_a_changed_file_is_told_of_after_a_restart(tmp_path: Path) -> None:
    """A file that was changed while no adapter ran is not dropped at the start."""
    async with tools(tmp_path, changing(nothing)) as one:
        record = await one.uploaded(b"hello")
        store, session = one.store, one.session
    more(Path(one.files.path_of(record.place)))
    async with tools(tmp_path, changing(nothing), store=store, session=session) as one:
        answer = (await one.call("read", calling(record)))["result"]
        assert "changed by something other" in answer["content"][0]["text"]
        assert Path(one.files.path_of(record.place)).read_bytes() == b"hello and more"


async def test_a_file_that_is_gone_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that somebody deleted is forgotten, and the log says so."""
    async with tools(tmp_path, changing(nothing)) as one:
        record = await one.uploaded(b"hello")
        Path(one.files.path_of(record.place)).unlink()
        assert (await one.call("read", calling(record)))["result"]["isError"] is True
        [line] = logged(capsys)
        assert line["event"] == "a stored file is gone from the disk" and line["file"] == record.key
        assert one.registry.files == 0


# --- edits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [more, same_size, replaced, emptied])
async def test_what_a_tool_makes_of_its_file_is_a_new_artifact(tmp_path: Path, change: Change) -> None:
    """It has the name of the file that it was made from, which stays, and it can be edited again."""
    async with tools(tmp_path, changing(change), producing=EDITS) as one:
        upload = await one.uploaded(b"hello", "report.txt")
        first = await one.call("read", calling(upload))
        [made] = await one.artifacts()
        assert (made.filename, made.content.media_type) == ("report.txt", upload.content.media_type)
        assert first["result"]["_meta"]["artifact"]["artifact_uri"] == uri_of(made)
        assert [block["type"] for block in first["result"]["content"][:2]] == ["text", "resource_link"]
        content = given(one.upstream.requests[0])[0].read_bytes()
        assert await bytes_of(one, made) == content != b"hello"
        await one.call("read", f'{{"path":"{uri_of(made)}"}}')
        assert await bytes_of(one, made) == content
        assert await bytes_of(one, upload) == b"hello"
        if change is more:
            [_, again] = await one.artifacts()
            assert await bytes_of(one, again) == b"hello and more and more"


async def test_a_tool_that_changes_nothing_adds_nothing(tmp_path: Path) -> None:
    """Its result leaves with the bytes that came."""
    async with tools(tmp_path, changing(nothing), producing=EDITS) as one:
        response = await one.call("read", calling(await one.uploaded(b"hello")))
        assert response["result"] == {"content": [{"type": "text", "text": "Heading added."}]}
        assert await one.artifacts() == [] and list(tmp_path.glob("staging/*/*")) == []


async def test_a_failed_edit_is_not_kept(tmp_path: Path) -> None:
    """A tool that failed has left its copy in any state."""
    failed = result('"content":[],"isError":true')
    async with tools(tmp_path, changing(more, lambda _: failed), producing=EDITS) as one:
        await one.call("read", calling(await one.uploaded(b"hello")))
        assert await one.artifacts() == []


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def hard_linked(path: Path) -> None:
    path.unlink()
    path.hardlink_to(path.parents[1] / path.name)


def moved_aside(path: Path) -> None:
    path.parent.rename(path.parent.with_name("aside"))
    path.parent.symlink_to(path.parent.with_name("aside"))


@pytest.mark.parametrize("change", [linked, hard_linked, moved_aside, Path.unlink])
async def test_a_copy_that_is_no_file_any_more_is_not_kept(tmp_path: Path, change: Change) -> None:
    """A link, or nothing, in the place of the copy: the result says so, and nothing is followed."""
    async with tools(tmp_path, changing(change), producing=EDITS) as one:
        response = await one.call("read", calling(await one.uploaded(b"hello")))
        assert "no longer where the tool was given it" in response["result"]["_meta"]["artifact_error"]
        assert await one.artifacts() == [] and list(tmp_path.glob("staging/*/*")) == []


async def test_a_copy_that_has_grown_too_large_is_not_kept(tmp_path: Path) -> None:
    """The limit and its setting are named, and nothing is evicted."""
    limit = CaptureLimit(10, "artifacts.max_file_bytes")
    async with tools(tmp_path, changing(more), producing=replace(EDITS, limit=limit)) as one:
        record = await one.uploaded(b"hello")
        response = await one.call("read", calling(record))
        assert "artifacts.max_file_bytes" in response["result"]["_meta"]["artifact_error"]
        assert await one.artifacts() == [] and await bytes_of(one, record) == b"hello"


@pytest.mark.parametrize(
    ("change", "why"), [(Path.unlink, " A file is no longer"), (more, " The tool's file is larger")]
)
async def test_a_copy_that_cannot_be_kept_costs_no_other_its_changes(
    tmp_path: Path, change: Change, why: str
) -> None:
    """The first file was removed or is above the limit, the second one is kept, and the result says what is missing."""

    def changed(path: Path) -> None:
        (change if path.name == "5.txt" else more)(path)

    limit = CaptureLimit(12, "artifacts.max_file_bytes")
    async with tools(tmp_path, changing(changed), producing=replace(EDITS, limit=limit)) as one:
        records = [await one.uploaded(content, f"{len(content)}.txt") for content in (b"hello", b"h")]
        meta = (await one.call("read", calling(*records)))["result"]["_meta"]
        assert meta["artifact"]["filename"] == "1.txt"
        expected = f"The tool answered, but not all of its files could be captured.{why}"
        assert meta["artifact_error"].startswith(expected)


async def test_a_tool_may_edit_one_file_and_write_another(tmp_path: Path) -> None:
    """Both are kept, and the text names each by its URI."""

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        written = Path(arguments_of(request)["filename"])
        written.write_bytes(b"made")
        more(given(request)[0])
        return ScriptedAnswer(chunks=[said(f"{given(request)[0]} {written}")])

    async with tools(tmp_path, act, producing=producing(edits=True)) as one:
        handle = await one.handle(b"hello", "in.txt")
        response = await one.call("convert", f'{{"path":"{handle}","filename":"out.txt"}}')
        written, edited = await one.artifacts()
        assert [written.filename, edited.filename] == ["out.txt", "in.txt"]
        assert response["result"]["content"][0]["text"] == f"{uri_of(edited)} {uri_of(written)}"


async def test_a_locator_does_not_take_a_copy(tmp_path: Path) -> None:
    """A converter that names the file that it was given has not produced it."""
    act = changing(more, lambda path: said(f"read {path}"))
    async with tools(tmp_path, act, producing=producing("regex", argument=None)) as one:
        await one.call("convert", f'{{"path":"{await one.handle(b"hello")}"}}')
        assert await one.artifacts() == []


@pytest.mark.parametrize(("edits", "kept"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("spelled", ["{0}/{1}", "{0}//./{1}"])
async def test_a_copy_of_an_artifact_is_not_taken_for_a_product(
    tmp_path: Path, edits: bool, kept: int, spelled: str
) -> None:
    """It lies where products lie and is as new as they are; where edits are kept, it is kept once."""
    act = writing(b"created")
    async with tools(tmp_path, lambda request: act(request)) as one:
        await one.call("write", '{"filename":"report.docx"}')
        [record] = await one.artifacts()
        store, scope = one.store, one.session
    act = changing(more, lambda path: said(f"read {spelled.format(path.parent, path.name)}"))
    rule = producing("regex", argument=None, edits=edits, regexes=[r"read (\S+)"])
    async with tools(
        tmp_path, lambda request: act(request), producing=rule, store=store, session=scope
    ) as one:
        await one.call("read" if edits else "convert", f'{{"path":"{uri_of(record)}"}}')
        assert len(await one.artifacts()) == kept


async def test_all_rounds_of_a_call_work_on_one_copy(tmp_path: Path) -> None:
    """A server that asks its user finds its file again as it has left it, and what it has become is kept at the end."""
    rounds = 0

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        nonlocal rounds
        rounds += 1
        more(given(request)[0])
        asks = f'"resultType":"input_required","inputRequests":{{}},"requestState":"s{rounds}"'
        return ScriptedAnswer(chunks=[result(asks if rounds < 3 else '"resultType":"complete","content":[]')])

    async with tools(tmp_path, act, producing=EDITS) as one:
        owner = principal_scope(b"", "anonymous")
        record = await one.uploaded(b"hello", scope=owner)
        params: dict[str, Any] = {
            "name": "read",
            "arguments": {"path": upload_handle(record.scope, record.id)},
            "_meta": META,
        }
        for number in range(3):
            state = {"requestState": f"s{number}", "inputResponses": {}} if number else {}
            response = await one.request("tools/call", {**params, **state}, modern=True)
        paths = [given(request)[0] for request in one.upstream.requests]
        assert paths[0] == paths[1] == paths[2]
        [made] = await one.registry.list(owner.id, FileKind.ARTIFACT)
        assert await bytes_of(one, made) == b"hello and more and more and more"
        assert response["result"]["_meta"]["artifact"]["artifact_uri"] == uri_of(made)


async def test_a_call_that_its_client_left_gives_its_copy_back(tmp_path: Path) -> None:
    """Nobody waits for the answer any more; the copy stays as those of other calls do."""
    never = asyncio.Event()
    asked = lambda request: ScriptedAnswer(chunks=[said("done")], after=never)  # noqa: E731
    async with tools(tmp_path, asked) as one:
        record = await one.uploaded(b"hello")
        call = asyncio.create_task(one.call("read", calling(record)))
        await until(lambda: one.upstream.requests)
        call.cancel()
        await asyncio.wait([call])
        assert given(one.upstream.requests[0])[0].exists()
