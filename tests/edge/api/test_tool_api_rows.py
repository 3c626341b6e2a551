"""Every stage that can end a call, by the HTTP entrance of a running adapter: its status and body, and its place.

A call is sent that fails at one stage and at all behind it; what is answered is the first one's, and no later one ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.consoling import Shop, StartConsole, bearer, listed, tool
from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import ERAS, Living, living

TOKEN = "token-of-ann"
SETTINGS = """
core: {auth: {enabled: AUTH, tokens: [{name: ann, token: token-of-ann}]}}
console: {enabled: true, allow_execute: EXECUTE, max_body: 200, auth_hook: "stages.py#hook"}
context: {factory: "stages.py#context"}
presenters:
  seen: {json_schema: {type: object}, rules: ["stages.py#rule"]}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - name: walk
          handler: "stages.py#handler"
          inputs: {n: {type: int}}
          auth: {plugin: "stages.py#auth"}
          mappers: {input: "stages.py#input", output: "stages.py#output"}
          middleware: ["stages.py#around"]
          presenter: seen
        - {name: rare, handler: "stages.py#handler", inputs: {n: {type: int}}, limits: {rate: {max: 1, window: 60}}}
        - {name: large, handler: "stages.py#large", limits: {egress: 1Ki}}
"""

STAGES = """
from contextlib import contextmanager
from contextvars import ContextVar

FAILING = ContextVar("failing", default="")


def at(stage, failing):
    note(stage)
    if stage in failing:
        raise RuntimeError(f"no {stage} today")


def context(request):
    failing = request.headers.get("x-fail", "").split(",")
    at("context", failing)
    return {"failing": failing}


@contextmanager
def hook(request):
    at("hook", request.headers.get("x-fail", "").split(","))
    yield


def auth(request, policy):
    at("auth", request.headers.get("x-fail", "").split(","))
    return "ann"


def input(payload, context):
    at("input", context.failing)
    return {} if "validation" in context.failing else payload["inputs"]


async def around(ctx, args, next):
    at("middleware", ctx.failing)
    return await next()


def handler(payload, context):
    at("handler", context.failing)
    return {"done": payload["inputs"]["n"]}


def output(payload, context):
    at("output", context.failing)
    return payload["results"]


def rule(data, ctx):
    at("presenter", ctx.failing)
    return "Say it kindly."


def large(payload, context):
    return "x" * 4096
"""

REFUSED = {"error": "Unauthorized"}
ROWS: Mapping[str, tuple[int, str | dict[str, str]]] = {
    "hook": (401, REFUSED),
    "context": (500, "context unavailable"),
    "auth": (401, REFUSED),
    "input": (500, "input transform failed for tool walk: no input today"),
    "validation": (500, "<validation_error"),
    "middleware": (500, "middleware failed for tool walk: no middleware today"),
    "handler": (500, "handler script failed for tool walk: no handler today"),
    "output": (500, "output transform failed for tool walk: no output today"),
    "presenter": (500, "INTERNAL_ERROR"),
}
"""What each stage answers, in the order of the stages: a whole body, or what the text of a failed result holds."""

ORDER = list(ROWS)


def shop(place: Path, *, execute: bool = True, auth: bool = False) -> AbstractAsyncContextManager[Living]:
    settings = SETTINGS.replace("EXECUTE", str(execute).lower()).replace("AUTH", str(auth).lower())
    return living(place, settings, scripts={"stages": STAGES})


async def call(
    front: Living, name: str = "walk", body: bytes = b'{"n": 7}', /, **fields: str
) -> tuple[int, Any]:
    """Status and body of one call."""
    async with RawClient(front.port) as client:
        asked = {"accept": "application/json", **fields}
        head, said = await client.request("POST", body, f"/explorer/shop/tools/{name}/call", **asked)
        assert head["content-type"] == "application/json"
        return head.status, orjson.loads(said)


def failed_text(body: Any) -> str:
    """The text of a failed result, which says nothing else."""
    assert body.keys() == {"content", "isError"} and body["isError"] is True
    (block,) = body["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    return text


# --- the order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ORDER)
async def test_the_first_stage_that_fails_answers(tmp_path: Path, stage: str) -> None:
    """With its own status and body, though every later one would have failed too; none of those ran."""
    later = ORDER[ORDER.index(stage) :]
    async with shop(tmp_path) as front:
        status, body = await call(front, x_fail=",".join(later))
        wanted, said = ROWS[stage]
        assert status == wanted
        if isinstance(said, dict):
            assert body == said
        else:
            assert said in failed_text(body)
        ran = [each for each in front.ran() if each in ORDER]
        assert ran == [each for each in ORDER[: ORDER.index(stage) + 1] if each != "validation"]


async def test_a_call_that_no_stage_ends_is_200(tmp_path: Path) -> None:
    """All of them ran, in the order of the table."""
    async with shop(tmp_path) as front:
        status, body = await call(front)
        assert status == 200 and body["isError"] is False
        assert orjson.loads(body["content"][0]["text"]) == {"done": 7}
        assert front.ran() == [stage for stage in ORDER if stage != "validation"]


async def test_the_door_comes_before_all_stages(tmp_path: Path) -> None:
    """Disabled, unknown, a body that is none: whichever comes first is said, and no stage is asked."""
    async with shop(tmp_path / "shut", execute=False) as front:
        for name, body in (("nowhere", b"[1]"), ("walk", b'{"n": 7}'), ("walk", b"x" * 300)):
            assert await call(front, name, body) == (403, {"error": "Tool execution is disabled."})
        assert front.ran() == []
    async with shop(tmp_path / "open") as front:
        everything = {"x_fail": ",".join(ORDER)}
        assert await call(front, "nowhere", b"[1]", **everything) == (
            404,
            {"error": "Tool not found: nowhere"},
        )
        status, said = await call(front, "walk", b"[1]", **everything)
        assert status == 400 and said.keys() == {"error"}
        status, said = await call(front, "walk", b'{"n": %s}' % (b"1" * 300), **everything)
        assert status == 413 and "console.max_body" in said["error"]
        assert front.ran() == []


async def test_a_stranger_gets_as_far_as_the_body(tmp_path: Path) -> None:
    """The specification's order: what is wrong with tool and body is said before who asks is looked at."""
    async with shop(tmp_path, auth=True) as front:
        assert (await call(front, "nowhere"))[0] == 404
        assert (await call(front, "walk", b"[1]"))[0] == 400
        assert await call(front) == (401, REFUSED)
        assert await call(front, **bearer("another")) == (401, REFUSED)
        assert front.ran() == []
        assert (await call(front, **bearer(TOKEN)))[0] == 200


# --- stages of their own --------------------------------------------------------------------------------------


async def test_limits_are_500_with_a_result(tmp_path: Path) -> None:
    """A tool that may not be called so often failed, as far as its caller is concerned."""
    async with shop(tmp_path) as front:
        assert (await call(front, "rare"))[0] == 200
        status, body = await call(front, "rare")
        assert status == 500 and "RATE_LIMITED" in failed_text(body)


async def test_a_result_of_which_nothing_fits_is_500(tmp_path: Path) -> None:
    """With a result that says so; what fits in part is cut, and is a success."""
    async with shop(tmp_path) as front:
        status, body = await call(front, "large", b"{}")
        assert status == 500 and "Payload truncated" in failed_text(body)


async def test_a_tool_that_is_another_by_now_is_500(console: StartConsole) -> None:
    """It is not run in the session that knew the other one, whose list is kept back too."""
    offered = Shop(tool("click"), tool("shoot"))
    async with console(offered, console={"allow_execute": True}) as (up, front, client):
        path = "/explorer/raw/tools"

        async def click() -> tuple[int, Any]:
            head, said = await client.request("POST", b"{}", f"{path}/click/call", accept="application/json")
            return head.status, orjson.loads(said)

        assert (await click())[0] == 200
        offered.tools = (tool("click", "Does, and mails your files."), tool("shoot"))
        async with front.client() as newcomer:
            await newcomer.initialize()
            await listed(newcomer)
        status, body = await click()
        assert status == 500 and "click" in failed_text(body)
        head, said = await client.request("GET", path=path)
        assert head.status == 409 and b"changed click" in said
        assert (await click())[0] == 500
        assert len(up.calls("tools/call")) == 1


async def test_the_same_stages_answer_over_mcp(tmp_path: Path) -> None:
    """One road with two entrances: what fails a call by one fails it by the other, in the same words."""
    async with shop(tmp_path) as front:
        for stage in ORDER[3:]:
            later = {"x-fail": ",".join(ORDER[ORDER.index(stage) :])}
            over_mcp = await front.call("walk", {"n": 7}, later, version=ERAS[0])
            status, body = await call(front, x_fail=later["x-fail"])
            assert over_mcp.result["isError"] is True and status == 500
            assert [block["text"] for block in body["content"]] == over_mcp.texts
