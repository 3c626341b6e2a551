"""JSON-RPC batches (MCP 2025-03-26 only): members that a stage concerns are refused, the others travel on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from adapter.errors import BadRequest
from adapter.relay.exchange import Answer, Ask, asking_plain
from adapter.rules.answer_headers import of_changed_body
from adapter.rules.unicode import shown
from adapter.wire.envelope import Batch, Envelope
from adapter.wire.failure import failure
from adapter.wire.spans import Drop, Insert, edit, items
from adapter.wire.sse import encode

_JSON = ("Content-Type", "application/json")


def refusals(concerned: list[Envelope]) -> list[bytes]:
    """An error response for each member that cannot be part of a batch."""
    return [
        failure(
            BadRequest(
                f"Call {shown(each.name or each.method, 100)} on its own, not in a batch: the adapter takes part in "
                "that call."
            ),
            each.id_bytes,
        )
        for each in concerned
    ]


def without(ask: Ask, batch: Batch, concerned: list[Envelope]) -> Ask:
    """The ask with the other members only, which keep their bytes; the answer is asked for uncompressed."""
    refused = {id(each) for each in concerned}
    drops = [Drop((place,)) for place, member in enumerate(batch.members) if id(member) in refused]
    body = edit(batch.body, drops)
    members = [member for member in batch.members if id(member) not in refused]
    headers = asking_plain(ask.headers, drop=frozenset({"content-encoding"} if ask.encoded else ()))
    return replace(
        ask, envelope=Batch(members, body), body=body, headers=headers, encoded=False, renewed=None
    )


def refused_whole(refused: list[bytes]) -> Answer:
    """The answer where nothing else waits for one."""
    return Answer(200, [_JSON], b"[" + b",".join(refused) + b"]")


def joined(answer: Answer, refused: list[bytes]) -> Answer:
    """The upstream's answer and the refusals in one: events before its own, or elements behind its own."""
    kind = next((value for name, value in answer.headers if name.lower() == "content-type"), "").lower()
    if kind.startswith("text/event-stream"):
        events = b"".join(encode(response) for response in refused)
        body = answer.body
        answer.body = events + body if isinstance(body, bytes) else _before(events, body)
        answer.headers = of_changed_body(answer.headers)
    elif answer.status == 200 and isinstance(answer.body, bytes) and answer.body.lstrip()[:1] == b"[":
        answer.body = edit(
            answer.body, [Insert((place,), each) for place, each in _behind(answer.body, refused)]
        )
        answer.headers = of_changed_body(answer.headers)
    return answer


def _behind(array: bytes, refused: list[bytes]) -> list[tuple[int, bytes]]:
    length = sum(1 for _ in items(array))
    return [(length + number, each) for number, each in enumerate(refused)]


async def _before(events: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield events
        async for piece in pieces:
            yield piece
    finally:
        await pieces.aclose()
