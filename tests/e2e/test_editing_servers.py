"""Servers that edit files in place, which nobody here wrote: a file is edited twice in a row, and each state stays."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.e2e.filing import Host, artifact, content_of, python_host, said, sha256, uploaded
from tests.e2e.over_stdio import Command
from tests.e2e.processes import adapter, listens, start
from tests.ports import free_port

pytestmark = pytest.mark.e2e

Transport = Literal["stdio", "http"]
HELPER = "upstream_get_upload_url"


@dataclass
class Program:
    """A server that can be started both ways, with more arguments each; ``{port}`` stands in those over HTTP."""

    command: Command
    over_http: list[str] = field(default_factory=list)
    over_stdio: list[str] = field(default_factory=list)


def excel_in(office_python: Path, folder: Path) -> Program:
    """``excel-mcp-server``, which opens workbooks in that folder only."""
    folder.mkdir(exist_ok=True)
    command = str(office_python.with_name("excel-mcp-server"))
    allowed = ["--allow-dir", str(folder)]
    return Program((command, []), ["streamable-http", "--port", "{port}", *allowed], ["stdio", *allowed])


@asynccontextmanager
async def serving(
    place: Path, program: Program, transport: Transport, adapters: list[dict[str, Any]]
) -> AsyncIterator[Host]:
    """A client of the adapter in front of that server."""
    name, arguments = program.command
    upstream: dict[str, Any] = {
        "transport": "stdio",
        "command": name,
        "args": [*arguments, *program.over_stdio],
    }
    async with AsyncExitStack() as stack:
        if transport == "http":
            port = free_port()
            argv = [name, *arguments, *(each.format(port=port) for each in program.over_http)]
            running = await stack.enter_async_context(await start(argv, place / "upstream.log"))
            await listens(port, running)
            upstream = {"url": f"http://127.0.0.1:{port}/mcp"}
        front = await stack.enter_async_context(adapter(place, upstream, adapters=adapters))
        yield await stack.enter_async_context(python_host(front.url))


def taking(argument: str, *tools: str, **more: Any) -> dict[str, Any]:
    return {"type": "upload_consumer", "tools": list(tools), "file_path_argument": argument, **more}


async def digests(host: Host, *uris: str) -> list[str]:
    """Of each artifact the digest of what a client reads."""
    return [sha256(content_of(await host.read(uri))) for uri in uris]


async def unchanged(host: Host, *made: Mapping[str, Any]) -> None:
    """See that all these artifacts are listed and have the bytes that they had when their calls told of them."""
    uris = [each["artifact_uri"] for each in made]
    assert await digests(host, *uris) == [each["sha256"] for each in made]
    assert {each["uri"] for each in await host.resources()} >= set(uris)
    assert len({each["sha256"] for each in made}) == len(made)


async def test_a_workbook_is_edited_twice(tmp_path: Path, office_python: Path) -> None:
    """A workbook that a client has uploaded, on a disk that both share."""
    adapters = [
        {"type": "artifact_producer", "tools": ["create_workbook"], "output_path_argument": "path"},
        taking("path", "write_range", edits=True),
        taking("path", "read_range", edits=False),
    ]
    excel = excel_in(office_python, tmp_path / "data")
    async with serving(tmp_path, excel, "http", adapters) as host:
        made = artifact(await host.call("create_workbook", path="book.xlsx"))
        (tmp_path / "book.xlsx").write_bytes(content_of(await host.read(made["artifact_uri"])))
        (upload,) = await uploaded(host, tmp_path / "book.xlsx", helper=HELPER)
        cell = {"sheet": "Sheet1", "at": "A1"}
        first = artifact(await host.call("write_range", path=upload["upload_handle"], rows=[["one"]], **cell))
        second = artifact(await host.call("write_range", path=first["artifact_uri"], rows=[["two"]], **cell))
        await unchanged(host, made, first, second)
        uris = [upload["upload_handle"], first["artifact_uri"], second["artifact_uri"]]
        read = [said(await host.call("read_range", path=uri, sheet="Sheet1")) for uri in uris]
        assert [("one" in text, "two" in text) for text in read] == [
            (False, False),
            (True, False),
            (False, True),
        ]


async def test_a_workbook_is_edited_twice_without_a_shared_disk(tmp_path: Path, office_python: Path) -> None:
    """The server gets the content as base64 and gives it back inside a result; it edits a file of its own."""
    adapters = [
        taking("content_base64", "import_workbook", delivery="base64"),
        {"type": "artifact_producer", "tools": ["export_workbook"], "output_locator": {"mode": "embedded"}},
    ]
    excel = excel_in(office_python, tmp_path / "elsewhere")
    async with serving(tmp_path, excel, "stdio", adapters) as host:
        await host.call("create_workbook", path="book.xlsx")
        made = [artifact(await host.call("export_workbook", path="book.xlsx"))]
        for text in ("one", "two"):
            handle = made[-1]["artifact_uri"]
            said(await host.call("import_workbook", path="book.xlsx", content_base64=handle, overwrite=True))
            rows = {"sheet": "Sheet1", "at": "A1", "rows": [[text]]}
            said(await host.call("write_range", path="book.xlsx", **rows))
            made.append(artifact(await host.call("export_workbook", path="book.xlsx")))
        await unchanged(host, *made)
        assert {each["filename"] for each in made} == {"book.xlsx"}


async def test_a_text_is_patched_twice(tmp_path: Path, texteditor_python: Path) -> None:
    """A server whose files stand in lists of objects, and that names them in its results."""
    adapters = [
        taking("files[].path", "edit_text_file_contents", edits=True),
        taking("files[].file_path", "get_text_file_contents", edits=False),
    ]
    editor = Program((str(texteditor_python.with_name("mcp-text-editor")), []))
    notes = [tmp_path / name for name in ("a.txt", "b.txt")]
    for note in notes:
        note.write_text("first\nsecond\n")
    async with serving(tmp_path, editor, "stdio", adapters) as host:
        uris = [each["upload_handle"] for each in await uploaded(host, *notes, helper=HELPER)]
        kept = []
        for text in ("one\n", "two\n"):
            asked = [{"file_path": uri, "ranges": [{"start": 1, "end": 1}]} for uri in uris]
            told = json.loads(said(await host.call("get_text_file_contents", files=asked)))
            assert set(told) == set(uris)
            patches = [
                {
                    "path": uri,
                    "file_hash": told[uri]["file_hash"],
                    "patches": [
                        {
                            "line_start": 1,
                            "line_end": 1,
                            "contents": text,
                            "range_hash": told[uri]["ranges"][0]["range_hash"],
                        }
                    ],
                }
                for uri in uris
            ]
            result = await host.call("edit_text_file_contents", files=patches)
            made = result["_meta"]["artifacts"]
            assert [each["filename"] for each in made] == ["a.txt", "b.txt"]
            uris = [each["artifact_uri"] for each in made]
            assert set(json.loads(said(result))) == set(uris)
            kept.append([content_of(await host.read(uri)) for uri in uris])
        assert kept == [[b"one\nsecond\n"] * 2, [b"two\nsecond\n"] * 2]


async def test_a_file_of_the_filesystem_server_is_edited_twice(
    tmp_path: Path, node: Path, server_packages: Path
) -> None:
    """A server that opens what lies in its folders only, by paths that it resolves."""
    root = tmp_path / "data"
    root.mkdir()
    script = server_packages / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    adapters = [taking("path", "edit_file", edits=True), taking("path", "read_text_file", edits=False)]
    (tmp_path / "note.txt").write_text("one two\n")
    async with serving(tmp_path, Program((str(node), [str(script), str(root)])), "stdio", adapters) as host:
        (upload,) = await uploaded(host, tmp_path / "note.txt", helper=HELPER)
        uri = upload["upload_handle"]
        states = []
        for old, new in (("one", "three"), ("two", "four")):
            result = await host.call("edit_file", path=uri, edits=[{"oldText": old, "newText": new}])
            assert str(root) not in said(result)
            uri = artifact(result)["artifact_uri"]
            states.append(content_of(await host.read(uri)))
        assert states == [b"three two\n", b"three four\n"]
        assert "one two" in said(await host.call("read_text_file", path=upload["upload_handle"]))
