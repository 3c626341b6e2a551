"""What operators see of plans, and how a configuration is checked and changed while the adapter runs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.cli import run
from adapter.rules.tools.definitions import PinnedTool, pinned, read_tool
from adapter.rules.tools.lock_file import write_lock
from tests.e2e.processes import Running, answers, start
from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import Speaker, furnished
from tests.ports import free_port
from tests.waiting import until

SETTINGS = """
core: {errors: {expose: safe}}
context: {factory: "code.py#context"}
connectors:
  - {name: main, connector: sqlite, connection_string: ":memory:"}
presenters:
  row: {schema: {n: int}}
state_sync:
  policies: [{match: "shop.drop", invalidates: ["shop.*"]}]
servers:
  - id: shop
    upstream: {transport: hosted}
    tools:
      define:
        - name: find
          use: main
          statement: "SELECT {{ inputs.n }} AS n"
          inputs: {n: {type: int}}
          auth: {plugin: api_key, policy: {value: k3y-s3cret}}
          mappers: {input: "code.py#mapped", output: "code.py#mapped"}
          middleware: ["code.py#around"]
          limits: {rate: {max: 3, window: 60, key: identity}, concurrency: {max_active: 2, max_queue: 4}, egress: 2Mi}
          presenter: row
          cache: {enabled: true, ttl: 5}
          errors: {mode: jsonrpc}
        - {name: drop, handler: "code.py#mapped", runtime: subprocess, annotations: {destructiveHint: true}}
  - id: up
    upstream: {url: "http://127.0.0.1:9/mcp"}
    adapters:
      - {type: upload_consumer, tools: [take, turn], file_path_argument: path, delivery: base64}
      - {type: artifact_producer, tools: [give, turn], output_locator: {mode: regex, output_path_regexes: ["x(.*)"]}}
    stages:
      "get_*": {validate: true, cache: {enabled: true, ttl: 30}, errors: {mode: jsonrpc}}
"""

CODE = """
def context(request):
    return {}


def mapped(payload):
    return payload


async def around(ctx, args, next):
    return await next()
"""

HOSTED = """\
shop find (statement, 30 s in all)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: -32601
   2  pin               warn
   3  context           code.py#context
   4  auth              api_key
   5  limits            3 calls in 60 s for each identity
   5  limits            2 calls at once, 4 may wait
   6  input_transform   code.py#mapped
   7  validate          1 input, strictly
   8  middleware        code.py#around
   9  cache             5 s, apart by identity
  10  execute           a statement for main
  11  output_transform  code.py#mapped
  12  presenter         row
  13  state_sync        invalidates nothing
  15  finish            failures as jsonrpc, exceptions as safe, results up to 2097152 bytes

"""

DESTRUCTIVE = """\
shop drop (script, 30 s in all)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: -32601
   2  pin               warn
   3  context           code.py#context
   5  limits            one call at a time, as it is destructive
   7  validate          0 inputs, strictly
  10  execute           code.py#mapped, subprocess
  13  state_sync        invalidates shop.*
  15  finish            failures as result, exceptions as safe

"""

PROXIED = """\
up take (proxied)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: the upstream's answer
   2  pin               warn
  10  execute           handles in path become base64, then the upstream
  15  finish            the upstream's bytes

up turn (proxied)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: the upstream's answer
   2  pin               warn
  10  execute           handles in path become base64, then the upstream, \
then its file by its result, by regex is captured
  15  finish            the upstream's bytes

up give (proxied)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: the upstream's answer
   2  pin               warn
  10  execute           the upstream, then its file by its result, by regex is captured
  15  finish            the upstream's bytes

up get_* (proxied)
   0  admit             bodies up to 4194304 bytes, session and principal
   1  resolve           unknown: the upstream's answer
   2  pin               warn
   3  context           code.py#context
   7  validate          by the upstream's schema, strictly
   9  cache             30 s, apart by session
  10  execute           the upstream
  13  state_sync        invalidates nothing
  15  finish            failures as jsonrpc, exceptions as safe

Any other tool is forwarded byte for byte.
"""


def locked(name: str, **members: Any) -> PinnedTool:
    """A tool as a lock file has it."""
    tool = read_tool(orjson.dumps({"name": name, **members}))
    assert tool is not None
    return pinned(tool)


@pytest.fixture
def config(tmp_path: Path) -> str:
    return str(furnished(tmp_path, SETTINGS, code=CODE))


def test_h1_plans_are_shown_in_the_order_things_happen(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each stage with its number and how it is set; of hosted tools all, of an upstream's those that something is said
    of; keys are not shown."""
    assert run(["plan", "shop", "--config", config]) == 0
    assert capsys.readouterr().out == HOSTED + DESTRUCTIVE
    assert run(["plan", "shop", "drop", "--config", config]) == 0
    assert capsys.readouterr().out == DESTRUCTIVE
    assert run(["plan", "up", "--config", config]) == 0
    assert capsys.readouterr().out == PROXIED


def test_plans_are_data_for_scripts(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--json`` each plan has the stages, numbers and sentences of the text."""
    assert run(["plan", "shop", "--config", config]) == 0
    text = capsys.readouterr().out
    assert run(["plan", "shop", "--json", "--config", config]) == 0
    plans = json.loads(capsys.readouterr().out)
    lines = []
    for plan in plans:
        lines.append(
            f"{plan['server']} {plan['tool']} ({plan['kind']}, {plan['timeout_seconds']:g} s in all)"
        )
        for stage in plan["stages"]:
            lines.append(f"  {stage['slot']:>2}  {stage['stage']:<16}  {stage['detail']}".rstrip())
        lines.append("")
    assert lines == text.splitlines()
    assert run(["plan", "up", "other", "--json", "--config", config]) == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert (other["tool"], other["timeout_seconds"], len(other["stages"])) == ("other", None, 5)


def test_h1_a_plan_is_shown_of_any_name(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For an upstream's tool its globs are looked up; one that nothing is said of has no stages."""
    assert run(["plan", "up", "get_this", "--config", config]) == 0
    assert "validate" in capsys.readouterr().out
    assert run(["plan", "up", "other", "--config", config]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "  15  finish            the upstream's bytes"


def test_a_plan_tells_which_patterns_of_a_locked_schema_nobody_judges(
    config: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where the definitions are known, that is: of the tool, and of its glob."""
    judged, odd = {"pattern": "^a+$"}, {"pattern": "^(?=a)b"}
    tools = {
        "get_one": locked("get_one", inputSchema={"properties": {"a": judged, "b": odd}}),
        "get_two": locked("get_two", inputSchema={"type": "nonsense"}),
        "other": locked("other", inputSchema={"properties": {"b": odd}}),
    }
    lock = tmp_path / "tools.lock"
    lock.write_text(write_lock({"up": tools}))
    text = Path(config).read_text()
    Path(config).write_text(text.replace("  - id: up\n", f"  - id: up\n    tools_lock: {lock}\n"))
    told = "   7  validate          get_one: does not check the pattern '^(?=a)b': look-around or a back-reference"
    assert run(["plan", "up", "get_one", "--config", config]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "pattern" in line] == [told]
    assert run(["plan", "up", "--config", config]) == 0
    out = capsys.readouterr().out
    assert told in out and "other: " not in out
    assert "get_two: refuses every call: The schema is invalid at type" in out


@pytest.mark.parametrize(
    ("cache", "kept"),
    [
        ("{ttl: 7}", "7 s, apart by session"),
        ("{enabled: false, ttl: 7}", None),
        ("{}", None),
        ("{vary: [header:X-Tenant], enabled: true}", "120 s, apart by header:X-Tenant"),
    ],
)
def test_h26_an_upstreams_tool_follows_its_server_where_a_stage_speaks_of_its_results(
    config: str, capsys: pytest.CaptureFixture[str], cache: str, kept: str | None
) -> None:
    """With ``servers[].tools.cache.enabled`` results are kept of the tools whose stages say how, and of no others."""
    text = Path(config).read_text().replace("cache: {enabled: true, ttl: 30}", f"cache: {cache}")
    Path(config).write_text(f"{text}    tools: {{cache: {{enabled: true}}}}\n")
    assert run(["plan", "up", "get_this", "--config", config]) == 0
    shown = [line.split(maxsplit=2)[2] for line in capsys.readouterr().out.splitlines() if " cache " in line]
    assert shown == ([] if kept is None else [kept])


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        (["nowhere"], 2, "no server has the id nowhere; there are shop, up"),
        (["shop", "nothing"], 1, "mcp-adapter: shop has no tool nothing"),
    ],
)
def test_h2_a_name_that_is_not_there_has_no_plan(
    config: str, capsys: pytest.CaptureFixture[str], asked: list[str], status: int, said: str
) -> None:
    """The exit status is not 0, with a sentence."""
    assert run(["plan", *asked, "--config", config]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("code.py#around", "code.py#nothing", "servers[0].tools.define[0].middleware[0]"),
        ("SELECT {{ inputs.n }}", "SELECT {{ inputs.m }}", "servers[0].tools.define[0].statement"),
        ("plugin: api_key", "plugin: magic", "servers[0].tools.define[0].auth.plugin"),
        ("presenter: row", "presenter: none", "servers[0].tools.define[0].presenter"),
        ("code.py#context", "code.py#nowhere", "context.factory"),
        ('match: "shop.drop"', 'match: "shop..drop"', "state_sync.policies[0]"),
        (
            "schema: {n: int}",
            "json_schema: {properties: {n: {pattern: '(?=a)'}}}",
            "presenters.row.json_schema",
        ),
        ("schema: {n: int}", "json_schema: {type: nonsense}", "presenters.row.json_schema"),
        ('["x(.*)"]', '["x(?!y)"]', "servers[1].adapters[1].output_locator.output_path_regexes"),
    ],
)
def test_h38_check_finds_what_cannot_be_used(
    config: str, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    """Each problem is one line that begins with where the settings say it; plan and check exit with 2."""
    text = Path(config).read_text()
    assert before in text
    assert run(["check", "--effective", "--config", config]) == 0
    assert "k3y-s3cret" not in capsys.readouterr().out
    Path(config).write_text(text.replace(before, after, 1))
    for command in (["check"], ["plan", "shop"]):
        assert run([*command, "--config", config]) == 2
        head, *problems = capsys.readouterr().err.strip().splitlines()
        assert head == "mcp-adapter: the settings cannot be used:"
        assert len(problems) == len(set(problems)) and any(
            problem.startswith(said) for problem in problems
        ), problems


WATCHED = """
core: {port: PORT, shutdown_grace_seconds: 0}
state_persistence: {type: disk, disk: {local_path: "STATE"}}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools: {define: [{name: say, handler: "code.py#say"}]}
"""


def saying(word: str) -> str:
    return f"def say(payload):\n    return {word!r}\n"


async def said(port: int, session: str) -> str:
    """What the tool says in a session; nothing while nobody listens, or the adapter stops."""
    try:
        async with RawClient(port) as raw:
            raw.session = session
            answer = await Speaker(raw, "/mcp", "2025-11-25").call("say")
            return answer.text.strip('"') if "result" in answer.messages[-1] else ""
    except (OSError, asyncio.IncompleteReadError):
        return ""


@pytest.mark.parametrize("named", ["by the flag", "by the environment"])
async def test_h38_a_change_is_taken_up_and_sessions_go_on(tmp_path: Path, named: str) -> None:
    """``serve --watch`` starts anew with a changed script, in which clients keep their sessions; while the settings
    are broken the adapter goes on as before."""
    port = free_port()
    settings = WATCHED.replace("PORT", str(port)).replace("STATE", str(tmp_path / "state.sqlite3"))
    config = furnished(tmp_path / "shop", settings)
    script = config.with_name("code.py")
    script.write_text(saying("one"))
    argv = [sys.executable, "-m", "adapter", "serve", "--watch"]
    variables = {"MCP_ADAPTER_CONFIG": "" if named == "by the flag" else str(config)}
    if named == "by the flag":
        argv += ["--config", str(config)]
    watcher = await start(argv, tmp_path / "watch.log", variables)
    try:
        await answers(f"http://127.0.0.1:{port}/livez", watcher)
        async with RawClient(port) as raw:
            await raw.initialize()
            session = raw.session
        assert session is not None and await said(port, session) == "one"

        async def told(line: str) -> bool:
            return line in log_of(watcher)

        script.write_text(saying("another"))
        await until(lambda: _is(port, session, "another"))
        script.write_text("def say(:\n")
        await until(lambda: told("the old ones stay in force"))
        assert await said(port, session) == "another"
        script.write_text(saying("the third"))
        await until(lambda: _is(port, session, "the third"))
        assert log_of(watcher).count("mcp-adapter: using") == (named == "by the environment")
    finally:
        await watcher.stop()
    assert watcher.process.returncode == 0
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
    with closing(sqlite3.connect(tmp_path / "state.sqlite3")) as state:
        assert state.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def _is(port: int, session: str, word: str) -> bool:
    return await said(port, session) == word


def log_of(watcher: Running) -> str:
    return watcher.log.read_text()
