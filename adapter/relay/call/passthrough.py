"""Piped exchanges: body bytes out, answer bytes back as they arrive; nothing is held but what may still break."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from adapter.errors import UpstreamSilent
from adapter.relay.call.answer_stream import AnswerStream, StreamEdits, StreamPolicy
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.resumption import ExchangeRecovery
from adapter.relay.exchange import ClientRequest, ClientResponse, asking_plain, silence_of
from adapter.relay.flow import piped
from adapter.relay.replies import is_encoded, media_type, require_plain
from adapter.relay.sessions.session_map import Session
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.rules.access.headers import of_changed_body
from adapter.upstream.port import Headers, UpstreamReply, header
from adapter.wire.envelope import Envelope
from adapter.wire.eras import Era

HELD_JSON = 64 << 10
"""Bytes of a JSON answer that are held until it is whole, so that one which breaks off can still be replaced."""


@dataclass(slots=True)
class PassThrough:
    """Takes the requests that no stage concerns."""

    upstream_sessions: UpstreamSessions
    deferred: DeferredAnswers

    async def pipe(
        self, ask: ClientRequest, session: Session | None, requests: list[Envelope]
    ) -> ClientResponse:
        """Answer one request, or a batch of them. Raises AdapterError."""
        read_timeout = silence_of(ask, requests)
        access = ask.server.stages.access
        if access is not None:
            ask.headers = asking_plain(ask.headers)
        try:
            reply = await self.upstream_sessions.send(ask, session, ask.body, read_timeout)
            if ask.sent is not None and not reply.needs_request:
                ask.let_go()
            headers = ask.server.rules.answer_headers.to_client(reply.headers)
            if media_type(reply.headers) == "text/event-stream":
                if access is not None:
                    require_plain(reply)
                if is_encoded(reply.headers):
                    if reply.whole is not None:
                        return ClientResponse(reply.status, headers, reply.whole)
                    # Nobody looks into it, but its events are due at once, so it is not held either.
                    return ClientResponse(
                        reply.status, headers, piped(reply, read_timeout), release=reply.abort
                    )
                recovery = self._recovery(ask, session, requests)
                terms = StreamPolicy(read_timeout, ask.sender.era is Era.LEGACY, ask.server.listener())
                if access is not None:
                    terms = terms._replace(limit=ask.server.rules.answer_limit)
                    edits = StreamEdits(None, partial(access.aside, ask.sender.caller))
                    stream = AnswerStream(reply, list(requests), recovery, terms, edits)
                    return stream.answer(reply.status, of_changed_body(headers), reply.abort)
                stream = AnswerStream(reply, list(requests), recovery, terms)
                if reply.whole is not None and stream.settled_by(reply.whole):
                    return ClientResponse(reply.status, headers, reply.whole)
                return stream.answer(reply.status, headers, reply.abort)
            if reply.whole is not None:
                return ClientResponse(reply.status, headers, reply.whole)
            return await piped_answer(reply, headers, read_timeout)
        except UpstreamSilent:
            self._recovery(ask, session, requests).cancel_upstream()
            raise

    def _recovery(
        self, ask: ClientRequest, session: Session | None, requests: list[Envelope]
    ) -> ExchangeRecovery:
        return ExchangeRecovery(ask, session, requests, self.deferred)


async def piped_answer(reply: UpstreamReply, headers: Headers, read_timeout: float | None) -> ClientResponse:
    """An answer that is no event stream: held while small, so that a broken one never leaves in part."""
    first: list[bytes] = []
    size = 0
    try:
        while size <= HELD_JSON:
            chunk = await reply.read(read_timeout)
            if not chunk:
                return ClientResponse(reply.status, headers, b"".join(first))
            first.append(chunk)
            size += len(chunk)
    except BaseException:
        reply.abort()
        raise
    length = header(reply.headers, "content-length")
    return ClientResponse(
        reply.status,
        headers,
        piped(reply, read_timeout, b"".join(first)),
        length=int(length) if length else None,
        release=reply.abort,
    )
