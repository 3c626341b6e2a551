"""Hosted tools as a configuration file declares them, called by the SDK's client of either era over a socket."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.edge.hosting import CONFIG, PEOPLE, failure_of, furnished, serving, text_of
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
