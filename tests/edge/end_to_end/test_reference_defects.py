"""What the reference adapter gets wrong about files, each as a transcript of how it goes here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.file_tools import (
    DOWNLOADS,
    FORM,
    MIB,
    TOOLS,
    call,
    form,
    link_of,
    playing,
    rpc,
    size_below,
    text_of,
    upload,
    writing,
)
from tests.edge.raw import Exchange, RawClient, event, result

# --- uploads --------------------------------------------------------------------------------------------------


async def test_max_file_bytes_is_enforced_while_the_body_is_read(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path
) -> None:
    """The reference has the whole body on disk, twice, before it looks. Here the sender is stopped in time."""
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with (
        upstream() as up,
        adapter(up, server=TOOLS, uploads={"max_file_bytes": MIB}) as front,
        front.client() as client,
    ):
        await client.initialize()
        fields = {"content_type": FORM, "content_length": "", "transfer_encoding": "chunked"}
        await client.send("POST", b"", "/upload/raw", **fields)
        begun = form(b"").partition(b"\r\n--b--")[0]
        await client.send_more(b"%x\r\n%s\r\n" % (len(begun), begun))
        answer = asyncio.ensure_future(client.head())
        sent = largest = 0
        while not answer.done() and sent < 256 * MIB:
            await client.send_more(piece)
            await asyncio.sleep(0)
            sent += 0x10000
            largest = max(largest, size_below(tmp_path / "staging"))
        assert (await answer).status == 413
        assert sent < 16 * MIB and largest <= MIB
        assert size_below(tmp_path / "staging") == size_below(tmp_path / "uploads") == 0


async def test_a_body_that_stops_is_timed_out(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """The reference waits for ever. Here silence ends the upload, and the sentence names the setting."""
    async with (
        upstream() as up,
        adapter(up, server=TOOLS, uploads={"stall_timeout_seconds": 0.05}) as front,
        front.client() as client,
    ):
        await client.initialize()
        fields = {"content_type": FORM, "content_length": "1000"}
        head, body = await client.request("POST", form(b"")[:60], "/upload/raw", **fields)
        assert head.status == 408 and "uploads.stall_timeout_seconds" in orjson.loads(body)["detail"]


async def test_an_incoming_file_counts_once(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """The reference counts it twice and refuses half of what fits. Here the quota is the quota, to the byte."""
    quota = {"max_total_session_size": 1000}
    async with upstream() as up, adapter(up, server=TOOLS, sessions=quota) as front, front.client() as client:
        await client.initialize()
        assert (await upload(client, b"x" * 600))[0] == 200
        assert (await upload(client, b"x" * 400))[0] == 200
        assert front.app.files.registry.total == 1000
        assert (await upload(client, b"x" * 1000))[0] == 200
        assert front.app.files.registry.total == 1000
        status, answer = await upload(client, b"x" * 1001)
        assert status == 429 and "sessions.max_total_session_size" in answer["detail"]
        assert front.app.files.registry.total == 1000


@pytest.mark.parametrize("name", ["名前.txt", "Ελληνικά.pdf", "שלום.txt", "naïve – café.md", "🙂.png"])
async def test_unicode_names_are_kept(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path, name: str
) -> None:
    """The reference makes ``txt`` of ``名前.txt``. Here the name is the name: in the answer, on disk, in a download."""
    async with (
        upstream(playing(writing(b"x"))) as up,
        adapter(up, server=TOOLS, core=DOWNLOADS) as front,
        front.client() as client,
    ):
        await client.initialize()
        _, answer = await upload(client, b"x", name)
        assert answer["upload"]["filename"] == name
        assert [path.name for path in (tmp_path / "uploads").rglob("*") if path.is_file()] == [name]
        written = await call(client, "write", {"filename": name})
        assert written["_meta"]["artifact"]["filename"] == name
        assert [path.name for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == [name]
        head, _ = await client.request("GET", b"", link_of(written))
        assert head["content-disposition"].partition("filename*=UTF-8''")[2] == quoted(name)


def quoted(name: str) -> str:
    """As RFC 8187 has it."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
    return "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in name.encode())


# --- handles --------------------------------------------------------------------------------------------------


async def test_a_handle_with_a_path_behind_it_is_refused(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The reference takes ``<handle>/../../x`` for the handle. Here it is none, and the tool is not called."""
    async with upstream() as up, adapter(up, server=TOOLS) as front, front.client() as client:
        await client.initialize()
        handle = (await upload(client, b"x"))[1]["upload_handle"]
        for behind in ("/../../x", "/..", "/", "?x", " ", "\n"):
            answer = await call(client, "read", {"path": handle + behind})
            assert answer["isError"] is True and "raw_get_upload_url" in text_of(answer)
        assert up.calls("tools/call") == []
        assert text_of(await call(client, "read", {"path": handle})) == "done"


async def test_an_optional_file_argument_may_be_left_out(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The reference makes an error of it. Here the call goes on as it is."""
    async with upstream() as up, adapter(up, server=TOOLS) as front, front.client() as client:
        await client.initialize()
        assert text_of(await call(client, "read", {"verbose": True})) == "done"
        (came,) = up.calls("tools/call")
        assert came.message["params"] == {"name": "read", "arguments": {"verbose": True}}


# --- artifacts ------------------------------------------------------------------------------------------------


async def test_a_symlink_at_the_artifact_path_is_not_followed(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path
) -> None:
    """The reference gives out ``/etc/passwd``. Here nothing is captured, and the link is gone."""

    def plant(arguments: dict[str, Any]) -> str:
        Path(arguments["filename"]).symlink_to("/etc/passwd")
        return "done"

    async with upstream(playing(plant)) as up, adapter(up, server=TOOLS) as front, front.client() as client:
        await client.initialize()
        answer = await call(client, "write", {})
        assert text_of(answer) == "done" and "could not be captured" in answer["_meta"]["artifact_error"]
        assert (await rpc(client, "resources/list", {}))["resources"][1:] == []
        assert [path for path in (tmp_path / "artifacts").rglob("*") if not path.is_dir()] == []


async def test_a_result_cannot_name_anothers_upload_or_the_state_database(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path
) -> None:
    """The reference gives out whatever below its root a result names. Here only the scope's own artifacts count."""
    named: list[Path] = []
    async with (
        upstream(playing(lambda _: f"Saved to {named[-1]}")) as up,
        adapter(up, server=TOOLS) as front,
        front.client() as other,
        front.client() as client,
    ):
        await other.initialize()
        await upload(other, b"of somebody else")
        await client.initialize()
        await upload(client, b"of one's own")
        uploads = [path for path in (tmp_path / "uploads").rglob("*") if path.is_file()]
        for path in (*uploads, front.app.settings.state_path, tmp_path / "lock", Path("/etc/passwd")):
            assert path.is_file()
            named.append(path)
            answer = await call(client, "name", {})
            assert "could not be captured" in answer["_meta"]["artifact_error"]
            assert str(tmp_path) not in text_of(answer)
        assert size_below(tmp_path / "artifacts") == 0


async def test_an_artifact_that_never_fits_evicts_nothing(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The reference evicts everything first, and then refuses. Here everything stays, and the result as well."""
    quota = {"max_total_session_size": 1000}
    tools = [writing(b"x" * 1001), writing(b"y" * 300)]
    async with (
        upstream(playing(lambda arguments: tools.pop()(arguments))) as up,
        adapter(up, server=TOOLS, sessions=quota) as front,
        front.client() as client,
    ):
        await client.initialize()
        await upload(client, b"x" * 700)
        assert "artifact" in (await call(client, "write", {}))["_meta"]
        answer = await call(client, "write", {})
        assert text_of(answer).startswith("Saved to") and "artifact_error" in answer["_meta"]
        assert front.app.files.registry.total == 1000


async def test_reading_a_large_artifact_keeps_nobody_waiting(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The reference stalls everybody for two seconds. Here others are served all the while, call by call."""
    size = 24 * MIB
    async with (
        upstream(playing(lambda arguments: writing(b"\0" * size)(arguments) if arguments else "done")) as up,
        adapter(up, server=TOOLS, core=DOWNLOADS, artifacts={"max_resource_bytes": size}) as front,
        front.client() as client,
        front.client() as other,
    ):
        await client.initialize()
        await other.initialize()
        uri = (await call(client, "write", {"filename": "large.bin"}))["_meta"]["artifact"]["artifact_uri"]
        reading = asyncio.ensure_future(begun(client, "resources/read", {"uri": uri}))
        served = 0
        while not reading.done():
            assert text_of(await call(other, "untouched", {})) == "done"
            served += 1
        assert await reading == 200 and served >= 5


async def begun(client: RawClient, method: str, params: dict[str, Any]) -> int:
    """The status of an answer of which only the head is waited for."""
    message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    await client.send("POST", message)
    return (await client.head()).status


async def test_an_artifact_above_the_limit_is_not_read_but_downloaded(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """The reference puts any size into one message. Here the error says where to download it."""
    async with (
        upstream(playing(writing(b"x" * 1001))) as up,
        adapter(up, server=TOOLS, core=DOWNLOADS, artifacts={"max_resource_bytes": 1000}) as front,
        front.client() as client,
    ):
        await client.initialize()
        written = await call(client, "write", {})
        uri = written["_meta"]["artifact"]["artifact_uri"]
        error = await rpc(client, "resources/read", {"uri": uri})
        assert "/artifacts/raw/" in error["message"]
        assert (await client.request("GET", b"", link_of(written)))[1] == b"x" * 1001


async def test_head_is_served(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """The reference says 405. Here HEAD tells what GET would send."""
    async with (
        upstream(playing(writing(b"hello"))) as up,
        adapter(up, server=TOOLS, core=DOWNLOADS) as front,
        front.client() as client,
    ):
        await client.initialize()
        link = link_of(await call(client, "write", {"filename": "hello.txt"}))
        await client.send("HEAD", b"", link)
        head = await client.head()
        assert head.status == 200 and head["content-length"] == "5"
        got, content = await client.request("GET", b"", link)
        assert content == b"hello" and {**dict(got.fields), "date": ""} == {**dict(head.fields), "date": ""}


async def test_no_result_shows_a_path_of_the_store(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path
) -> None:
    """The reference shows its paths. Here an artifact has its URI in their place, and an upload its handle."""

    def tell(arguments: dict[str, Any]) -> str:
        path = arguments.get("filename") or arguments["path"]
        Path(path).write_bytes(b"x")
        return f"Took {path} in {Path(path).parent}"

    async with upstream(playing(tell)) as up, adapter(up, server=TOOLS) as front, front.client() as client:
        await client.initialize()
        handle = (await upload(client, b"x"))[1]["upload_handle"]
        written, read = await call(client, "write", {}), await call(client, "read", {"path": handle})
        uri = written["_meta"]["artifact"]["artifact_uri"]
        assert text_of(written) == f"Took {uri} in [withheld path]"
        assert text_of(read) == f"Took {handle} in [withheld path]"
        for exchange in up.calls("tools/call"):
            assert str(tmp_path).encode() in exchange.body


async def test_no_message_before_the_result_shows_one_either(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """What a tool logs, reports and asks while it works has no path of ours; what has none keeps every byte."""
    plain = b'{"jsonrpc": "2.0", "method":"notifications/progress","params": {"progress":1.0}}'

    async def talk(exchange: Exchange) -> None:
        params: Any = exchange.message["params"]
        path = (params["arguments"].get("filename") or params["arguments"]["path"]).encode()
        await exchange.begin_stream()
        for said in (
            b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"Opening %s"}}',
            b'{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{"message":"Overwrite %s?"}}',
        ):
            await exchange.chunk(event(said % path))
        await exchange.chunk(event(plain))
        await exchange.chunk(event(result(1)))
        await exchange.end_stream()

    async with upstream(talk) as up, adapter(up, server=TOOLS) as front, front.client() as client:
        await client.initialize()
        handle = (await upload(client, b"x"))[1]["upload_handle"]
        for tool, arguments, shown in (("write", {}, "[withheld path]"), ("read", {"path": handle}, handle)):
            params = {"name": tool, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            _, body = await client.request("POST", orjson.dumps(message))
            logged, asked, reported, _ = [part.removeprefix(b"data: ") for part in body.split(b"\n\n")[:4]]
            assert orjson.loads(logged)["params"]["data"] == f"Opening {shown}"
            assert orjson.loads(asked)["params"]["message"] == f"Overwrite {shown}?"
            assert reported == plain
