"""Recovery of answers that do not come to their end."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from adapter.errors import AdapterError, UpstreamSilent
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.exchange import ClientRequest
from adapter.relay.sessions.inner_client import InnerClient
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, Stages, finish
from adapter.rules.access.sessions import UpstreamSession
from adapter.upstream.port import UpstreamReply
from adapter.wire.envelope import Envelope

_CANCEL_SILENCE = 5.0
"""Seconds that an upstream may be silent about a cancellation."""


@dataclass(eq=False, repr=False)
class ExchangeRecovery:
    """Resumes, parks and cancels for one exchange. ``reading`` is the call of a read exchange, which is finished once,
    or parked, and its stages.
    """

    ask: ClientRequest
    session: Session | None
    requests: list[Envelope]
    deferred: DeferredAnswers
    reading: tuple[Call, Stages] | None = None

    def finish(self) -> None:
        if self.reading is not None:
            (call, _), self.reading = self.reading, None
            finish(call)

    async def resume(self, last_event_id: bytes) -> UpstreamReply | None:
        """The rest of the stream, from the upstream, or None where that cannot be had."""
        return await self._client.resume(last_event_id, None)

    async def polled(self) -> None:
        """The upstream ended the stream cleanly after an event id; the client is expected to come back."""
        if self.reading is not None and self.session is not None:
            await self.deferred.park(self.session, *self.reading)
            self.reading = None

    async def gave_up(self, error: AdapterError) -> None:
        """The client was told that the request failed."""
        if isinstance(error, UpstreamSilent):
            self.cancel_upstream()

    def cancel_upstream(self) -> None:
        """Tell a legacy upstream that nobody waits any more; a modern one reads it from the closed connection."""
        session = self.session
        if session is None or session.upstream_id is None:
            return
        client = self._client._replace(read_timeout=_CANCEL_SILENCE)
        for request in self.requests:
            body = (
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":'
                + request.id_bytes
                + b',"reason":"The adapter waited too long for an answer."}}'
            )
            self.deferred.background.run(_tell_quietly(client, body))

    @property
    def _client(self) -> InnerClient:
        session, ask = self.session, self.ask
        return InnerClient.of(
            ask, UpstreamSession(session.upstream_id if session else None, ask.sender.version or "")
        )


async def _tell_quietly(client: InnerClient, body: bytes) -> None:
    # An upstream that is silent or gone has nothing to cancel.
    with contextlib.suppress(AdapterError):
        await client.tell(body)
