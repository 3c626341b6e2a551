"""One request of a legacy client at a modern server, over as many rounds as the server asks for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from adapter.errors import BadJson, CallTooLong, UpstreamBroken
from adapter.relay.eras.bridged_session import BridgedSession
from adapter.relay.eras.modern_server import ModernServer, mismatches
from adapter.relay.replies import edited
from adapter.rules.calls.rounds import ASKING
from adapter.rules.eras.modern_server import (
    InputRound,
    NotAnswered,
    Question,
    answer_to,
    input_round,
    legacy_response,
    mirrored_name,
    modern_request,
    next_round,
    request_of,
)
from adapter.settings.storage import SessionsSettings
from adapter.upstream.local.correlation import BOUNDS, RequestUnderWay
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import LocalAnswer
from adapter.wire.envelope import Envelope, dump
from adapter.wire.scan import find
from adapter.wire.shared_ids import with_id


@dataclass(slots=True)
class ModernCall:
    """Brings the answer of one ``request`` to ``way``."""

    server: ModernServer
    limits: SessionsSettings
    request: LocalRequest
    session: BridgedSession
    way: RequestUnderWay

    async def run(self) -> None:
        """Send the request, and the rounds that follow from it, until there is a result or an error. Raises PassedOn,
        what the upstream raises, and UpstreamBroken or CallTooLong above a limit.
        """
        envelope, session = self.request.envelope, self.session
        first = modern_request(envelope, session.meta, session.members)
        body, number = first, envelope.id
        assert number is not None, "a request has an id"
        rounds = self.limits.max_rounds
        for count in range(1, rounds + 2):
            response = await self._answer(envelope, body, number)
            asked = input_round(response) if envelope.method in ASKING else None
            if asked is None:
                return await self._finish(response, renumbered=count > 1)
            if count > rounds:
                break
            answers = await self._answers(asked)
            if answers is None:
                return None
            number = f"mcp-file-adapter-{count + 1}"
            body = next_round(
                first, dump(number), answers if asked.questions is not None else None, asked.state
            )
        raise UpstreamBroken(
            f"The upstream server asked more than {rounds} times in one call, the limit of "
            "sessions.max_rounds."
        )

    async def _answer(self, envelope: Envelope, body: bytes, number: str | int | float) -> bytes:
        head, server, members = self.request.head, self.server, self.session.members
        name = mirrored_name(envelope)
        ask = partial(server.ask, head, envelope.method, body, number, name=name, between=self._pass_on)
        if envelope.method != "tools/call":
            return await ask()
        fields = await server.mirrored(head, envelope, members)
        response = await ask(fields=fields)
        if mismatches(response):
            # It was refused before it ran, so it may be sent again with what the tool's definition now asks for.
            server.tools_changed()
            if (renewed := await server.mirrored(head, envelope, members)) != fields:
                return await ask(fields=renewed)
        return response

    async def _finish(self, response: bytes, *, renumbered: bool) -> None:
        method = self.request.envelope.method
        if renumbered:
            response = with_id(response, self.request.id_bytes)
        if method == "tools/list":
            self.server.saw_list(
                response, first=find(self.request.envelope.body, ("params", "cursor")) is None
            )
        try:
            answer = await edited(response, lambda: legacy_response(response, method))
        except (BadJson, ValueError):
            raise UpstreamBroken("The upstream server's answer is not valid JSON.") from None
        self.way.answer(LocalAnswer(answer))

    # --- what the server says on the way ----------------------------------------------------------------------

    async def _pass_on(self, data: bytes) -> None:
        """Pass a notification on. A request, which no server of this era has, is dropped."""
        if self.way.streams and find(data, ("method",)) is not None and find(data, ("id",)) is None:
            await self._say(data)

    async def _say(self, data: bytes) -> None:
        if self.way.streams:
            await self.way.streamed(BOUNDS).put_event(self.way.event(data))
        else:
            self.session.send(data)

    async def _answers(self, asked: InputRound) -> dict[str, bytes] | None:
        """The client's answers to a round; None where one was an error, which is then that of the call."""
        questions, session = asked.questions or [], self.session
        rounds, seconds = self.limits.max_rounds, self.limits.round_ttl_seconds
        if session.asked + len(questions) > rounds:
            raise UpstreamBroken(
                f"More than {rounds} questions of this session are unanswered, the limit of "
                "sessions.max_rounds."
            )
        waiting: dict[asyncio.Future[bytes], Question] = {}
        try:
            for question in questions:
                number, answer = session.expect_answer()
                waiting[answer] = question
                await self._say(request_of(question, number, session.version))
            if waiting and (await asyncio.wait(waiting, timeout=seconds))[1]:
                raise CallTooLong(
                    f"The client did not answer the server's questions within the {seconds:g} s that "
                    "sessions.round_ttl_seconds allows."
                )
            return {
                question.key: answer_to(question, answer.result()) for answer, question in waiting.items()
            }
        except NotAnswered as refused:
            error = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self.request.id_bytes, refused.error)
            self.way.answer(LocalAnswer(error))
            return None
        finally:
            session.forget(waiting)
