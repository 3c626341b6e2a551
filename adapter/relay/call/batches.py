"""JSON-RPC batches (MCP 2025-03-26 only): members that a stage concerns are refused, the others travel on."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from adapter.errors import BadRequest, UpstreamBroken
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, asking_plain
from adapter.relay.replies import EVENT_STREAM, is_encoded, media_type
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


async def joined(answer: ClientResponse, requests: list[Envelope], refused: list[bytes]) -> ClientResponse:
    """The upstream's answer to ``requests`` and the refusals in one: events or elements before its own.

    What is no answer to them, such as a body of status 500, becomes an error for each. A status between 400 and 499 is
    left as it came, for it concerns all members: clients authorize, wait or initialize, and send all of them again.
    """
    if 400 <= answer.status < 500:
        return answer
    encoded, kind = is_encoded(answer.headers), media_type(answer.headers)
    answer.headers = of_changed_body(answer.headers)
    if encoded:
        return await _replaced(
            answer, requests, refused, "compressed an answer although no compression was requested."
        )
    if kind == EVENT_STREAM:
        events = b"".join(map(encode, refused))
        answer.body = events + answer.body if isinstance(answer.body, bytes) else _around(events, answer.body)
        return answer
    if isinstance(answer.body, bytes):
        members = _responses(answer.body) if answer.status == 200 else []
        return _listed(answer, [*refused, *members, *_missing(requests, members)])
    if answer.status != 200:
        return await _replaced(answer, requests, refused, f"answered with HTTP status {answer.status}.")
    return await _enclosed(answer, requests, refused)


def _listed(answer: ClientResponse, responses: list[bytes]) -> ClientResponse:
    """The answer with these responses as its whole body."""
    answer.status, answer.length = 200, None
    answer.headers = [field for field in answer.headers if field[0].lower() != "content-type"] + [JSON]
    answer.body = b"[" + b",".join(responses) + b"]"
    return answer


def _responses(body: bytes) -> list[bytes]:
    """The elements of an array, or the one response that came without an array around it."""
    if body.lstrip()[:1] != b"[":
        return [body] if read_response(body) is not None else []
    try:
        return [body[start:end] for start, end in items(body)]
    except ValueError:
        return []


def _missing(requests: list[Envelope], responses: list[bytes]) -> list[bytes]:
    """An error for each request that none of the responses answers."""
    answered = {response.id for response in map(read_response, responses) if response is not None}
    if None in answered:  # an error that names no request may be that of any
        return []
    error = UpstreamBroken("The upstream server answered the batch without a response to this request.")
    return [failure(error, each.id_bytes) for each in requests if each.id not in answered]


async def _replaced(
    answer: ClientResponse, requests: list[Envelope], refused: list[bytes], what: str
) -> ClientResponse:
    """An error for each request in place of an answer of which the upstream server ``what``."""
    if not isinstance(answer.body, bytes):
        await answer.body.aclose()
    error = UpstreamBroken(f"The upstream server {what}")
    return _listed(answer, [*refused, *(failure(error, each.id_bytes) for each in requests)])


async def _enclosed(answer: ClientResponse, requests: list[Envelope], refused: list[bytes]) -> ClientResponse:
    """An answer that is too long to be held, with the refusals put before its first element as it passes."""
    assert not isinstance(answer.body, bytes)
    pieces = answer.body
    first = (await anext(pieces, b"")).lstrip()
    answer.length = None
    before = b"[" + b",".join(refused)
    if first[:1] == b"{":
        answer.body = _around(before + b"," + first, pieces, b"]")
        return answer
    elements = first[1:].lstrip()
    if first[:1] != b"[" or not elements:
        return await _replaced(
            answer, requests, refused, "answered the batch with something other than responses."
        )
    answer.body = _around(before + (b"" if elements[:1] == b"]" else b",") + elements, pieces)
    return answer


async def _around(
    before: bytes, pieces: AsyncGenerator[bytes, None], after: bytes = b""
) -> AsyncGenerator[bytes, None]:
    try:
        yield before
        async for piece in pieces:
            yield piece
        if after:
            yield after
    finally:
        await pieces.aclose()
