"""One request of a modern client at a legacy server, over as many rounds as the server's questions take."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from adapter.errors import AdapterError, CallTooLong, InternalError, UpstreamUnanswered
from adapter.relay.background import AT_ONCE, apart
from adapter.relay.eras.legacy_session import LOG, Exchange, LegacySession, said_in
from adapter.relay.eras.legacy_sessions import OpeningRefused, ServerBridge
from adapter.relay.eras.parked_calls import CallClock, Round, answers_in, bound_to
from adapter.relay.replies import (
    LARGE,
    decoded,
    discard,
    is_encoded,
    kept_fields,
    messages_in,
    read_body,
    with_result,
)
from adapter.relay.sessions.inner_client import ABANDON_SILENCE
from adapter.rules.calls.rounds import ASKING
from adapter.rules.eras.legacy_server import (
    SUBSCRIBED,
    cancellation,
    legacy_fields,
    legacy_request,
    severity,
)
from adapter.rules.eras.questions import (
    MOST_QUESTIONS,
    LegacyQuestion,
    declined,
    input_required,
    question_in,
    way_of,
)
from adapter.upstream.local.events import BOUNDS, StreamBounds
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply
from adapter.upstream.port import UpstreamReply, UpstreamRequest, never
from adapter.wire.envelope import NO_VERSION, REQUEST, Envelope, answers, dump
from adapter.wire.shared_ids import CANCELLED, PROGRESS, about, named

WHILE_PARKED = StreamBounds(messages=16, size=16 << 10)
"""What is kept of the notifications for a client that is to come back; more are dropped."""

TOGETHER = 0.05
"""Seconds in which further questions of a server go to the client with the first."""

TURNS = 16
"""Turns of the loop in which a message that has come reaches its reader."""

QUESTION_BYTES = 1 << 20
"""Bytes of all open questions of one call; more are declined."""

_DROPPED = SUBSCRIBED | {"notifications/elicitation/complete", "notifications/tasks/status"}


class BridgedCall(Exchange):
    """Asks the server, and tells the client what it says. It ends with the answer, or when its client has gone.

    ``reply`` is that of the round under way, or of the next one while the call is parked. No more is kept of the
    request than is needed then.
    """

    def __init__(self, request: LocalRequest, bridge: ServerBridge) -> None:
        self.id = ""
        self.method = request.envelope.method
        self.is_call = self.method in ASKING
        self.principal = request.head.caller.principal
        self.bound_to = ""
        self.reply = PendingReply(self._left)
        self.round = self.size = 0
        self._bridge = bridge
        self._number = request.envelope.id
        # Until it is known whether the server may ask: one that answers at once needs no seal.
        self._request: LocalRequest | None = request
        self._first = self._now = Round.of(request)
        self._session: LegacySession | None = None
        self._server_info: bytes | None = None
        self._client = bridge.like
        self._asked = 0
        self._questions: dict[str, LegacyQuestion] = {}
        self._parking = self.waits = False
        self._outcome: bytes | AdapterError | None = None
        self._clock: CallClock | None = None
        if bridge.total is not None and self.method == "tools/call":
            self._clock = CallClock(bridge.deadlines, bridge.total, self._overdue)
        self._tasks = {bridge.deadlines.loop.create_task(self._run())}

    # --- the server -------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Keep no more of the request than what binds its next round to it."""
        if (request := self._request) is not None:
            self._request = None
            self.id = secrets.token_hex(16)
            self.bound_to = bound_to(self._bridge.id, request)

    async def _run(self) -> None:
        try:
            # In a coroutine that ends: a call that is parked keeps no message.
            reply = await self._send()
            response = await self._response(reply)
            if response is not None:
                await self._finish(response)
        except OpeningRefused as refused:
            self._end(refused.under(self._first.id_bytes))
        except AdapterError as error:
            await self._finish(error)
        except Exception:
            self._bridge.log.exception("a bridged call failed unexpectedly", server=self._bridge.id)
            await self._finish(InternalError())

    async def _send(self) -> UpstreamReply:
        request = self._request
        assert request is not None, "only questions bind it, which come later"
        envelope, sent = request.envelope, request.head.request
        like = UpstreamRequest("POST", legacy_fields(sent.headers), b"", sent.caller, sent.query)
        like.traceparent = sent.traceparent
        translate = partial(legacy_request, envelope.body, request.params)
        body = translate() if len(envelope.body) <= AT_ONCE else await apart(envelope.body, translate)
        legacy = Envelope(REQUEST, envelope.method, envelope.id, envelope.name, NO_VERSION, body)
        legacy.trace = envelope.trace
        for may_repeat in (True, False):
            session = await self._enter(sent)
            self._client = session.speaking(like, None)
            reply = await self._client.post(body, (), sent.repeatable, legacy)
            has_id = session.lasts and session.client.session.id is not None
            if reply.status != 404 or not (may_repeat and has_id):
                break
            if (ran := await with_result(reply, {self._number}, ABANDON_SILENCE)) is not None:
                return ran
            # The server does not know the session, so it did not run the request.
            self._bridge.legacy.forget(session)
            self._leave_session()
        return reply

    async def _enter(self, sent: UpstreamRequest) -> LegacySession:
        session = self._session = await self._bridge.legacy.enter(self, sent)
        self._server_info = session.server_info
        if self.is_call and not session.hears:
            await session.listen()
        if (level := self._first.level) is not None:
            await session.log_at_least(level)
        return session

    async def _response(self, reply: UpstreamReply) -> bytes | None:
        """The server's response; None where it gave none, and what it said was passed on."""
        client = self._client
        if reply.status == 200:
            whole = reply.whole
            if whole is None:
                if self.is_call:
                    self._bind()
            elif len(whole) <= LARGE and not is_encoded(reply.headers) and answers(whole, self._number):
                return whole
            answer = await client.answer(reply, self._number, keeps_raw=False, between=self._heard)
            if answer.response is None:
                raise UpstreamUnanswered("The upstream server gave no response; the call may have run.")
            return answer.response
        body = decoded(await read_body(reply, client.read_timeout, client.limit), reply, client.limit)
        if answers(body, self._number):
            return body
        self._end(LocalAnswer(body, reply.status, headers=kept_fields(reply.headers)))
        return None

    async def _heard(self, data: bytes) -> None:
        for each in messages_in(data):
            if (said := said_in(each)) is None:
                continue
            method, message = said
            if message.get("id") is not None:
                await self.ask(question_in(each, method), message.get("params"))
            elif method == CANCELLED:
                self.withdraw(dump(named(message, "requestId")))
            elif method in SUBSCRIBED and self._session is not None:
                for other in self._session.others():
                    await other.tell(message, each)
            else:
                await self.tell(message, each, mine=True)

    # --- notifications ----------------------------------------------------------------------------------------

    async def tell(self, message: Mapping[str, Any], data: bytes, *, mine: bool = False) -> None:
        """Tell the client of a notification. Unless it is ``mine`` it came outside of requests."""
        method, now = message.get("method"), self._now
        if method in _DROPPED or not now.streams:
            return
        if method == LOG:
            level = severity(named(message, "level"))
            if now.level is None or level is None or level < now.level:
                return
        elif method == PROGRESS:
            if now.token is None or (not mine and named(message, "progressToken") != self._first.token):
                return
            if now.token != self._first.token:
                data = about(data, "progressToken", dump(now.token))
        if mine and not self.waits:
            await self.reply.send(data)
        else:
            self.reply.offer(data, WHILE_PARKED if self.waits else BOUNDS)

    # --- questions --------------------------------------------------------------------------------------------

    async def ask(self, question: LegacyQuestion, params: object) -> None:
        """Ask the client, or decline in its name where it cannot be asked. Raises what the upstream raises."""
        fits = len(self._questions) < MOST_QUESTIONS and self.size + question.size <= QUESTION_BYTES
        is_asked = self.is_call and fits and way_of(question.method, params) in self._now.ways
        if is_asked and self._bridge.one_channel and self._session is not None:
            is_asked = self._session.asking is self
            if not is_asked:
                why = "a question that may be for any of several calls was declined"
                self._bridge.log.warning(why, server=self._bridge.id, method=question.method)
        if not is_asked:
            await self._say(declined(question))
            return
        self._asked += 1
        self._questions[f"question-{self._asked}"] = question
        if self.waits:
            self._bridge.parked.grow(self, question.size)
            return
        self.size += question.size
        self._park_soon()

    def withdraw(self, id_bytes: bytes) -> None:
        """Forget a question that the server gave up."""
        kept = {key: each for key, each in self._questions.items() if each.id_bytes != id_bytes}
        self._questions = kept

    def _park_soon(self) -> None:
        if not self._parking:
            self._parking = True
            asyncio.get_running_loop().call_later(TOGETHER, self._park)

    def _park(self) -> None:
        self._parking = False
        if self.waits or not self._questions or self.reply.over:
            return
        if self._clock is not None:
            self._clock.stop()
        if self._request is not None:
            # The server has not begun to answer, so the message is held until it does.
            self.size += len(self._request.envelope.body)
            self._bind()
        self.round += 1
        asked, self.reply = self.reply, PendingReply(self._left)
        self.waits = True
        self._bridge.deadlines.set(self.give_up, self._bridge.parked.limits.ttl)
        state = self._bridge.parked.park(self)
        asked.answer(
            LocalAnswer(input_required(self._now.id_bytes, self._questions, state, self._server_info))
        )

    def resume(self, request: LocalRequest, given: Mapping[str, Any]) -> PendingReply:
        """Go on with what the client answers."""
        self._now, self.waits = Round.of(request), False
        self._bridge.deadlines.drop(self.give_up)
        if self._clock is not None:
            self._clock.start()
        answers_given = answers_in(request.envelope.body, given, self._questions)
        self.size -= sum(question.size for question, _ in answers_given)
        responses = [response for _, response in answers_given]
        self._tasks.add(asyncio.get_running_loop().create_task(self._go_on(responses)))
        return self.reply

    async def _go_on(self, responses: list[bytes]) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            await self._finish(outcome)
            return
        if (level := self._now.level) is not None and self._session is not None:
            await self._session.log_at_least(level)
        try:
            for response in responses:
                await self._say(response)
        except AdapterError as error:
            await self._finish(error)
        self._park_soon()

    async def _say(self, response: bytes) -> None:
        """Answer the server. Raises UpstreamUnanswered where it has lost the session."""
        client = self._client._replace(read_timeout=self._bridge.like.read_timeout)
        reply = await client.post(response, repeatable=never)
        await discard(reply, client.read_timeout)
        if reply.status >= 400:
            raise UpstreamUnanswered("The upstream server has lost the session; the call may have run.")

    # --- the end ----------------------------------------------------------------------------------------------

    async def _finish(self, outcome: bytes | AdapterError) -> None:
        """End with the server's response, or a failure; when the client comes back, where it is to."""
        if self._now.level is not None and self._bridge.one_channel:
            # A log message that the server wrote before its answer is on the stream of the session.
            for _ in range(TURNS):
                await asyncio.sleep(0)
        self._questions.clear()
        if self.waits:
            self._outcome = outcome
            self._leave_session()
            self._bridge.parked.grow(self, len(outcome) if isinstance(outcome, bytes) else 0)
            return
        if not isinstance(outcome, AdapterError):
            try:
                now, first = self._now, self._first
                other_id = None if now.id_bytes == first.id_bytes else now.id_bytes
                translated = self._bridge.translated(outcome, now, self.method, self._server_info, other_id)
                self.reply.answer(await translated)
                self._close()
                return
            except AdapterError as error:
                outcome = error
        self.reply.fail(outcome, self._now.id_bytes)
        self._close()

    def _end(self, answer: LocalAnswer) -> None:
        self.reply.answer(answer)
        self._close()

    def _left(self) -> None:
        """The client has gone."""
        if (session := self._session) is not None:
            self._session = None
            last = partial(self._say, cancellation(self._first.id_bytes))
            self._bridge.legacy.leave(self, session, last)
        self._close()

    give_up = stop = _left

    def _close(self) -> None:
        if self._clock is not None:
            self._clock.stop()
        if self.waits:
            self._bridge.deadlines.drop(self.give_up)
            self._bridge.parked.drop(self)
        if not self.reply.over:
            self.reply.end()
        self._leave_session()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def _leave_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            self._bridge.legacy.leave(self, session)

    def _overdue(self) -> None:
        limit = self._bridge.total
        assert limit is not None, "without a limit nothing is overdue"
        why = f"The call took longer than the {limit:g} s that {limit.setting} allows."
        self.reply.fail(CallTooLong(why), self._now.id_bytes)
        self._left()
