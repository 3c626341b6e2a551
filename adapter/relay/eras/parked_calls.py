"""Calls that wait for answers of their clients, each with a stream of the server's that is still open."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from adapter.errors import CallLost, RequestStateRefused, StoreUnavailable
from adapter.relay.files.rounds import RoundLimits
from adapter.relay.files.scopes import kept_secret
from adapter.rules.eras.questions import CallState, read_state
from adapter.rules.last_used import LastUsed
from adapter.state.port import Store

KEY = "parked calls"
"""The name of the secret in the store that seals states."""

CALL_BYTES = 4096
"""Bytes that a parked call takes beside its messages, as far as they can be counted."""

MOST_REMEMBERED = 20_000
"""Calls of which is known that they went on, those that did so last: their states are told from those of lost ones."""


class Parkable(Protocol):
    """A call that can wait. ``bound_to`` is everything that makes a request its next round."""

    id: str
    bound_to: str
    principal: str
    round: int
    size: int

    def give_up(self) -> None:
        """Nobody will go on with it."""


@dataclass(eq=False)
class ParkedCalls:
    """All parked calls of this process, which is the replica ``owner``. ``clock`` gives Unix time in seconds."""

    store: Store
    limits: RoundLimits
    clock: Callable[[], float]
    owner: str = ""
    is_open: bool = field(default=False, init=False)
    size: int = field(default=0, init=False)
    _key: bytes = field(default=b"", init=False)
    # The one that waits longest is the first.
    _calls: dict[str, Parkable] = field(default_factory=dict, init=False)
    _of: dict[str, dict[str, Parkable]] = field(default_factory=dict, init=False)
    # The rounds that were gone on with.
    _gone_on: LastUsed[str, int] = field(
        default_factory=lambda: LastUsed[str, int](MOST_REMEMBERED), init=False
    )

    def __repr__(self) -> str:
        return f"<ParkedCalls: {len(self._calls)}, {self.size} bytes>"

    def __len__(self) -> int:
        return len(self._calls)

    async def open(self) -> None:
        """Read the key, which all processes have. Without the store this one seals for itself."""
        try:
            key = await kept_secret(self.store, KEY)
        except StoreUnavailable:
            key = secrets.token_bytes(32)
        # Of several first calls one is before the others, which may have a key of their own.
        if not self.is_open:
            self._key, self.is_open = key, True

    def park(self, call: Parkable) -> str:
        """Keep a call until it is taken. The text with which its client goes on. What waits longest makes room."""
        self._calls[call.id] = call
        self._of.setdefault(call.principal, {})[call.id] = call
        self.size += call.size + CALL_BYTES
        mine, limits = self._of[call.principal], self.limits
        while len(mine) > limits.per_scope or self._weight(mine) > limits.scope_bytes:
            self._give_up(next(iter(mine.values())))
        while len(self._calls) > limits.total or self.size > limits.total_bytes:
            self._give_up(next(iter(self._calls.values())))
        state = CallState(self.owner, call.id, call.round, int(self.clock() + limits.ttl))
        return state.sealed(self._key, call.bound_to)

    def _weight(self, calls: dict[str, Parkable]) -> int:
        # Most have few bytes, and then so have all of a principal's: it is not worth a sum for each.
        if self.size <= self.limits.scope_bytes:
            return 0
        return sum(each.size + CALL_BYTES for each in calls.values())

    def grow(self, call: Parkable, size: int) -> None:
        """Count more bytes of a parked call, which it is given up for where they are too many."""
        if call.id in self._calls:
            call.size += size
            self.size += size
            if call.size > self.limits.scope_bytes or self.size > self.limits.total_bytes:
                self._give_up(call)

    def read(self, text: str, bound_to: str) -> CallState:
        """The state that a client goes on with. Raises RequestStateRefused."""
        state = read_state(text, self._key, bound_to)
        if state is None:
            raise RequestStateRefused()
        return state

    def take(self, state: CallState) -> Parkable:
        """The call that goes on, once. Raises RequestStateRefused, and CallLost."""
        call = self._calls.get(state.call)
        done = self._gone_on.values.get(state.call)
        if (done is not None and state.round <= done) or (call is not None and call.round != state.round):
            raise RequestStateRefused("The call has gone on with this requestState already.")
        if call is None or state.due < self.clock():
            raise lost("it waited too long" if state.due < self.clock() else "it is gone", state.owner)
        self.drop(call)
        self._gone_on.put(call.id, state.round)
        return call

    def drop(self, call: Parkable) -> None:
        """Keep it no more."""
        if self._calls.pop(call.id, None) is None:
            return
        self.size -= call.size + CALL_BYTES
        mine = self._of[call.principal]
        del mine[call.id]
        if not mine:
            del self._of[call.principal]

    def _give_up(self, call: Parkable) -> None:
        self.drop(call)
        call.give_up()


def lost(why: str, place: str) -> CallLost:
    """The failure of a call that cannot go on. ``place`` is the replica that had it."""
    return CallLost(
        f"The call that waited for this answer cannot go on, because {why}; the call may have run.",
        data={"replica": place or None, "setting": "sessions.round_ttl_seconds, sessions.max_rounds"},
    )
