"""The stage by which calls of several rounds go on, with what their earlier rounds were told."""

from __future__ import annotations

from adapter.relay.files.rounds import ROUND, Rounds, key_of
from adapter.relay.stages import Call
from adapter.rules.calls.rounds import STATE, asks_for_input, state_of
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Replace


class RoundStage:
    """The stage of every tool that is told a place or a link, before the stages that tell it."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    async def ask(self, call: Call) -> bytes | None:
        """Raises LimitReached."""
        body = call.envelope.body
        state = state_of(parse(body).get("params")) if STATE in body else None
        if state is not None:
            own = await self._rounds.resume(call, key_of(call, state))
            if own is not None:
                call.change(Replace(("params", "requestState"), dump(own)))
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        if ROUND not in call.notes and STATE not in response:
            return response
        message = call.parsed(response)
        state = asks_for_input(message)
        if state is not None:
            return await self._rounds.remember(call, state, response)
        if ROUND in call.notes and isinstance(message.get("result"), dict):
            await self._rounds.end(call)
        return response
