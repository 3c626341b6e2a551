"""Scripts, statements and connectors as a configuration declares them, behind a running adapter."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from adapter.hosted.connectors.port import ConnectorFailed
from adapter.settings.section import SettingsError
from tests.pipeline.end_to_end.living import Living, built, furnished, living

SETTINGS = """
connectors:
  - {name: main, connector: sqlite, connection_string: "{{ env.SHOP }}/shop.db", options: {mode: "{{ env.MODE }}"}}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - name: billing-pay
          handler: "work.py#echo"
          mappers: {input: "work.py#more", output: "work.py#wrapped"}
          inputs: {n: {type: int, optional: true}, more: {type: string, optional: true}}
        - {name: strict, handler: "work.py#echo", inputs: {n: {type: int}}}
        - {name: sleeps, handler: "work.py#sleeps"}
        - {name: blocks, handler: "work.py#blocks"}
        - {name: quick, handler: "work.py#quick"}
        - name: steps
          use: main
          statement: "INSERT INTO steps VALUES ({{ inputs.n }}, '{{ env.PLACE }}') RETURNING n, place"
          inputs: {n: {type: int}}
          mappers: {input: "work.py#noted"}
        - name: read
          use: main
          statement: "SELECT count(*) AS n FROM steps WHERE place = '{{ env.PLACE }}' AND n < {{ inputs.below }}"
          inputs: {below: {type: int, default: 100}}
          cache: {enabled: true, ttl: 60}
          mappers: {input: "work.py#noted"}
"""

WORK = """
import asyncio
import logging
import time
import urllib.request


def echo(payload, context):
    return payload


def more(payload):
    return {**payload["inputs"], "more": payload["tool"]}


def wrapped(payload):
    return {"results": payload["results"], "seen by": payload["tool"]}


def noted(payload):
    note("mapped")
    return payload["inputs"]


async def sleeps(payload):
    logging.getLogger("work").info("waiting")
    await asyncio.sleep(0.2)
    return "slept"


def blocks(payload):
    time.sleep(0.3)
    return "blocked"


async def quick(payload):
    return urllib.request.Request("http://127.0.0.1:9/").host
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a database, and where it is in the environment."""
    shop = tmp_path / "shop"
    shop.mkdir()
    with closing(sqlite3.connect(shop / "shop.db")) as database, database:
        database.execute("CREATE TABLE steps (n INTEGER, place TEXT)")
    for name, value in {"SHOP": str(shop), "MODE": "rw", "PLACE": "here"}.items():
        monkeypatch.setenv(name, value)
    return shop


def shop(place: Path, settings: str = SETTINGS) -> AbstractAsyncContextManager[Living]:
    return living(place, settings, scripts={"work": WORK})


async def test_h5_h11_a_script_gets_inputs_and_tool_and_its_return_is_the_result(place: Path) -> None:
    """The inputs are those after the mapper, and what the handler returns is what the output mapper gets."""
    async with shop(place) as front:
        answer = await front.call("billing-pay", {"n": "7"})
        handled = {"inputs": {"n": 7, "more": "billing-pay"}, "tool": "billing-pay"}
        assert answer.data == {"results": handled, "seen by": "billing-pay"}


async def test_h17_what_a_script_waits_for_holds_up_nobody(place: Path) -> None:
    """A script may sleep, block, log and use whatever Python has; another call is answered meanwhile."""
    async with shop(place) as front:
        began = time.monotonic()
        slow = [asyncio.create_task(front.call(tool)) for tool in ("sleeps", "blocks")]
        quick = [asyncio.create_task(front.call("quick")) for _ in range(5)]
        assert [(await each).text for each in quick] == ['"127.0.0.1:9"'] * 5
        assert not any(task.done() for task in slow)
        assert [(await each).text for each in slow] == ['"slept"', '"blocked"']
        # One after the other they would have taken the sum of both.
        assert time.monotonic() - began < 5


LOOPS = """
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - {name: spins, handler: "loop.py#spins", runtime: subprocess, limits: {timeout: 0.5}}
        - {name: eats, handler: "loop.py#eats", runtime: subprocess, limits: {timeout: 10}}
        - {name: looks, handler: "loop.py#looks", runtime: subprocess}
        - {name: raises, handler: "loop.py#raises", runtime: subprocess}
"""

LOOP = """
import os


def spins(payload):
    while True:
        pass


def eats(payload):
    return len(bytearray(8 * 2**30))


def looks(payload):
    return sorted(os.environ)


def raises(payload):
    raise RuntimeError("no way to postgres://me:hunter2@db/x\\nin the second line")
"""


async def test_w8_a_script_of_its_own_process_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that loops is killed on time, one that takes too much memory fails by itself; none sees the adapter's
    variables, and of an exception one line is told without what is in it to hide."""
    monkeypatch.setenv("ADAPTER_TEST_SECRET", "s3cret")
    async with living(tmp_path, LOOPS, scripts={"loop": LOOP}) as front:
        spun, eaten, looked, raised = await asyncio.gather(
            *(front.call(tool) for tool in ("spins", "eats", "looks", "raises"))
        )
        assert spun.failure["reason"] == "timeout" and "timed out after 0.5 s" in spun.text
        assert eaten.failure["stage"] == "handler" and "MemoryError" in eaten.text
        assert "ADAPTER_TEST_SECRET" not in looked.data
        assert raised.text == "handler script failed for tool raises: no way to [redacted]"


async def test_h6_a_statement_takes_its_steps_in_order(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are checked first, then the environment, then what is bound; then the database is asked."""
    async with shop(place) as front:
        assert (await front.call("steps", {"n": "x"})).failure["stage"] == "validation"
        assert (await front.call("steps", {"n": "8"})).data == [{"n": 8, "place": "here"}]
        monkeypatch.delenv("PLACE")
        assert (await front.call("steps", {"n": "x"})).failure["stage"] == "validation"
        assert (await front.call("steps", {"n": 9})).failure["stage"] == "environment"
        monkeypatch.setenv("PLACE", "there")
        assert (await front.call("steps", {"n": 9})).data == [{"n": 9, "place": "there"}]
    with closing(sqlite3.connect(place / "shop.db")) as database:
        assert database.execute("SELECT * FROM steps").fetchall() == [(8, "here"), (9, "there")]


async def test_h6_a_kept_result_needs_no_connector(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is asked after everything was put in, by what was put in, and holds what came of a success."""
    async with shop(place) as front:
        assert (await front.call("read", {})).data == [{"n": 0}]
        await front.call("steps", {"n": 1})
        assert (await front.call("read", {"below": 100})).data == [{"n": 0}], "kept, and mapped nevertheless"
        assert (await front.call("read", {"below": 50})).data == [{"n": 1}], "another value, another result"
        monkeypatch.setenv("PLACE", "there")
        assert (await front.call("read", {})).data == [{"n": 0}]
        monkeypatch.delenv("PLACE")
        assert (await front.call("read", {})).failure["stage"] == "environment", "before the cache is asked"
        assert front.ran().count("mapped") == 6


async def test_h13_a_connector_is_declared_once_and_named_by_tools(place: Path) -> None:
    """Two of one name, one that is not there, and a kind that nobody knows let nothing start."""
    twice = SETTINGS.replace(
        "servers:", "  - {name: main, connector: sqlite, connection_string: x.db}\nservers:"
    )
    for settings, said in (
        (twice, "main"),
        (SETTINGS.replace("use: main", "use: other"), "other"),
        (SETTINGS.replace("connector: sqlite", "connector: oracle"), "must be sqlite, postgres"),
    ):
        with pytest.raises(SettingsError, match=said):
            built(furnished(place, settings, work=WORK))


async def test_h23_the_environment_stands_where_it_may(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In connection strings and options at start; a variable that is not set is no start, by its name alone."""
    async with shop(place) as front:
        assert (await front.call("read", {})).data == [{"n": 0}]
    for name in ("SHOP", "MODE"):
        with monkeypatch.context() as without:
            without.delenv(name)
            with pytest.raises(SettingsError, match=f"the environment variable {name} is not set"):
                built(furnished(place, SETTINGS, work=WORK))


@pytest.mark.parametrize("policy", ['value: "{{ env.KEY }}"', 'values: ["{{env.KEY}}"]', 'value: "${KEY}"'])
async def test_h23_a_policy_takes_its_key_from_the_environment(place: Path, policy: str) -> None:
    """The placeholder itself is nobody's key."""
    locked = f"name: strict, auth: {{plugin: api_key, policy: {{{policy}}}}}"
    settings = SETTINGS.replace("name: strict", locked)
    async with living(place, settings, {"KEY": "k3y"}, scripts={"work": WORK}) as front:
        assert (await front.call("strict", {"n": 1}, {"X-API-Key": " k3y "})).data["inputs"] == {"n": 1}
        for key in ("{{ env.KEY }}", "{{env.KEY}}", "${KEY}", ""):
            assert (await front.call("strict", {"n": 1}, {"X-API-Key": key})).failure["stage"] == "auth"


TWO = """
connectors:
  - {name: first, connector: sqlite, connection_string: there.db}
  - {name: second, connector: sqlite, connection_string: nowhere/at-all.db REQUIRED}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - {name: one, use: first, statement: SELECT 1 AS n}
        - {name: two, use: second, statement: SELECT 2 AS n}
"""


async def test_h29_a_database_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    """With its name and the reason; those that could be are closed again."""
    (tmp_path / "there.db").touch()
    with pytest.raises(ConnectorFailed, match=r"second.*the database file does not exist"):
        async with living(tmp_path, TWO.replace(" REQUIRED", "")):
            pytest.fail("nothing is served")


async def test_h29_one_that_is_not_required_fails_its_own_tools_alone(tmp_path: Path) -> None:
    """The others work; and as soon as the database is there, its tools do too."""
    (tmp_path / "there.db").touch()
    async with living(tmp_path, TWO.replace(" REQUIRED", ", required: false")) as front:
        assert (await front.call("one")).data == [{"n": 1}]
        failed = await front.call("two")
        assert failed.failure["stage"] == "connector" and "the database file does not exist" in failed.text
        (tmp_path / "nowhere").mkdir()
        (tmp_path / "nowhere" / "at-all.db").touch()
        assert (await front.call("two")).data == [{"n": 2}]
