"""The route on which other replicas forward requests. For a request without a good seal nothing is served there."""

from __future__ import annotations

from adapter.edge.http.bodies import SMALL, Body
from adapter.edge.http.request import Branch, Names, Request
from adapter.errors import AdapterError, BadRequest, NotFound, UpstreamBroken, UpstreamSilent
from adapter.relay.replicas.home import Home, MarkedReply
from adapter.upstream.port import pour
from adapter.wire.forwarding import METHOD, PATH, SEAL, Seal

PREFIX, _, _NAME = PATH.rpartition("/")


def replica_branch(home: Home) -> Branch:
    """The route. The seal alone tells who comes in: neither Host nor Origin count.

    It raises NotFound for whatever no replica has sent, and ClientGone.
    """

    async def serve(request: Request, names: Names) -> None:
        if names != (_NAME,) or request.method != METHOD:
            raise NotFound()
        seal = home.admit(request.headers.get(SEAL))
        answer = await _answer(home, request.body, seal)
        try:
            await _send(request, answer)
        finally:
            home.release(answer.reply)
            request.body.release()

    return Branch(PREFIX, 1, (), (), serve, sealed=True)


async def _answer(home: Home, body: Body, seal: Seal) -> MarkedReply:
    try:
        content = await _content(body, seal)
    except AdapterError as error:
        return home.failed(seal, error)
    answer = await home.serve(seal, content)
    if not answer.reply.needs_request:
        body.release()
    return answer


async def _content(body: Body, seal: Seal) -> bytes:
    """The sealed content. Raises BadRequest for one of another size, and what the body raises."""
    if body.announced is not None and body.announced != seal.size:
        raise _other_size()
    if seal.size > SMALL:
        body.count()
        body.require_room()
    return await body.whole(seal.size, _other_size)


def _other_size() -> BadRequest:
    return BadRequest("The content has another size than was sealed.")


async def _send(request: Request, answer: MarkedReply) -> None:
    """Send an answer as it comes. Raises ClientGone, and what the upstream raises in the middle of it."""
    reply, fields = answer.reply, list(answer.headers)
    if reply.whole is not None:
        request.reply.send(reply.status, fields, reply.whole)
        return
    request.reply.begin(reply.status, fields, None)
    try:
        # No limit here: the first replica knows how long its client waits, and goes when that time is over.
        await pour(reply, request.reply, None)
    except (UpstreamBroken, UpstreamSilent):
        if not answer.endless:
            raise
    request.reply.end()
