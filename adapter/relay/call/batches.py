"""JSON-RPC batches (MCP 2025-03-26 only): members that a stage concerns are refused, the others travel on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from adapter.errors import BadRequest, UpstreamBroken
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, asking_plain
from adapter.relay.replies import EVENT_STREAM, has_coding, media_type, too_large
from adapter.rules.access.headers import of_changed_body
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import Batch, Envelope, failure, read_response
from adapter.wire.spans import Drop, edit, items
from adapter.wire.sse import encode


def refusals(concerned: list[Envelope]) -> list[bytes]:
    """An error response for each member that cannot be part of a batch."""
    return [
        failure(
            BadRequest(
                f"Call {shown(each.name or each.method, 100)} on its own, not in a batch: the adapter "
                "processes that call."
            ),
            each.id_bytes,
        )
        for each in concerned
    ]


def without(ask: ClientRequest, batch: Batch, concerned: list[Envelope]) -> ClientRequest:
    """The ask with the other members only, which keep their bytes; the answer is asked for uncompressed."""
    refused = {id(each) for each in concerned}
    drops = [Drop((place,)) for place, member in enumerate(batch.members) if id(member) in refused]
    body = edit(batch.body, drops)
    members = [member for member in batch.members if id(member) not in refused]
    headers = asking_plain(ask.headers, drop=frozenset({"content-encoding"} if ask.encoded else ()))
    return ask.with_message(Batch(members, body), body, headers)


def refused_whole(refused: list[bytes]) -> ClientResponse:
    """The answer where nothing else waits for one."""
    return ClientResponse(200, [JSON], b"[" + b",".join(refused) + b"]")


async def joined(
    answer: ClientResponse, requests: list[Envelope], refused: list[bytes], limit: int
) -> ClientResponse:
    """The upstream's answer to ``requests`` and the refusals in one: events or elements before its own.

    What is no answer to them, such as a body of status 500, becomes an error for each. A status between 400 and 499 is
    left as it came, for it concerns all members: clients authorize, wait or initialize, and send all of them again.
    Raises AnswerTooLarge above ``limit`` bytes, and what reading the answer raises.
    """
    if 400 <= answer.status < 500:
        return answer
    is_encoded = has_coding(answer.headers)
    if media_type(answer.headers) == EVENT_STREAM and not is_encoded:
        events = b"".join(map(encode, refused))
        answer.body = events + answer.body if isinstance(answer.body, bytes) else _behind(events, answer.body)
        answer.headers = of_changed_body(answer.headers)
        return answer
    what, members = "answered the batch without a response to this request.", list[bytes]()
    if is_encoded:
        what = "compressed an answer although no compression was requested."
    elif answer.status != 200:
        what = f"answered with HTTP status {answer.status}."
    else:
        members = _responses(await _whole(answer, limit))
    await answer.close()
    headers = [field for field in of_changed_body(answer.headers) if field[0].lower() != "content-type"]
    errors = _missing(requests, members, UpstreamBroken(f"The upstream server {what}"))
    return ClientResponse(200, [*headers, JSON], b"[" + b",".join([*refused, *members, *errors]) + b"]")


async def _whole(answer: ClientResponse, limit: int) -> bytes:
    if isinstance(answer.body, bytes):
        return answer.body
    body = bytearray()
    async for piece in answer.body:
        body += piece
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def _responses(body: bytes) -> list[bytes]:
    """The elements of an array, or the one response that came without an array around it."""
    if body.lstrip()[:1] != b"[":
        return [body] if read_response(body) is not None else []
    try:
        return [body[start:end] for start, end in items(body)]
    except ValueError:
        return []


def _missing(requests: list[Envelope], responses: list[bytes], error: UpstreamBroken) -> list[bytes]:
    """An error for each request that none of the responses answers."""
    answered = {response.id for response in map(read_response, responses) if response is not None}
    if None in answered:  # an error that names no request may be that of any
        return []
    return [failure(error, each.id_bytes) for each in requests if each.id not in answered]


async def _behind(events: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield events
        async for piece in pieces:
            yield piece
