"""Recovery of answers that do not come to their end."""

from __future__ import annotations

from adapter.errors import AdapterError, UpstreamSilent
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.exchange import ClientRequest, forwardable
from adapter.relay.replies import discard
from adapter.relay.sessions.own_session import Resumption
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, Stages, finish
from adapter.upstream.port import UpstreamReply, UpstreamRequest, always
from adapter.wire.envelope import Envelope

_CANCEL_SILENCE = 5.0
"""Seconds that an upstream may be silent about a cancellation."""


class ExchangeRecovery:
    """Resumes, parks and cancels for one exchange. ``reading`` is the call of a read exchange, which is finished once,
    or parked, and its stages.
    """

    def __init__(
        self,
        ask: ClientRequest,
        session: Session | None,
        requests: list[Envelope],
        deferred: DeferredAnswers,
        background: BackgroundTasks,
        reading: tuple[Call, Stages] | None = None,
    ) -> None:
        self._ask = ask
        self._session = session
        self._requests = requests
        self._deferred = deferred
        self._background = background
        self._reading = reading

    def finish(self) -> None:
        if self._reading is not None:
            (call, _), self._reading = self._reading, None
            finish(call)

    async def resume(self, last_event_id: bytes) -> UpstreamReply | None:
        ask = self._ask
        upstream_session = self._session.upstream_id if self._session else None
        sender = ask.sender
        resumption = Resumption(
            ask.server, ask.headers, upstream_session, sender.version, ask.query, sender.caller
        )
        return await resumption.after(last_event_id, None)

    async def polled(self) -> None:
        if self._reading is not None and self._session is not None:
            await self._deferred.park(self._session, *self._reading)
            self._reading = None

    async def gave_up(self, error: AdapterError) -> None:
        self._ask.server.counters.failures += 1
        if isinstance(error, UpstreamSilent):
            self.cancel_upstream()

    def cancel_upstream(self) -> None:
        """Tell a legacy upstream that nobody waits any more; a modern one reads it from the closed connection."""
        session = self._session
        if session is None or session.upstream_id is None:
            return
        # The request may have been compressed; this is not.
        fields = forwardable(self._ask.headers, drop=frozenset({"content-encoding"}))
        headers = [*fields, ("Mcp-Session-Id", session.upstream_id)]
        for request in self._requests:
            body = (
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":'
                + request.id_bytes
                + b',"reason":"The adapter waited too long for an answer."}}'
            )
            caller, query = self._ask.sender.caller, self._ask.query
            notification = UpstreamRequest("POST", headers, body, caller, query, always)
            self._background.run(self._send_quietly(notification))

    async def _send_quietly(self, request: UpstreamRequest) -> None:
        try:
            await discard(await self._ask.server.upstream.send(request, _CANCEL_SILENCE), _CANCEL_SILENCE)
        except AdapterError:
            # The upstream is silent or gone; then there is nothing to cancel.
            return
