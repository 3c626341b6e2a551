"""The tool that reads artifacts: in bytes, in lines, by a pointer, and never those of others."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from adapter.files.port import Measure
from adapter.relay.files.file_transactions import NewFile
from adapter.relay.files.read_artifact_tool import ABOVE, LARGEST_DOCUMENT, MOST_SCANNED
from adapter.rules.access.principals import principal_scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from tests.relay.files.test_artifact_resources import kept
from tests.relay.tooling import META, PNG, Tools, saying, tools, uri_of

TEXT = "erste Zeile\nzweite: é 🙂\n\nletzte ohne Ende"


async def read(process: Tools, uri: str, **arguments: Any) -> tuple[dict[str, Any], str]:
    """What the answer says of the part, and the part."""
    given = json.dumps({"uri": uri, **arguments})
    response = await process.call("one_read_artifact", given)
    assert "isError" not in response["result"], response
    assert len(json.dumps(response["result"], ensure_ascii=False).encode()) <= ABOVE
    head, data = (block["text"] for block in response["result"]["content"])
    return json.loads(head), data


async def refused(process: Tools, **arguments: Any) -> str:
    response = await process.call("one_read_artifact", json.dumps(arguments))
    assert response["result"]["isError"] and len(response["result"]["content"]) == 1
    sentence: str = response["result"]["content"][0]["text"]
    return sentence


async def whole(process: Tools, record: FileRecord, **arguments: Any) -> bytes:
    """All that is read by going on as each answer says."""
    found, following = b"", arguments
    for _ in range(1000):
        head, data = await read(process, uri_of(record), **following)
        assert head["total"] == record.content.size
        found += base64.b64decode(data) if head["encoding"] == "base64" else data.encode()
        if head["next"] is None:
            return found
        following = {**arguments, **head["next"]} if "offset" in arguments else head["next"]
    raise AssertionError("reading does not come to its end")


@pytest.mark.parametrize("arguments", [{}, {"offset": 0, "length": 1}, {"first_line": 1, "lines": 1}])
async def test_text_is_read_to_its_end(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Each answer says how to go on, and nothing is missing or twice."""
    async with tools(tmp_path, saying("")) as one:
        record = await kept(one, TEXT.encode())
        assert await whole(one, record, **arguments) == TEXT.encode()


@pytest.mark.parametrize(
    "data", [("é" * 200_000).encode(), b'"\\\n' * 60_000, b"line\n" * 100_000, b"x" * 150_000]
)
@pytest.mark.parametrize("arguments", [{"offset": 0}, {"first_line": 1}])
async def test_answer_is_never_larger_than_allowed(
    tmp_path: Path, data: bytes, arguments: dict[str, Any]
) -> None:
    """Also of signs that take more bytes in JSON than in the file, and of a line longer than an answer."""
    async with tools(tmp_path, saying("")) as one:
        assert await whole(one, await kept(one, data), **arguments) == data


async def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    """But for a character, which is never cut."""
    async with tools(tmp_path, saying("")) as one:
        uri = uri_of(await kept(one, "abcé🙂xyz".encode()))
        for offset, length, start, found in (
            (0, 2, 0, "ab"),
            (2, 2, 2, "c"),
            (3, 1, 3, "é"),
            (7, 9, 5, "🙂xyz"),
        ):
            head, data = await read(one, uri, offset=offset, length=length)
            assert (head["offset"], data) == (start, found)


async def test_line_behind_a_million_empty_ones_is_found(tmp_path: Path) -> None:
    """Wherever it begins in a block."""
    async with tools(tmp_path, saying("")) as one:
        uri = uri_of(await kept(one, b"\n" * 700_000 + b"a\nb\n" + b"\n" * 700_000 + b"c"))
        for line, text in ((700_000, "\n"), (700_001, "a\n"), (700_002, "b\n"), (1_400_003, "c")):
            assert (await read(one, uri, first_line=line, lines=1))[1] == text


async def test_bytes_come_in_base64(tmp_path: Path) -> None:
    """What is no text, and what only says that it is."""
    async with tools(tmp_path, saying("")) as one:
        for data, name in ((PNG * 1000, "a.png"), (b"\xff\xfe" * 100, "a.txt")):
            record = await kept(one, data, name)
            head, _ = await read(one, uri_of(record), offset=1, length=10)
            assert head["encoding"] == "base64" and (head["offset"], head["bytes"]) == (1, 10)
            assert await whole(one, record) == data


async def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Other signs that end lines elsewhere do not count, and a last line needs no end."""
    async with tools(tmp_path, saying("")) as one:
        uri = uri_of(await kept(one, TEXT.encode()))
        assert (await read(one, uri, first_line=2, lines=2))[1] == "zweite: é 🙂\n\n"
        head, data = await read(one, uri, first_line=4)
        assert (data, head["next"], head["lines"]) == ("letzte ohne Ende", None, 1)
        assert (await read(one, uri, lines=1))[1] == "erste Zeile\n"
        uri = uri_of(await kept(one, "a\u2028b\x0cc\r\nd\n".encode()))
        assert (await read(one, uri, first_line=1, lines=1))[1] == "a\u2028b\x0cc\r\n"
        assert "fewer than 4 lines" in await refused(one, uri=uri, first_line=4)


async def test_value_of_a_document_is_read_by_its_pointer(tmp_path: Path) -> None:
    """One that is too long is shortened and stays JSON, with the place where it stands whole."""
    async with tools(tmp_path, saying("")) as one:
        rows = [{"id": n, "text": "é" * 100} for n in range(2000)]
        data = json.dumps({"rows": rows}).encode()
        uri = uri_of(await kept(one, data, "a.json"))
        head, value = await read(one, uri, json_pointer="/rows/1999")
        assert json.loads(value) == rows[1999] and head["next"] is None
        head, value = await read(one, uri, json_pointer="/rows")
        some = json.loads(value)
        assert head["shortened"] and 10 < len(some) < 2000 and some == rows[: len(some)]
        assert (await read(one, uri, **head["next"], length=20))[1] == data[9:29].decode()
        assert "nothing at /rows/x" in await refused(one, uri=uri, json_pointer="/rows/x/y")
        text = uri_of(await kept(one, b"no JSON"))
        assert "no JSON" in await refused(one, uri=text, json_pointer="")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "uri is required"),
        ({"uri": 1}, "uri is required"),
        ({"offset": -1}, "offset must be"),
        ({"offset": True}, "offset must be"),
        ({"length": 0}, "length must be"),
        ({"first_line": 0}, "first_line must be"),
        ({"offset": 0, "lines": 1}, "and nothing else"),
        ({"json_pointer": "", "lines": 1}, "and nothing else"),
        ({"json_pointer": 1}, "must be a text"),
        ({"path": "/etc/passwd"}, "and nothing else"),
        ({"offset": 100}, "has 4 bytes"),
    ],
)
async def test_wrong_arguments_are_told_so(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    """In a sentence that a model can go by; null is as if it were left out."""
    async with tools(tmp_path, saying("")) as one:
        uri = {"uri": uri_of(await kept(one))} if "uri" not in arguments and arguments else {}
        assert words in await refused(one, **uri, **arguments, **({} if arguments else {"length": None}))


async def test_nobody_reads_what_is_not_theirs(tmp_path: Path) -> None:
    """Another session's, a principal's, another server's, an upload, and one that never was: one sentence for all."""
    async with tools(tmp_path, saying("")) as one:
        theirs = await one.scope_of_session(await one.relaying.open())
        own = await kept(one)
        others = [
            uri_of(await kept(one, scope=theirs)),
            uri_of(await kept(one, scope=principal_scope(b"", "anonymous"))),
            uri_of(await kept(one, server="two")),
            await one.handle(b"uploaded"),
            uri_of(own).replace(own.id, "0" * 32),
            uri_of(own).replace("a.txt", "b.txt"),
            uri_of(own) + "/../../x",
            f"file://{one.root}/state.db",
            "artifact://",
        ]
        sentences = {await refused(one, uri=uri) for uri in others}
        assert len(sentences) == 1 and "no artifact with this URI" in sentences.pop()
        assert (await read(one, uri_of(own)))[1] == "made"
        response = await one.request(
            "tools/call",
            {"name": "one_read_artifact", "arguments": {"uri": uri_of(own)}, "_meta": META},
            modern=True,
        )
        assert response["result"]["isError"] and response["result"]["resultType"] == "complete"


async def test_file_that_was_changed_is_read_by_nobody(tmp_path: Path) -> None:
    """The failure of the disk is the answer."""
    async with tools(tmp_path, saying("")) as one:
        record = await kept(one)
        Path(one.files.path_of(record.place)).write_bytes(b"other")
        assert "changed" in await refused(one, uri=uri_of(record))


async def test_what_takes_long_has_a_bound(tmp_path: Path) -> None:
    """A line far into a large file, and a pointer into a large document, are refused before they are looked for."""
    async with tools(tmp_path, saying("")) as one:
        # Holes of the disk are zeros, and end no line.
        place = Place(FileKind.ARTIFACT, one.scope.id, "0" * 32, "zeros.txt")
        path = Path(one.files.path_of(place))
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(MOST_SCANNED + 10)
        measure = Measure(MOST_SCANNED + 10, "", b"", path.stat().st_mtime_ns)
        record = await one.registry.keep_artifact(
            one.scope, place, NewFile("one", "zeros.txt", measure), None
        )
        assert MOST_SCANNED > LARGEST_DOCUMENT
        assert f"at most {LARGEST_DOCUMENT}" in await refused(one, uri=uri_of(record), json_pointer="/a")
        assert f"first {MOST_SCANNED} bytes" in await refused(one, uri=uri_of(record), first_line=2)
