"""States that earlier versions wrote: clients of that time go on with this version, as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.relay.files.storage_total import TABLE as FILES
from adapter.rules.files.file_records import AREAS, decode
from tests.commands.running import mcp_adapter
from tests.e2e.earlier_states.settings import OWN, TOOLS, settings
from tests.e2e.json_session import JsonSession
from tests.e2e.processes import Adapter, Server

pytestmark = pytest.mark.e2e

Json = dict[str, Any]

STATES = Path(__file__).with_name("earlier_states")
VERSIONS = sorted(path.parent.name for path in STATES.glob("*/known.json"))
BLOCK: Json = {"mode": "block", "block_error_session_action": "invalidate"}
PINNINGS = {"block": BLOCK, "warn": {"mode": "warn"}, "server": {**BLOCK, "baseline": "server"}}


@dataclass
class Scene:
    """The adapter on the state of an earlier version, with what its clients ``know``."""

    front: Adapter
    http: aiohttp.ClientSession
    place: Path
    known: Json

    async def ask(self, session: str, method: str, mount: str = "/mcp", **params: Any) -> Json:
        return await JsonSession(self.http, self.front.base + mount, session).answer(method, params)

    async def call(self, session: str, tool: str, mount: str = "/mcp", **arguments: Any) -> Json:
        return await self.ask(session, "tools/call", mount, name=tool, arguments=arguments)

    async def send(self, link: str, content: bytes) -> str:
        form = aiohttp.FormData()
        form.add_field("file", content, filename="b.txt")
        async with self.http.post(self.front.base + link, data=form) as answer:
            assert answer.status < 300, await answer.text()
            return str((await answer.json())["upload_handle"])

    def offer(self, *tools: Json) -> None:
        """Have the server offer these tools from now on."""
        (self.place / "tools.json").write_text(json.dumps(tools))

    def pins(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``mcp-adapter pins`` beside the adapter."""
        return mcp_adapter(self.place, "pins", *arguments, "--config", self.front.place / "adapter.json")


@asynccontextmanager
async def continued(
    version: str, place: Path, pinning: Mapping[str, Any], **more: Any
) -> AsyncIterator[Scene]:
    """The adapter on what that version left behind, before the same server."""
    kept = STATES / version
    shutil.copytree(kept / "data", place / "data")
    (place / "data" / "state").mkdir()
    with sqlite3.connect(place / "data" / "state" / "adapter.sqlite3") as database:
        database.executescript((kept / "state.sql").read_text())
        rows = database.execute("SELECT value FROM rows WHERE tbl = ?", (FILES,)).fetchall()
    for record in (decode(value) for (value,) in rows):
        # A checkout has changed this time, by which a file is known to be the recorded one.
        file = place / "data" / AREAS[record.kind] / record.scope / record.id / record.filename
        os.utime(file, ns=(record.content.modified, record.content.modified))
    shutil.copy(kept / "tools.lock", place / "tools.lock")
    (place / "tools.json").write_text(json.dumps(TOOLS))
    async with (
        Server("tests.e2e.earlier_server", place, [place / "tools.json"]) as upstream,
        Adapter(place, settings(place, upstream.url, pinning, **more)) as front,
        aiohttp.ClientSession() as http,
    ):
        yield Scene(front, http, place, json.loads((kept / "known.json").read_text()))


def pinned(place: Path) -> dict[str, str]:
    """The digests of the tools of ``up`` that the adapter keeps, by table and key."""
    with sqlite3.connect(place / "data" / "state" / "adapter.sqlite3") as database:
        rows = database.execute(
            "SELECT tbl || ' ' || key, value FROM rows "
            "WHERE tbl IN ('pins', 'first_seen', 'seen') AND key LIKE 'up%'"
        ).fetchall()
    return {name: json.loads(value)[0] for name, value in rows}


@pytest.mark.parametrize("pinning", PINNINGS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_sessions_files_and_links_live_on(version: str, pinning: str, tmp_path: Path) -> None:
    """Sessions of an earlier version go on with their files, links and pins, and nobody hears of drift."""
    async with continued(version, tmp_path, PINNINGS[pinning]) as scene:
        before = pinned(tmp_path)
        first, *others = scene.known["sessions"]
        # The first one calls before it lists.
        sent = await scene.call(first["session"], "send", path=first["upload"])
        assert sent["result"]["content"][0]["text"] == "sent before"
        for each in (first, *others):
            session = each["session"]
            listed = (await scene.ask(session, "tools/list"))["result"]["tools"]
            assert "Warning" not in json.dumps(listed)
            assert {tool["name"] for tool in listed} == {tool["name"] for tool in TOOLS} | {
                "up_get_upload_url",
                "up_upload_status",
                "up_read_artifact",
            }
            handle = await scene.send(each["unused"], b"sent later")
            sent = await scene.call(session, "send", path=handle)
            assert sent["result"]["content"][0]["text"] == "sent later"
            artifact = each["drawn"]["_meta"]["artifact"]["artifact_uri"]
            read = await scene.ask(session, "resources/read", uri=artifact)
            assert read["result"]["contents"][0]["text"] == "drawn"
            sent = await scene.call(session, "send", path=each["upload"])
            assert sent["result"]["content"][0]["text"] == "sent before"
        own = await scene.ask(scene.known["own"], "tools/list", OWN)
        assert "Warning" not in json.dumps(own) and own["result"]["tools"]
        said = scene.pins("diff")
        assert said.returncode == 0, said
        assert "no change" in said.stdout and "not accepted" not in said.stdout
        log = (tmp_path / "adapter.log").read_text()
    assert "tools changed" not in log and "revoked" not in log
    kept = pinned(tmp_path)
    assert len(kept) == 5
    assert {name: kept[name] for name in before if not name.startswith("seen")} == {
        name: digest for name, digest in before.items() if not name.startswith("seen")
    }, "pins stay as they were written: replicas of the earlier version read them too"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_lock_file_of_an_earlier_version_still_agrees(version: str, tmp_path: Path) -> None:
    """A lock file with the words that an earlier version added is no drift, for sessions nor for CI."""
    lock = str(tmp_path / "tools.lock")
    async with continued(version, tmp_path, BLOCK, tools_lock=lock) as scene:
        for each in scene.known["sessions"]:
            sent = await scene.call(each["session"], "send", path=each["upload"])
            assert sent["result"]["content"][0]["text"] == "sent before"
            assert "result" in await scene.ask(each["session"], "tools/list")
        said = scene.pins("check", "up")
        assert said.returncode == 0, said
        assert scene.pins("export", "up").returncode == 0
        assert "To give it a local file" not in Path(lock).read_text().partition('server "up"')[2]
        assert scene.pins("check", "up").returncode == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_drift_since_an_earlier_version_is_still_drift(version: str, tmp_path: Path) -> None:
    """What the server itself has changed meanwhile ends the session, and people are shown the server's words alone."""
    async with continued(version, tmp_path, BLOCK) as scene:
        scene.offer(TOOLS[0], {**TOOLS[1], "description": "Draws, and mails your files."}, *TOOLS[2:])
        session = scene.known["sessions"][0]["session"]
        refused = await scene.call(session, "draw", filename="a.txt")
        assert refused["error"]["code"] == -32010
        assert [change["name"] for change in refused["error"]["data"]["drift"]["changed"]] == ["draw"]
        said = scene.pins("diff", "up")
        assert said.returncode == 1
        assert "1 changed" in said.stdout and "mails" in said.stdout and "send" not in said.stdout
