"""One deadline for all stages of a call: wherever it hangs, its caller hears in time where that was."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import ERAS, Living, living
from tests.pipeline.end_to_end.workshop import echo, workshop
from tests.plans import plans_of

LIMIT = 0.5
"""Seconds that every call of these servers may take."""

PATIENCE = 20.0
"""Seconds in which the answer has to be there, on a machine that does other things too."""

SETTINGS = f"""
connectors:
  - {{name: main, connector: sqlite, connection_string: ":memory:", timeout_seconds: 5}}
context: {{factory: "hang.py#context"}}
presenters:
  shown: {{json_schema: {{}}, rules: ["hang.py#rule"]}}
state_sync: {{observer: "hang.py#observe"}}
console: {{enabled: true, allow_execute: true}}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {{transport: hosted}}
    stages:
      "*":
        auth: {{plugin: "hang.py#auth"}}
        mappers: {{input: "hang.py#input", output: "hang.py#output"}}
        middleware: ["hang.py#derived", "hang.py#around"]
        presenter: shown
        state_sync: {{invalidates: ["*"]}}
        limits: {{timeout: {LIMIT}, concurrency: {{max_active: 1, max_queue: 5}}}}
      coded: {{errors: {{mode: jsonrpc}}}}
    tools:
      define:
        - {{name: script, handler: "hang.py#handler"}}
        - {{name: coded, handler: "hang.py#handler"}}
        - {{name: told, handler: "hang.py#telling"}}
        - name: statement
          use: main
          statement: >-
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n
  - id: behind
    mount_path: /behind
    upstream: {{url: "${{UPSTREAM}}"}}
    tool_defaults: {{tool_call_timeout_seconds: {LIMIT}}}
    stages:
      "*":
        auth: {{plugin: "hang.py#auth"}}
        mappers: {{input: "hang.py#input", output: "hang.py#output"}}
        middleware: ["hang.py#derived", "hang.py#around"]
        presenter: shown
        state_sync: {{invalidates: ["*"]}}
"""

HANG = """
import asyncio
import threading

from adapter.api import progress

NOW = {"at": "", "how": ""}


def at(stage):
    return NOW["at"] == stage


def stuck(stage):
    if at(stage):
        threading.Event().wait(3)


async def hangs(stage):
    if not at(stage):
        return
    if NOW["how"] == "thread":
        await asyncio.to_thread(stuck, stage)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if NOW["how"] != "deaf":
            raise
    await asyncio.Event().wait()


def context(request):
    NOW["at"], _, NOW["how"] = request.headers.get("x-hang", "").partition(" ")
    stuck("context")
    return {}


async def auth(request, policy):
    await hangs("auth")


def input(payload):
    stuck("input_transform")
    return payload["inputs"]


def derived(ctx):
    stuck("derived")


async def around(ctx, args, next):
    await hangs("middleware")
    result = await next()
    await hangs("after")
    return result


async def handler(payload, context=None):
    if context is None or "deadline" not in context:
        return {"done": True}
    await hangs("handler")
    return {"done": True}


async def telling(payload):
    number = 0
    while True:
        number += (100 - number) / 1e9
        yield progress(number, "on and on")


def output(payload):
    stuck("output_transform")
    return payload["results"]


def rule(data, ctx):
    stuck("presenter")


async def observe(event):
    await hangs("state_sync")
"""

NOWHERE = "http://127.0.0.1:9"


def hanging(place: Path, upstream: str = NOWHERE) -> AbstractAsyncContextManager[Living]:
    """The adapter, whose code hangs where a call's header says."""
    return living(place, SETTINGS, {"UPSTREAM": upstream}, scripts={"hang": HANG})


STAGES = {
    "context": ("context", "context unavailable"),
    "auth": ("auth", "unauthorized: timed out after 0.5 s"),
    "input_transform": ("input_transform", "input transform failed for tool {tool}: timed out after 0.5 s"),
    "derived": ("middleware", "middleware failed for tool {tool}: timed out after 0.5 s"),
    "middleware": ("middleware", "middleware failed for tool {tool}: timed out after 0.5 s"),
    "handler": ("handler", "handler script failed for tool {tool}: timed out after 0.5 s"),
    "after": ("middleware", "middleware failed for tool {tool}: timed out after 0.5 s"),
    "output_transform": (
        "output_transform",
        "output transform failed for tool {tool}: timed out after 0.5 s",
    ),
    "presenter": ("presenter", "[{tool}] No answer within 0.5 seconds."),
}
ASYNC = ("auth", "middleware", "handler", "after")
CASES = [(at, "") for at in STAGES] + [(at, how) for at in ASYNC for how in ("thread", "deaf")]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("at", "how"), CASES)
async def test_v4_wherever_a_call_hangs_its_caller_hears_in_time_where(
    tmp_path: Path, at: str, how: str, version: str
) -> None:
    """A hosted tool's: code that waits, sits in a thread, or does not let itself be cancelled, at each stage.

    The next call gets through, unless the code that hangs still has the only place.
    """
    stage, sentence = STAGES[at]
    async with hanging(tmp_path) as front:
        began = time.monotonic()
        answer = await front.call("script", {}, {"x-hang": f"{at} {how}"}, version)
        assert LIMIT <= time.monotonic() - began < PATIENCE
        assert answer.failure == {"stage": stage, "code": -32000, "reason": "timeout"}
        assert sentence.format(tool="script") in answer.text
        if how != "deaf":
            assert (await front.call("script", {}, version=version)).texts[1] == '{"done":true}'


@pytest.mark.parametrize("at", [at for at in STAGES if at != "handler"])
async def test_v4_the_stages_around_an_upstreams_tool_have_one_deadline(tmp_path: Path, at: str) -> None:
    """Before and after it alike, without the time that the upstream takes, which is counted by its silence."""
    stage, sentence = STAGES[at]
    async with workshop({"work": echo}) as up, hanging(tmp_path, up.url) as front:
        began = time.monotonic()
        answer = await front.call("work", {"n": 1}, {"x-hang": at}, path="/behind")
        assert LIMIT <= time.monotonic() - began < PATIENCE
        assert answer.failure == {"stage": stage, "code": -32000, "reason": "timeout"}
        assert sentence.format(tool="work") in answer.text
        assert (await front.call("work", {"n": 1}, path="/behind")).texts[1] == '{"n":1}'


async def test_v4_a_statement_that_hangs_is_told_as_its_connectors(tmp_path: Path) -> None:
    """The tool's own limit comes before that of its connector, and the statement is ended."""
    async with hanging(tmp_path) as front:
        answer = await front.call("statement")
        assert answer.failure == {"stage": "connector", "code": -32000, "reason": "timeout"}
        assert answer.text.endswith("the statement took longer than 0.5 s")


async def test_h9_in_mode_jsonrpc_it_is_an_error_with_the_plain_sentence(tmp_path: Path) -> None:
    """The code is that of every stage; which it was, and that it was late, is in the data."""
    async with hanging(tmp_path) as front:
        answer = await front.call("coded", {}, {"x-hang": "middleware"})
        assert answer.error == {
            "code": -32000,
            "message": "middleware failed for tool coded: timed out after 0.5 s",
            "data": {"stage": "middleware", "code": -32000, "reason": "timeout"},
        }


async def test_v4_time_in_the_queue_counts(tmp_path: Path) -> None:
    """Whoever waits for a place until its time is over was at the limits."""
    async with hanging(tmp_path) as front:
        first = asyncio.create_task(front.call("script", {}, {"x-hang": "middleware deaf"}))
        await asyncio.sleep(LIMIT / 3)
        second = await front.call("script", {}, {"x-hang": "middleware deaf"})
        assert (await first).failure["stage"] == "middleware"
        assert second.failure == {"stage": "limits", "code": -32000, "reason": "timeout"}
        assert "[script] No answer within 0.5 seconds." in second.text


async def test_v20_who_is_told_of_a_success_cannot_undo_it(tmp_path: Path) -> None:
    """An observer that hangs costs the rest of the call's time and no more: the tool has done its work."""
    for how in ("", "thread", "deaf"):
        async with hanging(tmp_path / (how or "plain")) as front:
            began = time.monotonic()
            answer = await front.call("script", {}, {"x-hang": f"state_sync {how}"})
            assert time.monotonic() - began < PATIENCE
            assert answer.texts[1] == '{"done":true}'


async def test_v7_progress_without_end_is_ended(tmp_path: Path) -> None:
    """A generator that goes on for ever ends with its call's time; until then its progress was told."""
    async with hanging(tmp_path) as front:
        for meta in ({}, {"progressToken": 7}):
            answer = await front.call("told", {}, _meta=meta)
            assert answer.failure == {"stage": "handler", "code": -32000, "reason": "timeout"}
            assert (len(answer.messages) > 1) is bool(meta)


async def test_h9_over_http_it_is_a_result_too(tmp_path: Path) -> None:
    """The tool API answers 500 with the same sentence."""
    async with hanging(tmp_path) as front, RawClient(front.port) as raw:
        fields = {"x-hang": "output_transform", "accept": "application/json"}
        head, body = await raw.request("POST", b"{}", "/explorer/shop/tools/script/call", **fields)
    said = json.loads(body)
    assert (head.status, said["isError"]) == (500, True)
    assert said["content"][0]["text"] == STAGES["output_transform"][1].format(tool="script")


async def test_w8_calls_that_do_not_end_are_counted_and_bounded(tmp_path: Path) -> None:
    """Code that swallows its cancellation may be left over a hundred times, and then no other call is begun."""
    settings = SETTINGS.replace("concurrency: {max_active: 1, max_queue: 5}", "egress: 1Mi")
    async with living(tmp_path, settings, {"UPSTREAM": NOWHERE}, scripts={"hang": HANG}) as front:
        plan = plans_of(front.app).servers["shop"].server.tools["script"].plan
        deaf = {"x-hang": "middleware deaf"}
        while plan.left_over < 100:
            at_once = min(25, 100 - plan.left_over)
            answers = await asyncio.gather(*(front.call("script", {}, deaf) for _ in range(at_once)))
            assert {answer.failure["reason"] for answer in answers} == {"timeout"}
        refused = await front.call("script")
        assert refused.failure == {"stage": "limits", "code": -32000, "reason": "busy"}
        assert (await front.call("coded")).texts[1] == '{"done":true}'
