"""The order in which stages run, and that the first one that fails is the last."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.end_to_end.living import ERAS, living

SETTINGS = """
connectors:
  - {name: main, connector: sqlite, connection_string: shop.db}
context: {factory: "stages.py#context"}
presenters:
  seen: {json_schema: {type: [object, array]}, rules: ["stages.py#rule"]}
state_sync: {observer: "stages.py#observe"}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    stages:
      "*":
        auth: {plugin: "stages.py#auth"}
        mappers: {input: "stages.py#input", output: "stages.py#output"}
        middleware: ["stages.py#outer", "stages.py#inner"]
        presenter: seen
        state_sync: {invalidates: ["*"]}
        limits: {rate: {max: 2, window: 60, key: session}}
    tools:
      define:
        - {name: script, handler: "stages.py#handler", inputs: {n: {type: int}}}
        - name: statement
          use: main
          statement: "SELECT {{ inputs.n }} AS done"
          inputs: {n: {type: int}}
"""

STAGES = """
FAILING = {}


def at(stage):
    note(stage)
    if FAILING["at"] == stage:
        raise RuntimeError(f"no {stage} today")


def context(request):
    FAILING["at"] = request.headers.get("x-fail", "")
    at("context")
    return {"seen": []}


def auth(request, policy):
    at("auth")
    return "ann"


def input(payload, context):
    at("input_transform")
    return payload["inputs"]


async def outer(ctx, args, next):
    at("middleware")
    result = await next()
    note("after")
    return result


def inner(ctx):
    note("inner")


def handler(payload, context):
    at("handler")
    return {"done": payload["inputs"]["n"]}


def output(payload, context):
    at("output_transform")
    return payload["results"]


def rule(data, ctx):
    at("presenter")
    return "Say it kindly."


def observe(event):
    note("state_sync")
"""

ORDER = [
    "context",
    "auth",
    "input_transform",
    "middleware",
    "inner",
    "handler",
    "after",
    "output_transform",
    "presenter",
    "state_sync",
]


def stocked(place: Path) -> Path:
    place.mkdir()
    with closing(sqlite3.connect(place / "shop.db")) as database, database:
        database.execute("CREATE TABLE things (id INTEGER PRIMARY KEY)")
    return place


SCRIPTS = {"stages": STAGES}
FAILING = ("context", "auth", "input_transform", "middleware", "output_transform", "presenter")


def walked(tool: str) -> list[str]:
    """What runs of a call; the work of a statement is nobody's to note."""
    return [stage for stage in ORDER if stage != "handler" or tool == "script"]


def failing(stage: str) -> dict[str, str]:
    """The header by which the scripts know where to fail."""
    return {"x-fail": stage}


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("tool", ["script", "statement"])
async def test_h1_v1_all_stages_run_in_their_order(tmp_path: Path, version: str, tool: str) -> None:
    """A call walks every stage once, in the documented order, whether a script or a statement does the work."""
    async with living(stocked(tmp_path / "shop"), SETTINGS, scripts=SCRIPTS) as front:
        answer = await front.call(tool, {"n": "7"}, version=version)
        stale, data, rules = answer.texts
        assert json.loads(data) == ({"done": 7} if tool == "script" else [{"done": 7}])
        assert rules == "<domain_rules>\n- Say it kindly.\n</domain_rules>"
        assert stale == f'<cache_invalidation cause="{tool}" domains="*" />'
        assert front.ran() == walked(tool)


@pytest.mark.parametrize(
    ("tool", "stage"),
    [(tool, stage) for tool in ("script", "statement") for stage in FAILING] + [("script", "handler")],
)
async def test_h1_v1_the_first_stage_that_fails_is_the_last(tmp_path: Path, tool: str, stage: str) -> None:
    """Nothing behind it runs, and nothing went stale."""
    async with living(stocked(tmp_path / "shop"), SETTINGS, scripts=SCRIPTS) as front:
        answer = await front.call(tool, {"n": 7}, failing(stage))
        assert answer.failure == {"stage": stage, "code": -32000}
        assert len(answer.texts) == 1
        assert front.ran() == walked(tool)[: walked(tool).index(stage) + 1]


async def test_h1_v2_arguments_are_checked_after_the_mapper_and_before_the_middleware(tmp_path: Path) -> None:
    """What the mapper returns is checked; a middleware sees only arguments that fit, as they are coerced."""
    async with living(stocked(tmp_path / "shop"), SETTINGS, scripts=SCRIPTS) as front:
        answer = await front.call("script", {"n": "seven"})
        assert answer.failure["stage"] == "validation"
        assert front.ran() == ["context", "auth", "input_transform"]


async def test_h1_v2_a_refused_call_has_passed_auth_and_nothing_else(tmp_path: Path) -> None:
    """Limits come after auth and before all else, so that strangers use up nobody's calls."""
    async with living(stocked(tmp_path / "shop"), SETTINGS, scripts=SCRIPTS) as front:
        async with front.speaker() as speaker:
            for _ in range(3):
                await speaker.call("script", {"n": 1}, failing("auth"))
            for _ in range(2):
                assert len((await speaker.call("script", {"n": 1})).texts) == 3
            before = len(front.ran())
            refused = await speaker.call("script", {"n": 1})
        assert refused.failure["stage"] == "limits" and refused.failure["reason"] == "rate"
        assert front.ran()[before:] == ["context", "auth"]
