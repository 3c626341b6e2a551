"""``mcp-adapter doctor``: one line for each thing that is right, wrong, or asks for attention, and what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapter.state.lock_file import StateLock
from tests.commands.running import mcp_adapter
from tests.e2e.filing import ADAPTERS
from tests.e2e.processes import Adapter, Server, adapter
from tests.ports import free_port

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.files_server"
TOKEN = "a-token-of-sixteen-letters"


class Examined(NamedTuple):
    status: int
    lines: list[str]
    errors: str

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)


async def doctor(config: Path, *arguments: str) -> Examined:
    ran = await asyncio.to_thread(mcp_adapter, Path(), "doctor", "--config", config, *arguments)
    return Examined(ran.returncode, ran.stdout.splitlines(), ran.stderr)


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(UPSTREAM, tmp_path) as running:
        yield running


def settings(place: Path, upstream: str, **sections: Any) -> Path:
    """A settings file with one server."""
    entry = {"id": "upstream", "mount_path": "/mcp", "upstream": {"url": upstream}, "adapters": ADAPTERS}
    config = place / "settings.json"
    given = {"storage": {"root": str(place / "data")}, "servers": [entry], **sections}
    config.write_text(json.dumps({"core": {"port": free_port()}, **given}))
    return config


async def test_an_adapter_that_does_not_run_is_run(tmp_path: Path, upstream: Server) -> None:
    """A file goes through a tool and back, and nothing is left behind."""
    config = settings(tmp_path, upstream.url, core={"port": free_port(), "allow_artifacts_download": True})
    found = await doctor(config, "--tool", "turn_round")
    assert (found.status, found.errors) == (0, ""), found
    assert found.lines[-1] == "Nothing is wrong."
    assert all(line.startswith("ok ") for line in found.lines[:-1]), found.lines
    for text in (
        "the adapter does not run",
        "is writable",
        "its lock is free",
        "the upstream of upstream agrees",
        "server upstream: files",
        "MCP 2026-07-28 (without sessions)",
        "8 tools, listed in",
        "a file was uploaded",
        "its artifact doctor.txt (32 B) was downloaded",
    ):
        assert found.says(text), text


async def test_the_running_adapter_is_looked_at(tmp_path: Path, upstream: Server) -> None:
    """With the token of its settings."""
    core = {"auth": {"enabled": True, "token": TOKEN}}
    async with adapter(tmp_path, upstream.url, adapters=ADAPTERS, core=core) as front:
        found = await doctor(tmp_path / "adapter.json", "--port", str(front.port))
        assert found.status == 0, found
        assert found.says("the adapter runs on") and found.says("the running adapter holds its lock")
        assert found.says("8 tools")
        refused = await doctor(tmp_path / "adapter.json", "--port", str(front.port), "--token", "another")
        assert refused.status == 1 and refused.says("WRONG    server upstream:")


async def test_a_running_adapter_without_files_needs_no_lock(tmp_path: Path, upstream: Server) -> None:
    """If no server takes or writes files, the adapter never opens the store of files."""
    async with adapter(tmp_path, upstream.url) as front:
        found = await doctor(tmp_path / "adapter.json", "--port", str(front.port))
        assert found.status == 0, found
        assert found.says("no server uses files, so the running adapter needs no lock")


async def test_what_is_wrong_is_said_with_what_to_do(tmp_path: Path) -> None:
    """A server that is down, a tool that it does not have, a port and a folder that are somebody else's."""
    nobody = f"http://127.0.0.1:{free_port()}/mcp"
    found = await doctor(settings(tmp_path, nobody))
    assert found.status == 1 and found.says("WRONG    server upstream:")
    assert found.says("opens no session: The upstream server cannot be reached: it refused the connection.")
    assert found.says("they can be used; 1 server")
    assert found.lines[-1].startswith("1 of ") and found.lines[-1].endswith("findings is wrong.")
    taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with taken:
        port = str(taken.sockets[0].getsockname()[1])
        found = await doctor(settings(tmp_path, nobody), "--port", port)
        assert found.says(
            f"WRONG    port: the port is taken. Stop the program that listens on 127.0.0.1:{port}, or choose another"
        )
    found = await doctor(settings(tmp_path, nobody), "--host", "0.0.0.0")
    assert found.says("warning  core.host: is 0.0.0.0 and core.auth is not enabled")
    (tmp_path / "file").write_text("")
    found = await doctor(settings(tmp_path, nobody, storage={"root": str(tmp_path / "file")}))
    assert found.says("is no directory. Remove the file that is in its place, or set another storage.root.")
    assert found.lines[-1].endswith("findings are wrong.")
    state = {"disk": {"local_path": str(tmp_path / "file" / "state.sqlite3")}}
    found = await doctor(settings(tmp_path, nobody, state_persistence=state))
    assert found.says("WRONG    state:") and found.says("or set another state_persistence.disk.local_path.")


async def test_state_of_another_adapter_is_left_alone(tmp_path: Path) -> None:
    """Which may run at another port. No adapter is run beside it, for both would mix their sessions."""
    state = tmp_path / "state.sqlite3"
    config = settings(
        tmp_path, "http://127.0.0.1:9/mcp", state_persistence={"disk": {"local_path": str(state)}}
    )
    lock = StateLock(state, 0)
    found = await doctor(config)
    lock.close()
    assert found.status == 1 and not state.exists()
    assert found.says(
        f"WRONG    adapter: it does not start: another adapter uses {state}, which is for one alone"
    )


async def test_a_misspelled_tool_is_found(tmp_path: Path, upstream: Server) -> None:
    """Also one that is asked for and takes no files; and as JSON for machines."""
    config = settings(tmp_path, upstream.url)
    read = json.loads(config.read_text())
    read["servers"][0]["adapters"] = [
        {"type": "upload_consumer", "tools": ["digset"], "file_path_argument": "path"}
    ]
    config.write_text(json.dumps(read))
    found = await doctor(config, "--tool", "draw", "--json")
    assert found.status == 1
    wrongs = [each for each in json.loads("\n".join(found.lines)) if each["status"] == "wrong"]
    assert [each["sentence"] for each in wrongs] == [
        "servers[].adapters names the tool digset, which the server does not list.",
        "no adapter is declared for it.",
    ]
    assert all(each["advice"] for each in wrongs)


async def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """Before anything is looked at."""
    config = settings(tmp_path, "http://127.0.0.1:9/mcp")
    for arguments, says in (
        (("--server", "none"), "no server has the id none; there are upstream"),
        (("--arguments", "[]"), "--arguments: must be a JSON object"),
    ):
        found = await doctor(config, *arguments)
        assert (found.status, found.lines) == (2, []) and says in found.errors


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the reason that only operators are told."""
    entry = {"id": "program", "upstream": {"transport": "stdio", "command": "no-such-program -y x"}}
    found = await doctor(settings(tmp_path, "", servers=[entry]))
    assert found.status == 1
    assert found.says(
        "server program: upstream.command: 'no-such-program -y x' was not found on PATH: write"
    ), found


async def test_the_eras_of_servers_and_what_mounts_miss_are_told(tmp_path: Path) -> None:
    """As the servers speak, not the adapter before them; one that is killed is wrong from its first line."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    async with (
        Server("tests.e2e.eras_server", tmp_path / "old", ("legacy",)) as old,
        Server("tests.e2e.eras_server", tmp_path / "new", ("both",)) as new,
    ):
        servers = [
            {"id": name, "mount_path": f"/{name}", "upstream": {"url": each.url}}
            for name, each in (("old", old), ("new", new))
        ]
        given = {"storage": {"root": str(tmp_path / "data")}, "servers": servers}
        async with Adapter(tmp_path, {**given, "mounts": [{"id": "all", "servers": ["*"]}]}) as front:
            port = ("--port", str(front.port))
            found = await doctor(tmp_path / "adapter.json", *port)
            assert found.status == 0, found
            lines = {line.split(": ")[0].split()[-1]: line for line in found.lines if ", offers " in line}
            assert ", era legacy; through the adapter MCP 2026-07-28 (without sessions)" in lines["old"]
            assert ", eras legacy and modern; through the adapter MCP 2026-07-28" in lines["new"]
            (told,) = (line for line in found.lines if "mount all" in line)
            assert told.startswith("ok       mount all: /mcp/all answers, ") and told.endswith(" tools")
            connected = mcp_adapter(Path(), "check", "--config", tmp_path / "adapter.json", "--connect")
            assert ", era legacy" in connected.stdout and ", eras legacy and modern" in connected.stdout
            await old.kill()
            found = await doctor(tmp_path / "adapter.json", *port)
            assert [line[:7] for line in found.lines if "server old" in line] == ["WRONG  "]
            (told,) = (line for line in found.lines if "mount all" in line)
            assert told.startswith("warning  mount all: /mcp/all answers, ") and "; missing: old: The" in told
