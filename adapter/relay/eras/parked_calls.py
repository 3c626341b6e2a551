"""Calls that wait for answers of their clients, each with a stream of the server's that is still open.

Rounds of a call whose client comes back with answers: what is known of the client, its questions, and its time.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from adapter.errors import BadJson, CallLost, RequestStateRefused, StoreUnavailable
from adapter.relay.files.rounds import RoundLimits
from adapter.relay.files.scopes import kept_secret
from adapter.rules.calls.rounds import round_key
from adapter.rules.eras.legacy_server import CAPABILITIES_KEY, LEVEL_KEY, severity
from adapter.rules.eras.questions import CallState, LegacyQuestion, answered, read_state, ways
from adapter.rules.last_used import LastUsed
from adapter.state.port import Store
from adapter.upstream.local.port import LocalRequest, ProgressToken
from adapter.upstream.local.replies import Deadlines, RpcRefused
from adapter.wire.envelope import INVALID_PARAMS
from adapter.wire.spans import find

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


def bound_to(server: str, request: LocalRequest) -> str:
    """The digest of everything that makes a request the next round of a call. Raises RpcRefused."""
    caller, about_ = request.head.caller, [request.envelope.name, request.params.get("arguments")]
    try:
        return round_key(caller.principal, server, request.envelope.method, about_, "")
    except BadJson as error:
        raise RpcRefused(INVALID_PARAMS, str(error)) from None


class Round(NamedTuple):
    """What is known of a client while it waits: the id of its request, the token of its progress, and the ways in which
    it can be asked. ``streams``: it reads notifications; log messages from ``level`` on, None for none.
    """

    id_bytes: bytes
    token: ProgressToken | None
    ways: frozenset[str]
    streams: bool
    level: int | None

    @classmethod
    def of(cls, request: LocalRequest) -> Round:
        meta, level = request.meta, None
        token = meta.get("progressToken")
        if token is not None and (type(token) is not int or not request.head.streams):
            token = request.progress_token
        if LEVEL_KEY in meta:
            level = severity(meta[LEVEL_KEY])
        known = ways(meta.get(CAPABILITIES_KEY))
        return cls(request.id_bytes, token, known, request.head.streams, level)


def answers_in(
    body: bytes, given: Mapping[str, Any], questions: dict[str, LegacyQuestion]
) -> list[tuple[LegacyQuestion, bytes]]:
    """The questions to which a request with that ``body`` has ``given`` answers, with what the server gets. They are
    open no more.
    """
    found = []
    for key in [key for key in questions if key in given]:
        span = find(body, ("params", "inputResponses", key))
        question = questions.pop(key)
        found.append((question, answered(question, b"{}" if span is None else body[slice(*span)])))
    return found


class CallClock:
    """Counts the ``seconds`` that a call may take, but for what its client takes; then ``overdue`` is called. It
    begins at once.
    """

    def __init__(self, deadlines: Deadlines, seconds: float, overdue: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self._left = seconds
        self._overdue = overdue
        self.start()

    def start(self) -> None:
        """Go on."""
        self._began: float | None = self._deadlines.loop.time()
        self._deadlines.set(self._overdue, self._left)

    def stop(self) -> None:
        """Stand still."""
        if self._began is not None:
            self._deadlines.drop(self._overdue)
            self._left -= self._deadlines.loop.time() - self._began
            self._began = None
