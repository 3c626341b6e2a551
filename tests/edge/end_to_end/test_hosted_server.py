"""A hosted server is a server like any other, and one whose settings cannot be used is not started."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from adapter.app import build
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.settings.file.load import load
from adapter.settings.section import SettingsError
from tests.edge.hosting import CONFIG, failure_of, furnished, serving, text_of
from tests.hosted.serving import ERAS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, which is not the working directory."""
    monkeypatch.setenv("FOLDER", "data")
    return furnished(tmp_path / "shop")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_the_relay_waits_for_a_tool_that_may_take_long(place: Path) -> None:
    """Longer than the tool may take, so that the client reads the tool's own sentence."""
    (place / "config.yaml").write_text(CONFIG.replace("timeout: 0.3", "timeout: 2m"))
    async with serving(place) as front:
        server = front.app.servers["shop"]
        assert server.read_timeout_of("tools/call", "spin") == 125
        assert server.read_timeout_of("tools/call", "wait") == 60


@pytest.mark.parametrize("code", [-32601, -32602])
async def test_a_tool_that_is_not_there_is_refused(place: Path, era: str, code: int) -> None:
    """With the code that the settings say; a disabled one is refused too."""
    said = {"core__errors__unknown_tool_code": str(code)}
    async with serving(place, **said) as front, front.client(era) as client:
        with pytest.raises(MCPError, match="Unknown tool: nothing") as refused:
            await client.call_tool("nothing", {})
        assert refused.value.code == code
        with pytest.raises(MCPError, match="hidden"):
            await client.call_tool("hidden", {})


async def test_the_adapter_treats_a_hosted_server_as_any_other(place: Path) -> None:
    """Code mode finds its tools and calls them; health says that its pings are answered."""
    async with serving(place, core__code_mode_enabled="true") as front, front.client("legacy") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["shop_search_tools", "shop_get_tool_schema", "shop_call_tool"]
        called = await client.call_tool("shop_call_tool", {"name": "get-user", "arguments": {"user_id": 1}})
        assert text_of(called) == '[{"id":1,"name":"ann"}]'
        async with httpx2.AsyncClient() as http, asyncio.timeout(10):
            health = f"http://127.0.0.1:{front.port}/healthz"
            while (await http.get(health)).json()["status"] != "ok":
                await asyncio.sleep(0.01)


async def test_a_hosted_tool_takes_files(place: Path) -> None:
    """An upload consumer is one by its name, whoever serves it: the script gets the path of the file."""
    config = CONFIG.replace("disabled_tools: [hidden]", "adapters: [CONSUMER]").replace(
        "CONSUMER", "{type: upload_consumer, tools: [read], file_path_argument: path}"
    )
    (place / "config.yaml").write_text(config)
    async with serving(place) as front, front.client("legacy") as client, httpx2.AsyncClient() as http:
        offer = await client.call_tool("shop_get_upload_url", {})
        assert offer.structured_content is not None
        url = offer.structured_content["upload_url"]
        (uploaded,) = (await http.post(url, files={"file": ("a.txt", b"hello")})).json()["uploads"]
        read = await client.call_tool("read", {"path": uploaded["upload_handle"]})
        assert text_of(read) == '"hello"'


async def test_a_session_outlives_a_restart(place: Path) -> None:
    """The server's own sessions end with the process; the client's goes on."""
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    call = {"name": "get-user", "arguments": {"user_id": 1}}
    async with httpx2.AsyncClient(headers=headers) as http:
        async with serving(place) as front:
            said = await http.post(front.url, json=request(1, "initialize", opening))
            http.headers["Mcp-Session-Id"] = said.headers["Mcp-Session-Id"]
        async with serving(place) as front:
            said = await http.post(front.url, json=request(2, "tools/call", call))
            assert said.json()["result"]["content"][0]["text"] == '[{"id":1,"name":"ann"}]'


def request(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def test_a_database_that_cannot_be_opened_ends_the_start(place: Path) -> None:
    """With one line that names it; where it is not required its tools alone fail, until it is there."""
    shop = place / "data" / "shop.db"
    away = shop.rename(place / "away.db")
    with pytest.raises(
        ConnectorFailed, match=r"^connector 'main' \(sqlite\): the database file does not exist"
    ):
        async with serving(place):
            pass
    async with serving(place, connectors__0__required="false") as front, front.client("legacy") as client:
        failed = await client.call_tool("all", {})
        assert failure_of(failed)["stage"] == "connector" and "connector 'main'" in text_of(failed)
        assert text_of(await client.call_tool("twice", {"n": 1})) == '{"twice":2}'
        away.rename(shop)
        assert not (await client.call_tool("all", {})).is_error


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "app/twice.py",
            "app/nothing.py",
            r"define\[14\]\.handler: The script app/nothing.py does not exist",
        ),
        (
            "scripts.py#greet",
            "scripts.py#hello",
            r"define\[8\]\.handler: .*the function 'hello' does not exist",
        ),
        ("{{ inputs.user_id }}", "{{ inputs.id }}", r"define\[0\]\.statement: .*input 'id' not found"),
        ('default: ""', "default: [1]", r"define\[1\]\.inputs\.but: expected string, got array"),
        ("env.FOLDER", "env.OTHER", r"connectors\[0\]: the environment variable OTHER is not set"),
    ],
)
def test_what_cannot_be_used_is_named(place: Path, before: str, after: str, problem: str) -> None:
    """At start, before anything is opened, with its place in the file."""
    (place / "config.yaml").write_text(CONFIG.replace(before, after, 1))
    with pytest.raises(SettingsError, match=problem):
        build(load(place / "config.yaml", environ={}))


async def test_the_documented_example_works(tmp_path: Path) -> None:
    """The files of docs/hosted.md, as they stand there: the first block of each language."""
    page = (Path(__file__).parents[3] / "docs" / "hosted.md").read_text()
    files = dict(reversed(re.findall(r"^```(yaml|sql|python)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)))
    (tmp_path / "config.yaml").write_text(files["yaml"])
    (tmp_path / "quote.py").write_text(files["python"])
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(files["sql"])
    more = {"core__port": "0", "servers__0__mount_path": "/mcp"}
    async with serving(tmp_path, **more) as front, front.client("2026-07-28") as client:
        found = await client.call_tool("find-products", {"part": "lamp"})
        assert [row["name"] for row in json.loads(text_of(found))] == ["lamp", "large lamp"]
        written = await client.call_tool("set-price", {"id": 1, "price": "19.5"})
        assert text_of(written) == '[{"rows_affected":1}]'
        assert text_of(await client.call_tool("quote", {"price": 20, "count": 2})) == '{"total":40.0}'
        assert text_of(await client.call_tool("quote", {"price": 20, "count": 0})).startswith("At least one")


async def test_hosted_tools_in_a_shared_session(place: Path) -> None:
    """Clients of one principal share a session of the hosted server, and each gets its own answers."""
    async with serving(place, sessions__upstream="principal", sessions__missing_id="principal") as front:

        async def greeted(name: str) -> list[str]:
            async with front.client("legacy") as client:
                return [text_of(await client.call_tool("greet", {"name": name})) for _ in range(5)]

        names = ("ann", "bob", "eve")
        answers = await asyncio.gather(*(greeted(name) for name in names))
        for name, said in zip(names, answers, strict=True):
            assert len(said) == 5 and all(name in each for each in said)
        async with front.client("2026-07-28") as modern:
            assert "zoe" in text_of(await modern.call_tool("greet", {"name": "zoe"}))
