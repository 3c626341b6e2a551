"""Upstreams that answer in other ways than with one response: nothing of it gets past a presenter that redacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.pipeline.presenters import FAILED
from tests.edge.raw import Exchange, event
from tests.pipeline.attacks.hostile import RECORD, REDACTED, SECRET, Hostile, Says, behind, response
from tests.pipeline.end_to_end.living import ERAS

JSON = "Content-Type: application/json"


def whole(text: str, status: int = 200, *fields: str) -> Says:
    """Answers with a text in which ``R`` is the response, ``V`` its result and ``N`` its id."""

    async def says(exchange: Exchange, number: Any) -> None:
        await exchange.answer(status, _filled(text, number), *fields)

    return says


def streamed(*chunks: str) -> Says:
    """The same with events, all that stand in one chunk at once."""

    async def says(exchange: Exchange, number: Any) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(b"".join(event(_filled(each, number)) for each in chunk.split("|")))
        await exchange.end_stream()

    return says


def _filled(text: str, number: Any) -> bytes:
    for key, value in (("R", response(number)), ("V", orjson.dumps(RECORD)), ("N", orjson.dumps(number))):
        text = text.replace(f"<{key}>", value.decode())
    return text.encode()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "says",
    [
        whole(
            '{"jsonrpc":"2.0","id":<N>,"result":<V>,"error":{"code":1,"message":"jane@example.org"}}',
            200,
            JSON,
        ),
        whole('{"jsonrpc":"2.0","id":<N>,"result":<V>,"result":<V>}', 200, JSON),
        whole('{"jsonrpc":"2.0","id":<N>,"result":<V>,"more":<V>}', 200, JSON),
        whole("[<R>,<R>]", 200, JSON),
        whole("\ufeff<R>", 200, JSON),
        whole("<R>", 200, "Content-Type: text/plain"),
        whole("<R>", 200),
        whole("<R>", 500, "Content-Type: text/html"),
        streamed("<R>|<R>"),
        streamed("<R>", "<R>"),
        streamed("[<R>]"),
        streamed('[{"jsonrpc":"2.0","method":"notifications/x"}]', "<R>"),
    ],
)
async def test_w_an_answer_is_presented_however_it_comes(tmp_path: Path, era: str, says: Says) -> None:
    """Beside the response, twice, in a batch, behind a byte order mark, as another type: the caller reads it once."""
    async with behind(Hostile(says), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert SECRET.encode() not in answer.body
    last = answer.messages[-1]
    found = last[-1] if isinstance(last, list) else last
    assert orjson.loads(found["result"]["content"][0]["text"]) == REDACTED


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "says",
    [
        whole('{"id":<N>,"value":<V>}', 200, JSON),
        whole("jane@example.org", 200, JSON),
        whole("<p>jane@example.org</p>", 200, "Content-Type: text/html"),
        whole("[<V>]", 200, JSON),
        streamed("\ufeff<R>"),
        streamed("jane@example.org|<V>"),
    ],
)
async def test_w_what_is_no_response_stays_behind(tmp_path: Path, era: str, says: Says) -> None:
    """An answer in which no response can be found is a failure, and nothing of it is told."""
    async with behind(Hostile(says), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert SECRET.encode() not in answer.body
    assert answer.error["code"] == -32011


@pytest.mark.parametrize("era", ERAS)
async def test_w_an_error_page_is_not_passed_on(tmp_path: Path, era: str) -> None:
    """Its status is, so that clients know what to do."""
    says = whole("<p>jane@example.org</p>", 503, "Content-Type: text/html", "Retry-After: 3")
    async with behind(Hostile(says), tmp_path) as front:
        answer = await front.call("shown_a", version=era)
    assert (answer.head.status, answer.head["retry-after"], answer.body) == (503, "3", b"")


# --- failures of upstreams: paths of a redaction do not lead into them, so only their sentence is t


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
