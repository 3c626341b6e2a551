"""Upstreams that answer in other ways than with one response: nothing of it gets past a presenter that redacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

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
    for key, value in (
        ("R", response(number)),
        ("V", orjson.dumps(RECORD)),
        ("N", orjson.dumps(number)),
    ):
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
