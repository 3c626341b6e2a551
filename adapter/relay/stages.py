"""The pipeline a read exchange walks: a tuple of stages in the order things happen.

A call that no stage concerns has an empty tuple and is piped. A new behaviour is one new stage in a plan.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from adapter.rules.access.principals import NOBODY, Caller, Scope
from adapter.wire.envelope import Envelope
from adapter.wire.eras import Era
from adapter.wire.spans import Edit, edit

Fetch = Callable[[str, dict[str, Any]], Awaitable[bytes | None]]
"""A request of the adapter's own in the same upstream session: method and params, to the JSON-RPC response."""


class Subscribed(Protocol):
    """Words of a stage on the event stream that answers a call."""

    def heard(self, data: bytes) -> bytes:
        """A message that is not the response, as it shall leave."""

    def joined(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The stream, whole events, with others between them."""


@dataclass(slots=True)
class Call:
    """A request on its way through the stages, and what they want changed of it.

    ``request`` is the message as it will go upstream, with ``headers``. ``base`` is the URL under which the
    client knows the adapter, without a slash at its end; ``session`` the key of its session, if any. ``caller`` made
    the request, which ``began`` in Unix seconds. ``notes`` is where a stage keeps what it must remember from the
    request to the response; it must be JSON, since a parked call outlives the process. What is in ``live`` does not,
    and ``fetch`` is None for a call of an earlier process. ``withheld`` is what a text of the upstream's other
    messages on the call's stream becomes, None where they pass as they come. ``guarded``: of what the upstream
    answers nothing leaves that has not passed the stages, also where it cannot be read. ``subscription`` joins its own
    words to the stream that answers.
    """

    server: str
    scope: Scope
    envelope: Envelope
    request: bytes
    era: Era = Era.LEGACY
    base: str = ""
    session: str | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    fetch: Fetch | None = None
    withheld: Callable[[str], str] | None = None
    deferred: list[Callable[[], None]] = field(default_factory=list)
    caller: Caller = NOBODY
    began: float = 0.0
    live: dict[str, object] = field(default_factory=dict)
    guarded: bool = False
    subscription: Subscribed | None = None

    @property
    def modern(self) -> bool:
        return self.era is Era.MODERN

    def without_request(self) -> Call:
        """Copy it for what is asked beside it, and may take longer than the call: its message is not kept so long."""
        return replace(self, request=b"")

    def change(self, *edits: Edit) -> None:
        """Edit the request; everything outside the edited spans keeps its bytes."""
        self.request = edit(self.request, edits)

    def defer(self, release: Callable[[], None]) -> None:
        """Have ``release`` called when the exchange is over, whichever way it ended."""
        self.deferred.append(release)


class Gate(Protocol):
    """Judges every ``tools/call`` before anything of it goes upstream, also of tools that no stage concerns."""

    def passes(self, scope_id: str, name: str | None) -> bool:
        """Tell whether a call may go on without being judged."""

    async def admit(self, call: Call) -> None:
        """Raises an AdapterError for a call that must not go on."""

    def repeatable(self, scope_id: str, name: str | None) -> bool:
        """Tell whether calling a tool twice does no more than once, by the definition that this scope sees now."""

    def changed(self) -> None:
        """The upstream began anew, so its tools may be others now."""

    def listener(self) -> Callable[[bytes], None]:
        """Looks along at what the upstream says on one stream, chunk by chunk."""

    def recognizes(self, response: bytes) -> bytes | None:
        """The id (JSON) of a list of tools that was read before, but for its id; None of any other response."""


class Withdrawn(Exception):
    """The client gave up its request before anything of it went upstream; nobody waits for an answer."""


Withdraw = Callable[[str, Envelope], None]
"""A client's ``notifications/cancelled`` in the session of this key: its request is given up, if there is one."""

Unfold = Callable[[Call], Awaitable[None]]
"""Puts the call that a call stands for in its place: envelope, request and headers. May raise AdapterError."""


class Stage(Protocol):
    """One step. The first stage whose ``ask`` returns a response ends the walk."""

    async def ask(self, call: Call) -> bytes | None:
        """Look at, edit or answer the request. Bytes are a whole JSON-RPC response; None goes on. Raises Withdrawn."""

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The final response as it came, to the response as it shall leave."""


Stages = tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages that each request walks.

    ``named`` goes by method and the name in its params, ``methods`` by the method alone, ``prefixed`` by method and
    how the name begins; the first that has something counts. ``announce`` edits the response to ``initialize``,
    which walks no stages, so that it tells what the adapter adds. ``unfold`` comes before all else, also the gate.
    ``around`` gives the stages around those of a tool, by its name; ``withdraw`` tells them of clients that
    gave up. ``refuses``: the gate may keep a tool from being listed or called.
    """

    named: Mapping[tuple[str, str | None], Stages] = field(default_factory=dict)
    methods: Mapping[str, Stages] = field(default_factory=dict)
    prefixed: Mapping[str, Mapping[str, Stages]] = field(default_factory=dict)
    announce: Callable[[bytes], bytes] | None = None
    gate: Gate | None = None
    unfold: Unfold | None = None
    around: Callable[[str], Stages] | None = None
    withdraw: Withdraw | None = None
    refuses: bool = False

    @property
    def empty(self) -> bool:
        """Tell whether every request is piped."""
        return not (self.named or self.methods or self.prefixed or self.gate or self.around)

    @property
    def guards(self) -> bool:
        """Tell whether a call may be refused or changed: then its upstream has to read it as it was read here."""
        return bool(self.refuses or self.named or self.prefixed or self.around or self.unfold)

    def stages_for(self, envelope: Envelope) -> Stages:
        method, name = envelope.method, envelope.name
        found = self.named.get((method, name)) if self.named else None
        if found is None and self.methods:
            found = self.methods.get(method)
        if found is None and name is not None and method in self.prefixed:
            prefixes = self.prefixed[method]
            found = next((prefixes[prefix] for prefix in prefixes if name.startswith(prefix)), None)
        found = found or ()
        if self.around is not None and method == "tools/call" and name is not None:
            return (*self.around(name), *found)
        return found


async def walk_request(stages: Stages, call: Call) -> bytes | None:
    """Run the request through the stages; a stage's own response is what is returned, else None."""
    for number, stage in enumerate(stages):
        response = await stage.ask(call)
        if response is not None:
            return await walk_response(stages[:number], call, response)
    return None


async def walk_response(stages: Sequence[Stage], call: Call, response: bytes) -> bytes:
    """Run the final response through the stages, the last one first."""
    for stage in reversed(stages):
        response = await stage.answer(call, response)
    return response


def finish(call: Call) -> None:
    """The exchange is over. Harmless when said twice."""
    while call.deferred:
        call.deferred.pop()()
