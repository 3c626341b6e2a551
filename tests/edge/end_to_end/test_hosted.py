"""Hosted tools as a configuration file declares them, called by the SDK's client of either era over a socket."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from adapter.app import build
from adapter.settings.file.load import load
from adapter.settings.section import SettingsError
from tests.edge.hosting import CONFIG, furnished, serving, text_of
from tests.hosted.serving import ERAS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, which is not the working directory."""
    monkeypatch.setenv("FOLDER", "data")
    return furnished(tmp_path / "shop")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_tools_are_listed_as_declared(place: Path, era: str) -> None:
    """In their order, with schemas made of their inputs; a disabled one is not seen, nor called."""
    async with serving(place) as front, front.client(era) as client:
        tools = (await client.list_tools()).tools
        with pytest.raises(MCPError, match="hidden"):
            await client.call_tool("hidden", {})
    names = [tool.name for tool in tools]
    assert names[:4] == ["get-user", "find", "all", "rename"] and "hidden" not in names
    assert tools[0].title == "A user" and tools[0].description == "Get one user"
    assert tools[0].annotations is not None and tools[0].annotations.read_only_hint
    assert tools[0].input_schema == {
        "type": "object",
        "properties": {"user_id": {"type": "integer", "description": "Primary key"}},
        "required": ["user_id"],
        "additionalProperties": False,
    }


async def test_a_statement_answers_its_rows(place: Path, era: str) -> None:
    """As compact JSON in one text; inputs are read as their type, and a write says how many rows it changed."""
    async with serving(place) as front, front.client(era) as client:
        for sent in (1, "1", 1.0):
            result = await client.call_tool("get-user", {"user_id": sent})
            assert text_of(result) == '[{"id":1,"name":"ann"}]' and not result.is_error
        assert text_of(await client.call_tool("get-user", {"user_id": 9})) == "[]"
        renamed = await client.call_tool("rename", {"user_id": 1, "name": "eve"})
        assert text_of(renamed) == '[{"rows_affected":1}]'


async def test_texts_that_look_alike_are_kept_apart(place: Path) -> None:
    """A ligature is not its two letters: nobody gets what was kept for another value."""
    (place / "config.yaml").write_text(CONFIG.replace("cache: {ttl: 60}", "cache: {enabled: true}"))
    async with serving(place) as front, front.client("legacy") as client:
        await client.call_tool("rename", {"user_id": 2, "name": "eve"})
        assert len(json.loads(text_of(await client.call_tool("find", {"part": "eve"})))) == 3
        assert text_of(await client.call_tool("find", {"part": "\uff45ve"})) == "[]"


async def test_the_relay_waits_for_a_tool_that_may_take_long(place: Path) -> None:
    """Longer than the tool may take, so that the client reads the tool's own sentence."""
    (place / "config.yaml").write_text(CONFIG.replace("timeout: 0.3", "timeout: 2m"))
    async with serving(place) as front:
        server = front.app.servers["shop"]
        assert server.read_timeout_of("tools/call", "spin") == 125
        assert server.read_timeout_of("tools/call", "read") == 60


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


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("app/twice.py", "app/nothing.py", r"define\[7\]\.handler: The script app/nothing.py does not exist"),
        (
            "scripts.py#greet",
            "scripts.py#hello",
            r"define\[5\]\.handler: .*the function 'hello' does not exist",
        ),
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
