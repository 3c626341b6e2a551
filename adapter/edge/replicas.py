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
    """The route. The seal alone tells who comes in: neither Host nor Origin count."""
    return Branch(PREFIX, 1, (), (), ReplicaRoute(home).serve, sealed=True)


class ReplicaRoute:
    """Answers what replicas forward."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def serve(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:  # noqa: ARG002 (a branch's: pages have no business here)
        """Raises NotFound for whatever no replica has sent, and ClientGone."""
        if names != (_NAME,) or request.method != METHOD:
            raise NotFound()
        seal = self._home.admit(request.headers.get(SEAL))
        answer = await self._answer(request.body, seal)
        try:
            await _send(request, answer)
        finally:
            self._home.release(answer.reply)
            request.body.release()

    async def _answer(self, body: Body, seal: Seal) -> MarkedReply:
        try:
            content = await _content(body, seal)
        except AdapterError as error:
            return self._home.failed(seal, error)
        answer = await self._home.serve(seal, content)
        if not answer.reply.needs_request:
            body.release()
        return answer


async def _content(body: Body, seal: Seal) -> bytes:
    """The sealed content. Raises BadRequest for one of another size, and what the body raises."""
    if body.announced is not None and body.announced != seal.size:
        raise BadRequest("The content has another size than was sealed.")
    if seal.size > SMALL:
        body.count()
        body.require_room()
    chunks: list[bytes] = []
    size = 0
    while chunk := await body.read():
        size += len(chunk)
        if size > seal.size:
            raise BadRequest("The content has another size than was sealed.")
        chunks.append(chunk)
    return b"".join(chunks)


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
