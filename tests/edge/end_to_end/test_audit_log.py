"""The audit log of a running adapter: a line for each call, before its answer has left."""

from __future__ import annotations

import asyncio
import hmac
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from adapter.files.audit_log import LOOKS
from adapter.settings.section import SettingsError
from tests.edge.company import ALICE, AUTH, BOB, RULES, StartCompany, office
from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.file_tools import DOWNLOADS, FORM, TOOLS, call, form, playing, writing
from tests.edge.raw import Exchange, beginning, call_body, event, in_json, result


def audit(place: Path, **more: Any) -> dict[str, Any]:
    return {"audit": {"file": str(place / "audit" / "audit.log"), **more}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "audit").mkdir()
    return tmp_path


def lines(place: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (place / "audit" / "audit.log").read_bytes().splitlines()]


async def test_each_call_has_a_line(company: StartCompany, place: Path) -> None:
    """Who, what and the outcome, of both entrances, and of what was refused; no argument and no secret."""
    console = {"enabled": True, "allow_execute": True, "path": "/explorer"}
    core = audit(place, arguments_key="key")
    async with company(core=core, console=console) as (_, enter, front), front.client() as http:
        alice, bob = await enter(ALICE), await enter(BOB)
        await alice.ask("tools/call", name="write_file", arguments={"path": "hunter2"})
        await bob.call("write_file")
        await bob.ask("prompts/get", name="greet")
        await bob.ask("resources/read", uri="file:///public/none?key=hunter2")
        path, token = "/explorer/raw/tools/read_file/call", f"Bearer {BOB}"
        await http.request("POST", b'{"path":"hunter2"}', path, authorization=token)
        assert bob.client.session is not None
        session = bob.client.session.encode()
    written = (place / "audit" / "audit.log").read_bytes()
    for secret in (b"hunter2", session, ALICE.encode(), BOB.encode()):
        assert secret not in written
    found = lines(place)
    assert [
        (each["principal"], each["event"], each["name"], each["entrance"], each["outcome"], each.get("code"))
        for each in found
    ] == [
        ("alice", "tools/call", "write_file", "mcp", "ok", None),
        ("bob", "tools/call", "write_file", "mcp", "refused", "tool_unknown"),
        ("bob", "prompts/get", "greet", "mcp", "ok", None),
        ("bob", "resources/read", "file:///public/none", "mcp", "error", -32002),
        ("bob", "tools/call", "read_file", "http", "ok", None),
    ]
    digest = hmac.digest(b"key", b'{"path":"hunter2"}', "sha256").hex()
    assert found[0]["arguments_digest"] == f"hmac-sha256:{digest}"
    assert found[0]["arguments_digest"] == found[4]["arguments_digest"]
    assert all(
        each["duration_ms"] > 0 and each["request_bytes"] > 0 and each["server"] == "raw" for each in found
    )
    assert found[1]["session"] == found[2]["session"] != found[0]["session"]


async def test_a_line_is_written_before_the_answer_leaves(in_session: StartRoad, place: Path) -> None:
    """Of a stream before its last event, of anything else before its first byte."""

    async def script(exchange: Exchange) -> None:
        if exchange.message.get("params", {}).get("name") != "streamed":  # type: ignore[attr-defined]  # an object
            await exchange.json(result(1))
            return
        await exchange.stream(
            event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'),
            event(b'{"jsonrpc":"2.0","id":1,"result":{"isError":true}}'),
        )

    async with in_session(script, core=audit(place)) as (_, _, client):
        assert (await client.call())[1] == result(1)
        assert [each["outcome"] for each in lines(place)] == ["ok"]
        _, body = await client.call("streamed")
        assert b"isError" in body and b"progress" in body
        assert [each["outcome"] for each in lines(place)] == ["ok", "tool_error"]
        assert lines(place)[1]["answer_bytes"] == len(body)


async def test_a_long_answer_and_a_deferred_one(in_session: StartRoad, place: Path) -> None:
    """What is too long is not looked into; an answer that comes on another stream is said to do so."""

    async def script(exchange: Exchange) -> None:
        if exchange.message["method"] == "prompts/get":
            await exchange.stream(b"id: 1\nretry: 10\ndata:\n\n")
        else:
            params: Any = exchange.message["params"]
            await exchange.json(result(1, "x" * int(params["name"])))

    async with in_session(script, core=audit(place)) as (_, _, client):
        for size in (100, 200_000, 3_000_000):
            _, body = await client.call(str(size))
            assert body == result(1, "x" * size)
        sent = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "a"}})
        await client.request("POST", sent)
    assert [each["outcome"] for each in lines(place)] == ["ok", "ok", "answered", "deferred"]


async def test_who_leaves_is_on_record(in_session: StartRoad, place: Path) -> None:
    """A call whose client has gone before its answer."""
    script = beginning(event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'))
    async with in_session(script, core=audit(place)) as (_, _, client):
        await client.send("POST", call_body())
        await client.head()
        await client.read_until(10)
    assert [each["outcome"] for each in lines(place)] == ["client_gone"]


async def test_without_a_record_no_call_goes_on(in_session: StartRoad, place: Path) -> None:
    """The answer that could not be recorded is withheld, later calls are refused before anything of them is sent."""
    async with in_session(core=audit(place)) as (up, _, client):
        await client.call()
        shutil.rmtree(place / "audit")
        for _ in range(3):
            _, body = await client.call()
            assert orjson.loads(body)["error"]["code"] == -32014
        assert len(up.calls("tools/call")) == 2
        (place / "audit").mkdir()
        assert (await client.call())[1] == result(1)
    assert [each["event"] for each in lines(place)] == ["audit/restored", "tools/call"]


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN])
def sighup(request: pytest.FixtureRequest) -> Iterator[signal.Handlers]:
    """What SIGHUP does before the adapter starts: it ends a process, unless that runs under nohup."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield request.param
    signal.signal(signal.SIGHUP, before)


async def test_a_file_is_rotated(in_session: StartRoad, place: Path, sighup: signal.Handlers) -> None:
    """A rename is noticed by itself; the signal that the usual tools send does no harm, and stays ignored under
    nohup.
    """
    file = place / "audit" / "audit.log"
    async with in_session(core=audit(place)) as (_, _, client):
        await client.call()
        file.rename(file.with_suffix(".1"))
        os.kill(os.getpid(), signal.SIGHUP)
        await client.call()
        assert len(lines(place)) == 1
    assert signal.getsignal(signal.SIGHUP) is sighup


@pytest.mark.parametrize("reason", ["No such file or directory", "it is neither a regular file"])
async def test_a_file_that_cannot_be_written_is_no_start(
    upstream: StartUpstream, adapter: StartAdapter, tmp_path: Path, reason: str
) -> None:
    """The settings are refused with the reason; a named pipe would be waited for, maybe for ever."""
    if reason.startswith("it"):
        (tmp_path / "audit").mkdir()
        os.mkfifo(tmp_path / "audit" / "audit.log")
    async with upstream() as up:
        with pytest.raises(SettingsError, match=f"cannot be written: {reason}"):
            async with adapter(up, core=audit(tmp_path)):
                pass


async def test_a_batch_has_a_line_for_each_call(in_session: StartRoad, place: Path) -> None:
    """Batches of MCP 2025-03-26 are forwarded as before."""

    script = in_json(b"[" + result(2) + b',{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}]')

    async with in_session(script, version="2025-03-26", core=audit(place)) as (_, _, client):
        body = b"[" + call_body("a", 1) + b"," + call_body("b", 2) + b"]"
        head, _ = await client.request("POST", body)
        assert head.status == 200
    assert sorted((each["name"], each["outcome"]) for each in lines(place)) == [("a", "error"), ("b", "ok")]


async def test_files_are_on_record(in_session: StartRoad, place: Path) -> None:
    """Before the sender of one is answered, and before the first byte of another leaves, with its session."""
    script = playing(writing(b"made"))
    core = audit(place) | DOWNLOADS
    async with in_session(script, server=TOOLS, core=core) as (_, _, client):
        head, _ = await client.request("POST", form(b"content", "a\tb.txt"), "/upload/raw", content_type=FORM)
        assert head.status == 200
        made = await call(client, "write", {"filename": "out.txt"})
        link = urlsplit(made["_meta"]["artifact"]["download_url"])
        head, body = await client.request("GET", b"", f"{link.path}?{link.query}")
        assert (head.status, body) == (200, b"made")
        shutil.rmtree(place / "audit")
        await asyncio.sleep(2 * LOOKS)
        head, body = await client.request("GET", b"", f"{link.path}?{link.query}")
        assert head.status == 503 and b"made" not in body
        (place / "audit").mkdir()
        head, body = await client.request("GET", b"", f"{link.path}?{link.query}")
        assert (head.status, body) == (200, b"made")
    (line,) = lines(place)
    assert (line["event"], line["name"], line["answer_bytes"]) == ("files/download", "out.txt", 4)
    assert (line["entrance"], line["outcome"], len(line["session"])) == ("files", "ok", 16)


async def test_a_files_line_is_that_of_its_session(in_session: StartRoad, place: Path) -> None:
    """So that the calls of the session say who it was."""
    async with in_session(playing(writing(b"made")), server=TOOLS, core=audit(place)) as (_, _, client):
        await client.request("POST", form(b"content"), "/upload/raw", content_type=FORM)
        await call(client, "write", {"filename": "out.txt"})
    upload, made = lines(place)
    assert (upload["event"], upload["name"], upload["request_bytes"]) == ("files/upload", "note.txt", 7)
    assert upload["session"] == made["session"] and "principal" not in upload


async def test_code_mode_names_the_tool_that_was_meant(road: StartRoad, place: Path) -> None:
    """And the one through which it was called."""
    server = {"access": RULES, "code_mode_enabled": True}
    async with road(office, server=server, core=AUTH | audit(place)) as (_, _, client):
        fields = {"authorization": f"Bearer {BOB}"}
        await client.initialize(**fields)
        params = {"name": "raw_call_tool", "arguments": {"name": "read_file", "arguments": {}}}
        sent = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await client.request("POST", sent, **fields)
    (line,) = lines(place)
    assert (line["name"], line["via"], line["outcome"]) == ("read_file", "raw_call_tool", "ok")
