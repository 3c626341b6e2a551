"""Failures of upstreams: paths of a redaction do not lead into them, so only their sentence is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.pipeline.presenter_stage import FAILED
from tests.edge.raw import Exchange
from tests.pipeline.attacks.hostile import RECORD, SECRET, Hostile, Says, behind, response
from tests.pipeline.end_to_end.living import ERAS


def saying(result: dict[str, Any]) -> Says:
    async def says(exchange: Exchange, number: Any) -> None:
        await exchange.json(response(number, result))

    return says


def failing(*texts: str, **members: Any) -> Says:
    content = [{"type": "text", "text": text} for text in texts]
    return saying({"content": content, "isError": True, **members})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("says", "texts"),
    [
        (failing("There is no customer 7."), ["There is no customer 7."]),
        (failing("Locked: {'email': 'jane@example.org'}"), ["Locked:"]),
        (failing('{"email":"jane@example.org"}', structuredContent={"email": SECRET}), [FAILED]),
        (failing("No.\n  at jane@example.org", _meta={"who": SECRET}), ["No."]),
        (failing("postgres://jane@example.org/x is down"), ["[redacted] is down"]),
        (
            saying(
                {
                    "content": [{"type": "resource", "resource": {"uri": "x:y", "text": SECRET}}],
                    "isError": True,
                }
            ),
            [FAILED],
        ),
    ],
)
async def test_w_of_a_failure_only_its_sentence_is_told(
    tmp_path: Path, era: str, says: Says, texts: list[str]
) -> None:
    """Neither data in it, nor its second line, nor other blocks, structuredContent or the tool's own ``_meta``."""
    async with behind(Hostile(says), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert SECRET.encode() not in answer.body
    assert answer.texts == texts and answer.result["isError"] is True
    assert answer.result.keys() <= {"content", "isError", "resultType"}


@pytest.mark.parametrize("era", ERAS)
async def test_w_of_a_json_rpc_error_too(tmp_path: Path, era: str) -> None:
    """Its code stays, for clients; its data does not."""

    async def says(exchange: Exchange, number: Any) -> None:
        error = {"code": -32042, "message": 'No {"email": "jane@example.org"}', "data": RECORD}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "error": error}))

    async with behind(Hostile(says), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert answer.error == {"code": -32042, "message": "No"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "result",
    [
        {**RECORD, "resultType": "odd"},
        {
            "task": {"taskId": "t", "status": "working"},
            "resultType": "task",
            "structuredContent": {"email": SECRET},
        },
        {"task": {"taskId": "t", "status": "working"}},
    ],
)
async def test_w_what_is_no_result_yet_does_not_lead_to_one(
    tmp_path: Path, era: str, result: dict[str, Any]
) -> None:
    """Of a task that was never asked for the client could fetch the data as it is."""
    async with behind(Hostile(saying(result)), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert SECRET.encode() not in answer.body
    assert answer.failure["stage"] == "presenter" and "task" not in answer.result


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_of_the_tools_is_asked(tmp_path: Path, era: str) -> None:
    """It is what the call cannot go on without; nothing else is beside it."""
    asked = {"resultType": "input_required", "inputRequests": {"a": {"method": "m"}}, "requestState": "s"}
    async with behind(Hostile(saying({**RECORD, **asked})), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert answer.result == asked
