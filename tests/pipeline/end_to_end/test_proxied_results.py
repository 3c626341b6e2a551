"""What is kept, shown and told of the results of an upstream's tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.hosted.serving import ERAS as SDK_ERAS
from tests.pipeline.end_to_end.living import ERAS
from tests.pipeline.end_to_end.workshop import Work, echo, saying, spoken

READS: Mapping[str, Any] = {"annotations": {"readOnlyHint": True}}

CACHED = """
state_sync:
  policies: [{match: "shop.change", invalidates: ["work*", "shop.*"]}]
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      work: {cache: {enabled: true, ttl: 60}}
      work_shared: {cache: {enabled: true, ttl: 60, vary: []}}
      work_by_header: {cache: {enabled: true, ttl: 60, vary: ["header:X-Tenant"]}}
      work_writes: {cache: {enabled: true}}
  - id: shop
    mount_path: /mcp/shop
    upstream: {transport: hosted}
    tools: {define: [{name: change, handler: "code.py#change"}]}
"""


CHANGE = "def change(payload):\n    return 'changed'\n"

cached = partial(spoken, CACHED, code=CHANGE)


@pytest.mark.parametrize("version", ERAS)
async def test_h26_what_a_session_was_answered_is_kept_for_it(tmp_path: Path, version: str) -> None:
    """By its arguments, for one session: an upstream may answer each from a state of its own."""
    async with cached(tmp_path, {"work": echo}, {"work": READS}, version=version) as (up, front, speaker):
        first, again = [await speaker.call("work", {"n": 1, "m": 2}) for _ in range(2)]
        other_order = await speaker.call("work", {"m": 2, "n": 1})
        assert first.result == again.result == other_order.result
        assert first.messages[0]["id"] != again.messages[0]["id"]
        await speaker.call("work", {"n": 2})
        assert len(up.calls("tools/call")) == 2
        if not speaker.modern:
            await front.call("work", {"n": 1, "m": 2})
            assert len(up.calls("tools/call")) == 3


async def test_w6_vary_says_who_shares_a_result(tmp_path: Path) -> None:
    """Nobody by default, everybody if so said, or those who send one header alike."""
    tools = dict.fromkeys(("work_shared", "work_by_header", "work_writes"), echo)
    definitions = {"work_shared": READS, "work_by_header": READS}
    async with cached(tmp_path, tools, definitions) as (up, front, _):
        for _ in range(3):
            await front.call("work_shared", {})
        assert len(up.calls("tools/call")) == 1
        for tenant in ("ann", "bob", "ann", ""):
            await front.call("work_by_header", {}, {"X-Tenant": tenant})
        assert len(up.calls("tools/call")) == 1 + 3
        for _ in range(2):
            await front.call("work_writes", {})
        assert len(up.calls("tools/call")) == 1 + 3 + 2, "without readOnlyHint nothing is kept"


async def test_w6_another_servers_change_purges_what_was_kept(tmp_path: Path) -> None:
    """A policy may name tools of any server; a change by one drops what was read from the other."""
    async with cached(tmp_path, {"work": echo}, {"work": READS}) as (up, front, speaker):
        for _ in range(2):
            await speaker.call("work", {})
        assert len(up.calls("tools/call")) == 1
        changed = await front.call("change", path="/mcp/shop")
        assert changed.texts[0] == '<cache_invalidation cause="change" domains="work*, shop.*" />'
        await speaker.call("work", {})
        assert len(up.calls("tools/call")) == 2


PRESENTED = """
presenters:
  person:
    schema: {id: int, name: string, ssn: string, cards: "list[any]?"}
    redact: {paths: [ssn, "cards[*].number"]}
    rules: ["Never say more than was asked."]
    suggest: [{when: "id > 1", tool: billing.pay, reason: It is due}]
    select: true
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "get_*": {presenter: person, state_sync: {cache_control: no-store}}
      "set_*": {state_sync: {invalidates: ["get_*", "up.list_*"]}}
"""

presented = partial(spoken, PRESENTED)

PERSON = {"id": 2, "name": "ann", "ssn": "078-05-1120", "cards": [{"number": "4111"}], "hidden": "undeclared"}
SECRETS = ("078-05-1120", "4111", "undeclared")


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("where", ["text", "structured", "both"])
async def test_v16_w14_what_is_redacted_is_nowhere_in_the_answer(
    tmp_path: Path, version: str, where: str
) -> None:
    """Neither in text, structuredContent, _meta, members that nobody knows nor in further blocks."""
    told = saying(PERSON) if where != "structured" else {"content": []}
    if where != "text":
        told["structuredContent"] = PERSON
    told |= {"_meta": {"debug": PERSON, "trace": "078-05-1120"}, "raw": PERSON}
    async with presented(tmp_path, {"get_person": told}, version=version) as (_, _, speaker):
        answer = await speaker.call("get_person", {})
        assert not [secret for secret in SECRETS if secret.encode() in answer.body], answer.body
        shown = {"id": 2, "name": "ann", "ssn": "[REDACTED]", "cards": [{"number": "[REDACTED]"}]}
        data, rules, suggestions = answer.texts
        assert json.loads(data) == answer.result["structuredContent"] == shown
        assert "Never say more" in rules and "- billing.pay: It is due" in suggestions
        assert answer.result.get("resultType") == ("complete" if speaker.modern else None)


@pytest.mark.parametrize("mode", SDK_ERAS)
async def test_v12_the_sdks_client_takes_what_is_presented(tmp_path: Path, mode: str) -> None:
    """Though the upstream promised another shape: the promise is not passed on where it is not kept."""
    promised = {
        "type": "object",
        "required": ["ssn", "hidden"],
        "properties": {"hidden": {"const": "undeclared"}},
    }
    told = {**saying(PERSON), "structuredContent": PERSON}
    offered = {"get_person": {"outputSchema": promised}}
    async with (
        presented(tmp_path, {"get_person": told}, offered) as (_, front, _),
        front.client(mode) as client,
    ):
        (tool,) = (await client.list_tools()).tools
        assert tool.output_schema is None
        result = await client.call_tool("get_person", {"_select": ["name"]})
        assert not result.is_error and result.structured_content == {"name": "ann"}
        assert len(result.content) == 3


# --- stages of an upstream's tools beside what else is done with calls: batches and tasks


SETTINGS = """
presenters:
  shown: {schema: {n: "any?"}}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}", bridge: never}
    stages:
      shown: {presenter: shown}
      locked: {auth: {plugin: api_key, policy: {value: k3y}}}
"""

staged = partial(spoken, SETTINGS)


async def test_planned_calls_in_a_batch_are_refused_one_by_one(tmp_path: Path) -> None:
    """Of a batch of 2025-03-26 the other members go on; a planned tool is to be called by itself."""
    async with staged(tmp_path, {"locked": echo, "free": echo}, version="2025-03-26") as (up, _, speaker):
        alone = [
            {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "locked", "arguments": {}}}
            for n in (1, 2)
        ]
        _, body = await speaker.raw.request("POST", orjson.dumps(alone))
        answers = {answer["id"]: answer for answer in orjson.loads(body)}
        assert set(answers) == {1, 2} and all("error" in answer for answer in answers.values())
        assert up.calls("tools/call") == [] and all("locked" not in str(each.body) for each in up.seen)


async def test_a_task_of_a_tool_whose_result_is_shaped_is_refused(tmp_path: Path) -> None:
    """Its result would come by another request, past the presenter; one whose stages only let it in may be a task."""
    task = {"task": {"taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": 1}}
    works: dict[str, dict[str, Any] | bytes | Work] = {"shown": task, "locked": task}
    async with staged(tmp_path, works) as (up, front, _):
        refused = await front.call("shown", {}, task={"ttl": 1})
        assert refused.result["isError"] and "cannot run as a task" in refused.text
        assert up.calls("tools/call") == []
        begun = await front.call("locked", {}, {"X-API-Key": "k3y"}, task={"ttl": 1})
        assert begun.result == task
