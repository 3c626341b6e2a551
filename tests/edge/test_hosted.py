"""Hosted tools as a configuration file declares them, called by the SDK's client of either era over a socket."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.types import CallToolResult

from adapter.app import build, running
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.settings.load import load
from adapter.settings.problems import SettingsError
from tests.hosted.serving import ERAS, Front

CONFIG = """
core: {port: 0, shutdown_grace_seconds: 0}
connectors:
  - {name: main, connector: sqlite, connection_string: "{{ env.FOLDER }}/shop.db", max_rows: 3}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    disabled_tools: [hidden]
    tools:
      cache: {ttl: 60}
      define:
        - name: get-user
          title: A user
          description: Get one user
          annotations: {readOnlyHint: true}
          use: main
          statement: "SELECT id, name FROM users WHERE id = {{ inputs.user_id }}"
          inputs: {user_id: {type: int, description: Primary key}}
          cache: {enabled: true, ttl: 30s}
        - name: find
          use: main
          statement: "SELECT id FROM users WHERE name LIKE '%{{ inputs.part }}%' AND name <> '{{ inputs.but }}'"
          inputs: {part: {type: string}, but: {type: string, default: ""}}
        - {name: all, use: main, statement: SELECT id FROM users ORDER BY id}
        - name: rename
          use: main
          statement: "UPDATE users SET name = {{ inputs.name }} WHERE id = {{ inputs.user_id }}"
          inputs: {user_id: {type: int}, name: {type: string, enum: [ann, eve]}}
          annotations: {destructiveHint: true}
        - name: forever
          use: main
          statement: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
          limits: {timeout: 200ms}
        - {name: broken, use: main, statement: SELECT secret FROM nowhere}
        - {name: placed, use: main, statement: "SELECT {{ env.ADAPTER_TEST_NOWHERE }} AS place"}
        - {name: hidden, use: main, statement: SELECT 1}
        - name: greet
          handler: app/scripts.py#greet
          inputs: {name: {type: string}, at: {type: datetime, optional: true}}
        - {name: steps, handler: "./app/scripts.py#steps"}
        - {name: read, handler: app/scripts.py#read, inputs: {path: {type: string}}}
        - {name: leak, handler: app/scripts.py#leak}
        - {name: wrong, handler: app/scripts.py#wrong}
        - {name: wait, handler: app/scripts.py#wait}
        - name: twice
          handler: app/twice.py
          runtime: subprocess
          inputs: {n: {type: int}}
        - {name: spin, handler: app/spin.py, runtime: subprocess, limits: {timeout: 0.3}}
"""

SCRIPTS = """
import asyncio
from pathlib import Path

from adapter.api import ToolUserError, progress, success


def greet(payload, context):
    return {"tool": payload["tool"], "inputs": payload["inputs"], "server": context.request.server}


async def steps(payload):
    yield progress(50, "half")
    yield success("done")


def read(payload):
    return Path(payload["inputs"]["path"]).read_text()


def leak(payload):
    raise RuntimeError("cannot connect to postgres://me:hunter2@db/x\\nsecond line")


def wrong(payload):
    raise ToolUserError("Pick another day.")


async def wait(payload):
    here = Path(__file__).parent
    (here / "began").touch()
    try:
        await asyncio.Event().wait()
    finally:
        (here / "cancelled").touch()
"""

TWICE = """
import json, sys
print(json.dumps({"twice": 2 * json.loads(sys.stdin.readline())["inputs"]["n"]}))
"""

PEOPLE = ((1, "ann"), (2, "bob' OR '1'='1"), (3, "{{ inputs.part }}"), (4, "eve"), (5, "eve%"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configuration, its database and its scripts, which is not the working directory."""
    folder = tmp_path / "shop"
    (folder / "app").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "app" / "scripts.py").write_text(SCRIPTS)
    (folder / "app" / "twice.py").write_text(TWICE)
    (folder / "app" / "spin.py").write_text("while True: pass\n")
    (folder / "data").mkdir()
    with closing(sqlite3.connect(folder / "data" / "shop.db")) as database, database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO users VALUES (?, ?)", PEOPLE)
    monkeypatch.setenv("FOLDER", "data")
    return folder


@asynccontextmanager
async def serving(place: Path, **overrides: Any) -> AsyncIterator[Front]:
    """The adapter on the configuration of ``place``."""
    said = {"storage.root": str(place / "files")} | {
        key.replace("__", "."): v for key, v in overrides.items()
    }
    async with running(app := build(load(place / "config.yaml", overrides=said, environ={}))) as (_, port):
        yield Front(app, port)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(result: CallToolResult) -> str:
    """The one text of a result."""
    (block,) = result.content
    assert block.type == "text"
    return block.text


def failure_of(result: CallToolResult) -> Mapping[str, Any]:
    """What ``_meta`` says of a call that failed."""
    assert result.is_error and result.meta is not None
    found: Mapping[str, Any] = result.meta["adapter/error"]
    return found


async def test_tools_are_listed_as_declared(place: Path, era: str) -> None:
    """In their order, with schemas made of their inputs; a disabled one is not seen."""
    async with serving(place) as front, front.client(era) as client:
        tools = (await client.list_tools()).tools
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


async def test_a_script_answers_what_it_returns(place: Path, era: str) -> None:
    """In process and in a process of its own, with its progress told."""
    told: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total == 100
        told.append((progress, message))

    async with serving(place) as front, front.client(era) as client:
        greeted = json.loads(text_of(await client.call_tool("greet", {"name": "ann", "at": "2026-01-02"})))
        assert greeted == {
            "tool": "greet",
            "inputs": {"name": "ann", "at": "2026-01-02"},
            "server": "shop",
        }
        assert text_of(await client.call_tool("twice", {"n": "21"})) == '{"twice":42}'
        assert text_of(await client.call_tool("steps", {}, progress_callback=on_progress)) == "done"
    assert told == [(50, "half")]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("get-user", {}, "Required You sent: (missing). Expected type: integer."),
        ("get-user", {"user_id": "one"}, "type validation failed: expected int"),
        ("get-user", {"user_id": 3.9}, "type validation failed: expected int"),
        ("get-user", {"user_id": 1, "hack": 1}, "Unrecognized key(s) in object: 'hack'"),
        ("rename", {"user_id": 1, "name": "zoe"}, "Valid options: 'ann', 'eve'."),
        ("greet", {"name": "ann", "at": "soon"}, "type validation failed: expected datetime"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    place: Path, tool: str, arguments: dict[str, Any], said: str
) -> None:
    """For statements and scripts alike, with all that is wrong, before anything runs."""
    async with serving(place) as front, front.client("legacy") as client:
        result = await client.call_tool(tool, arguments)
    assert text_of(result).startswith(f'<validation_error action="{tool}">') and said in text_of(result)
    assert failure_of(result) == {"stage": "validation", "code": -32000}


ATTACKS = (
    "' OR '1'='1",
    "'; DROP TABLE users; --",
    "\\' OR 1=1 --",
    "' UNION SELECT name FROM sqlite_master --",
    "{{ inputs.but }}",
    "{{ env.FOLDER }}",
    "?1",
    ":a",
    '"',
)


async def test_no_input_becomes_part_of_a_statement(place: Path, era: str) -> None:
    """Whatever a text holds, it is compared as the text it is, also inside quotes."""
    async with serving(place) as front, front.client(era) as client:
        for attack in ATTACKS:
            matches = [number for number, name in PEOPLE if attack in name]
            found = await client.call_tool("find", {"part": attack, "but": "nobody"})
            assert json.loads(text_of(found)) == [{"id": number} for number in matches], attack
            found = await client.call_tool("find", {"part": "ann", "but": attack})
            assert text_of(found) == '[{"id":1}]', attack
            for tool in ("get-user", "rename"):
                refused = await client.call_tool(tool, {"user_id": attack, "name": "ann"})
                assert failure_of(refused)["stage"] == "validation", attack
        greeted = json.loads(text_of(await client.call_tool("greet", {"name": "".join(ATTACKS)})))
        assert greeted["inputs"] == {"name": "".join(ATTACKS)}
        assert text_of(await client.call_tool("find", {"part": "{{ inputs.part }}"})) == '[{"id":3}]'
    with closing(sqlite3.connect(place / "data" / "shop.db")) as database:
        assert tuple(database.execute("SELECT id, name FROM users ORDER BY id")) == PEOPLE


async def test_a_kept_result_is_answered_again(place: Path) -> None:
    """Until its time is over the database is not asked, for the same values; other tools' are always asked."""
    async with serving(place) as front, front.client("legacy") as client:
        first = text_of(await client.call_tool("get-user", {"user_id": 1}))
        await client.call_tool("rename", {"user_id": 1, "name": "eve"})
        assert text_of(await client.call_tool("get-user", {"user_id": 1})) == first
        assert text_of(await client.call_tool("get-user", {"user_id": 4})) == '[{"id":4,"name":"eve"}]'
        assert text_of(await client.call_tool("find", {"part": "ann"})) == "[]"


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
        assert server.silence_for("tools/call", "spin") == 125
        assert server.silence_for("tools/call", "wait") == 60


async def test_rows_beyond_the_limit_are_cut(place: Path, era: str) -> None:
    """``_meta`` says so, and only then."""
    async with serving(place) as front, front.client(era) as client:
        cut = await client.call_tool("all", {})
        assert text_of(cut) == '[{"id":1},{"id":2},{"id":3}]'
        assert cut.meta is not None and cut.meta["adapter/truncated"] == {"max_rows": 3}
        whole = await client.call_tool("get-user", {"user_id": 1})
        assert "adapter/truncated" not in (whole.meta or {})


async def test_what_takes_too_long_is_ended(place: Path, era: str) -> None:
    """A script that loops, and a statement that does; the server goes on."""
    async with serving(place) as front, front.client(era) as client:
        looping = await client.call_tool("spin", {})
        assert text_of(looping) == "handler script failed for tool spin: timed out after 0.3 s"
        assert failure_of(looping) == {"stage": "handler", "code": -32000, "reason": "timeout"}
        looping = await client.call_tool("forever", {})
        assert text_of(looping).startswith("tool execution failed: failed to execute query: ")
        assert failure_of(looping) == {"stage": "connector", "code": -32000, "reason": "timeout"}
        assert text_of(await client.call_tool("get-user", {"user_id": 9})) == "[]"


async def test_a_cancelled_call_ends_its_script(place: Path, era: str) -> None:
    """The script is cancelled where it waits, and the client may go on."""
    async with serving(place) as front, front.client(era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await appears(place / "app" / "began")
            group.cancel_scope.cancel()
        await appears(place / "app" / "cancelled")
        assert text_of(await client.call_tool("get-user", {"user_id": 9})) == "[]"


async def appears(path: Path) -> None:
    """Returns when there is such a file."""
    async with asyncio.timeout(10):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_nothing_internal_is_told(place: Path, era: str) -> None:
    """A sentence meant for callers is told as it is; of others the first line, without credentials."""
    async with serving(place) as front, front.client(era) as client:
        leaked = await client.call_tool("leak", {})
        said = text_of(leaked)
        assert said.startswith("handler script failed for tool leak: cannot connect to ")
        assert not any(word in said for word in ("hunter2", "second line", "Traceback", "scripts.py"))
        assert failure_of(leaked) == {"stage": "handler", "code": -32000}
        assert text_of(await client.call_tool("wrong", {})) == "Pick another day."
        broken = await client.call_tool("broken", {})
        assert text_of(broken) == "tool execution failed: failed to execute query: no such table: nowhere"
        assert failure_of(broken) == {"stage": "connector", "code": -32000}
        placed = await client.call_tool("placed", {})
        assert failure_of(placed)["stage"] == "environment"
        assert text_of(placed) == (
            "tool 'placed': failed to substitute environment variables in statement: environment variable "
            "'ADAPTER_TEST_NOWHERE' not found (required at server startup)"
        )


async def test_in_safe_mode_an_exception_says_nothing(place: Path) -> None:
    """What was written for callers still stands."""
    async with serving(place, core__errors__expose="safe") as front, front.client("legacy") as client:
        assert text_of(await client.call_tool("leak", {})) == "The call failed."
        assert text_of(await client.call_tool("broken", {})) == "The call failed."
        assert text_of(await client.call_tool("wrong", {})) == "Pick another day."


async def test_a_tool_that_is_not_there_is_refused(place: Path, era: str) -> None:
    """With the code of a method that does not exist, also where it is only disabled."""
    async with serving(place) as front, front.client(era) as client:
        for name in ("nothing", "hidden"):
            with pytest.raises(Exception, match=name):
                await client.call_tool(name, {})


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
        ("scripts.py#greet", "scripts.py#hello", r"define\[8\]\.handler: .*no function 'hello'"),
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
    """The files of docs/hosted.md, as they stand there."""
    page = (Path(__file__).parents[2] / "docs" / "hosted.md").read_text()
    files = dict(re.findall(r"^```(yaml|sql|python)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
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
