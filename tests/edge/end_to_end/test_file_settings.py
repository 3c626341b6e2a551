"""What each setting of tools that move files does, over a socket."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.file_tools import DOWNLOADS, call, playing, rpc, text_of, upload, writing
from tests.edge.raw import Exchange

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def producer(**more: Any) -> dict[str, Any]:
    entry = {"type": "artifact_producer", "tools": ["write"], "output_path_argument": "filename"}
    return {"adapters": [{**entry, **more}]}


def consumer(**more: Any) -> dict[str, Any]:
    return {
        "adapters": [{"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path", **more}]
    }


def silent(_: dict[str, Any]) -> str:
    """A tool that writes nothing."""
    return "done"


# --- both ----------------------------------------------------------------------------------------------------

TAKES = {"type": "upload_consumer", "tools": ["turn"], "file_path_argument": "path"}
GIVES = {"type": "artifact_producer", "tools": ["turn"], "output_path_argument": "filename"}
TURN = {
    "name": "turn",
    "description": "Turns a file round.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "pattern": "^/"}, "filename": {"type": "string"}},
    },
}


async def turning(exchange: Exchange) -> None:
    """An upstream whose tool writes the file it was given the other way round, and names both."""
    message: Any = exchange.message
    answer: dict[str, Any] = {"tools": [TURN]}
    if message["method"] == "tools/call":
        given, told = (message["params"]["arguments"][name] for name in ("path", "filename"))
        Path(told).write_bytes(Path(given).read_bytes()[::-1])
        answer = {"content": [{"type": "text", "text": f"from {given} to {told}"}]}
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}))


@pytest.mark.parametrize("guard", ["off", "block"])
async def test_a_tool_takes_a_file_and_gives_another(
    in_session: StartRoad, tmp_path: Path, guard: str
) -> None:
    """Its definition says both, and is the same whichever entry stands first; no path of the store is shown."""
    definitions = []
    for adapters in ([TAKES, GIVES], [GIVES, TAKES]):
        core = {"tool_definition_pinning": {"mode": guard}}
        async with in_session(turning, server={"adapters": adapters}, core=core) as (_, _, client):
            (*_, listed) = (await rpc(client, "tools/list", {}))["tools"]
            definitions.append(listed)
            handle = (await upload(client, b"hello"))[1]["upload_handle"]
            answer = await call(client, "turn", {"path": handle, "filename": "b.txt"})
            artifact = answer["_meta"]["artifact"]
            assert text_of(answer) == f"from {handle} to {artifact['artifact_uri']}"
            assert str(tmp_path) not in orjson.dumps(answer).decode()
            read = await rpc(client, "resources/read", {"uri": artifact["artifact_uri"]})
            assert read["contents"][0]["text"] == "olleh"
    first, second = definitions
    assert first == second
    assert "pass the upload:// handle as path." in first["description"]
    assert first["description"].endswith("A file it produces comes back as an artifact:// URI.")
    assert "pattern" not in first["inputSchema"]["properties"]["path"]


async def test_of_two_overrides_the_longer_time_counts(road: StartRoad) -> None:
    """A call of a tool in two entries has one time."""
    short, long = ({"overrides": {"tool_call_timeout_seconds": seconds}} for seconds in (1, 2))
    for entries in ([{**TAKES, **short}, {**GIVES, **long}], [{**TAKES, **long}, {**GIVES, **short}]):
        async with road(turning, server={"adapters": entries}) as (up, front, _):
            await up.arrived("DELETE")  # the adapter has looked whether the tool is there
            assert front.app.servers["raw"].read_timeout_of("tools/call", "turn") == 2


# --- producers ------------------------------------------------------------------------------------------------


async def test_required_makes_a_failed_capture_an_error(in_session: StartRoad) -> None:
    """The tool's own text stays; without the setting the call succeeded."""
    for required in (True, False):
        async with in_session(playing(silent), server=producer(required=required)) as (_, _, client):
            answer = await call(client, "write", {})
            assert text_of(answer) == "done"
            assert answer.get("isError", False) is required
            assert "could not be captured" in answer["_meta"]["artifact_error"]
            assert ("could not be captured" in answer["content"][-1]["text"]) is required


async def test_persist_false_leaves_call_and_result_alone(in_session: StartRoad, tmp_path: Path) -> None:
    """No path is given to the tool, and nothing is added to what it says."""
    where = tmp_path / "of its own.txt"
    async with in_session(playing(writing(b"made")), server=producer(persist=False)) as (_, _, client):
        answer = await call(client, "write", {"filename": str(where)})
        assert where.read_bytes() == b"made"
        assert answer == {"content": [{"type": "text", "text": f"Saved to {where}."}]}


async def test_artifacts_off_pipes_the_tool(in_session: StartRoad) -> None:
    """``artifacts.enabled: false`` is as if there were no entry."""
    script = playing(lambda arguments: str(arguments))
    async with in_session(script, server=producer(), artifacts={"enabled": False}) as (_, _, client):
        assert await call(client, "write", {}) == {"content": [{"type": "text", "text": "{}"}]}


# --- consumers ------------------------------------------------------------------------------------------------


async def test_uploads_off_pipes_the_tool(in_session: StartRoad) -> None:
    """``uploads.enabled: false`` offers no helper and no route, and leaves arguments alone."""
    settings = {"enabled": False}
    async with in_session(server=consumer(), uploads=settings) as (up, _, client):
        await call(client, "read", {"path": "/srv/a.txt"})
        assert len(up.calls("tools/call")) == 1
        assert (await upload(client, b"x"))[0] == 404


@pytest.mark.parametrize("beside", [None, {"persist": False}, {}, {"allow_raw_output": False}])
async def test_an_editor_overrides_whether_results_have_its_files(
    in_session: StartRoad, beside: dict[str, Any] | None
) -> None:
    """Also where another entry says how the same tool writes a file; what that says itself comes before."""

    def edit(arguments: dict[str, Any]) -> str:
        Path(arguments["path"]).write_bytes(b"changed")
        return "done"

    entries = consumer(edits=True, overrides={"allow_raw_output": True})["adapters"]
    if beside is not None:
        entries += producer(tools=["read"], **beside)["adapters"]
    async with in_session(playing(edit), server={"adapters": entries}) as (_, _, client):
        handle = (await upload(client, b"hello"))[1]["upload_handle"]
        given = await call(client, "read", {"path": handle})
        held = [block["resource"]["text"] for block in given["content"] if block["type"] == "resource"]
        assert held == ([] if beside == {"allow_raw_output": False} else ["changed"])


async def test_an_entry_that_edits_nothing_says_nothing_of_what_the_tool_writes(
    in_session: StartRoad,
) -> None:
    """The same override of an entry that only takes files."""
    entries = [{**TAKES, "overrides": {"allow_raw_output": True}}, GIVES]
    async with in_session(turning, server={"adapters": entries}) as (_, _, client):
        handle = (await upload(client, b"hello"))[1]["upload_handle"]
        given = await call(client, "turn", {"path": handle, "filename": "b.txt"})
        assert given["_meta"]["artifact"] and "resource" not in {each["type"] for each in given["content"]}


# --- time -----------------------------------------------------------------------------------------------------


async def test_expose_as_resource_false_lists_nothing(in_session: StartRoad) -> None:
    """The artifact is kept and can be downloaded; its URI is not read."""
    server = producer(expose_as_resource=False)
    async with in_session(playing(writing(PNG)), server=server, core=DOWNLOADS) as (_, _, client):
        told = (await call(client, "write", {}))["_meta"]["artifact"]
        assert told["expose_as_resource"] is False and told["filename"] == "write.png"
        assert "code" in await rpc(client, "resources/list", {})
        assert "code" in await rpc(client, "resources/read", {"uri": told["artifact_uri"]})
        head, body = await client.request(
            "GET", b"", "/artifacts/" + told["download_url"].split("/artifacts/")[1]
        )
        assert (head.status, body) == (200, PNG)


async def test_time_to_live_counts_from_the_last_use(in_session: StartRoad) -> None:
    """A read, a download and a call keep a file; a look at the list does not."""
    ttl = {"ttl_seconds": 1.0}
    both = {"adapters": [*producer()["adapters"], *consumer()["adapters"]]}
    script = playing(lambda arguments: writing(b"made")(arguments) if "filename" in arguments else "")
    async with in_session(script, server=both, artifacts=ttl, uploads=ttl) as (_, _, client):
        used = (await call(client, "write", {"filename": "used.txt"}))["_meta"]["artifact"]["artifact_uri"]
        await call(client, "write", {"filename": "looked-at.txt"})
        _, told = await upload(client, b"hello")
        until = time.monotonic() + 1.6
        while time.monotonic() < until:
            assert "contents" in await rpc(client, "resources/read", {"uri": used})
            assert not (await call(client, "read", {"path": told["upload_handle"]})).get("isError")
            listed = await rpc(client, "resources/list", {})
            await asyncio.sleep(0.1)
        assert [each["name"] for each in listed["resources"]] == ["upload_workflow.md", "used.txt"]


async def test_zero_is_no_time_to_live(adapter: StartAdapter, upstream: StartUpstream) -> None:
    """Null is the word for files that stay; a file that is gone before anybody has it is refused as a setting."""
    async with upstream() as up:
        for section in ("uploads", "artifacts"):
            with pytest.raises(ValueError, match="greater than 0"):
                async with adapter(up, **{section: {"ttl_seconds": 0}}):
                    raise AssertionError("it does not start")


# --- lists ----------------------------------------------------------------------------------------------------


async def test_a_consumer_without_edits_keeps_no_change_beside_one_that_has_them(
    in_session: StartRoad,
) -> None:
    """A tool that changes both of its files gives that one back whose consumer says so."""

    def edit(arguments: dict[str, Any]) -> str:
        for name, path in arguments.items():
            Path(path).write_bytes(f"changed {name}".encode())
        return "done"

    one, other = consumer(edits=True)["adapters"][0], consumer(file_path_argument="other")["adapters"][0]
    server = {"adapters": [other, one]}
    async with in_session(playing(edit), server=server) as (_, _, client):
        handles = [(await upload(client, content))[1]["upload_handle"] for content in (b"one", b"two")]
        given = await call(client, "read", dict(zip(("path", "other"), handles, strict=True)))
        [link] = [block for block in given["content"] if block["type"] == "resource_link"]
        read = await rpc(client, "resources/read", {"uri": link["uri"]})
        assert read["contents"][0]["text"] == "changed path"
