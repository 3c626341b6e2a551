"""The road of a request: the stages that it walks, in the order in which things happen.

``ORDER`` names the slots of each method that is read. A feature contributes a stage to a slot for a method, and for one
name (a tool, a URI) or all names; ``StageTable`` puts these into one tuple for each method and name. The request
walks the tuple from the first stage to the last and goes to the upstream; the response walks back. A method or name
without a stage is piped.

There are three kinds of stages:

* A *gate* decides, before anything is read, whether a call goes on, or which call takes its place. It may say in
  advance that it has nothing to do (``skips``), and a call that no stage stands behind is piped all the same.
* A *byte stage* sees the request and the response as bytes and edits spans of them. What it has to remember between the
  two is a note of the call. Notes are JSON, so they survive a restart of the adapter, as a file that a tool is still
  writing has to.
* A *plan stage* stands around a call: it is given values, calls the rest of its plan as a function, and may call code
  of the user's. Such a function cannot survive a restart. All plan stages of a tool are one stage here, in the slot
  ``plan`` (``call/planned.py``), and stand around a hosted tool in the same way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from time import time
from typing import Any, NamedTuple, Protocol

from adapter.errors import AnswerTooLarge
from adapter.relay.background import own_turn
from adapter.relay.replies import LARGE, LONG, long_value
from adapter.rules.access.principals import NOBODY, Caller, Scope
from adapter.wire.envelope import Envelope, parse
from adapter.wire.eras import Era
from adapter.wire.spans import Edit, MessagePieces, edit, find

TOOL_CALL = ("unfold", "access", "guard", "large", "plan", "own", "rounds", "uploads", "artifacts")
"""The slots of ``tools/call``: code mode puts the call that is meant in place; the access rules decide about its
caller; the guard judges it; what is too large of its result becomes artifacts; its plan stands around all that follows;
a tool of the adapter's own answers; the rounds of one call are joined; handles become files; the tool is told where to
write, and what it wrote is captured."""

TOOL_LIST = ("access", "own", "guard")
"""The slots of ``tools/list``: the access rules leave out what the caller may not see; code mode answers by itself; the
guard shapes and judges what the upstream answered."""

ORDER: Mapping[str, tuple[str, ...]] = {
    "initialize": ("announce",),
    "server/discover": ("announce",),
    "tools/list": TOOL_LIST,
    "tools/call": TOOL_CALL,
    "notifications/cancelled": ("plan",),
    "tasks/list": ("access",),
    "tasks/get": ("large", "redact"),
    "tasks/result": ("large", "redact"),
    "resources/list": ("access", "artifacts"),
    "resources/templates/list": ("access", "artifacts"),
    "resources/read": ("access", "artifacts"),
    "resources/subscribe": ("access",),
    "resources/unsubscribe": ("access",),
    "prompts/list": ("access",),
    "prompts/get": ("access",),
    "completion/complete": ("access",),
    "subscriptions/listen": ("access", "artifacts"),
}
"""The slots of each method that is read, in running order. Any other method is piped."""

Fetch = Callable[[str, dict[str, Any]], Awaitable[bytes | None]]
"""A request of the adapter's own in the same upstream session: method and params, to the JSON-RPC response."""


Pieces = AsyncGenerator[bytes, None]


class CallOrigin(NamedTuple):
    """The place that a call comes from: ``session`` is the key of its session, if any, ``caller`` made the request.

    ``base`` is the URL under which the client knows the adapter, without a slash at its end. ``is_new``: this process
    opened the session, and no other one uses it.
    """

    server: str
    era: Era = Era.LEGACY
    session: str | None = None
    caller: Caller = NOBODY
    base: str = ""
    is_new: bool = False


@dataclass(slots=True)
class Call:
    """A request on its way through the stages, and what they want changed of it.

    ``request`` is the message as it will go upstream, with ``headers``. ``fetch`` is None for a call of an earlier
    process. ``notes`` is where a stage keeps what it must remember from the request to the response; it must be JSON,
    since a parked call outlives the process. Its ``walk``, of a planned call, does not. It ``began`` in Unix seconds.

    ``came`` is the response as it came, and the JSON value of it, once that was parsed.

    Stages say of the answer: ``withheld`` is what a text of the upstream's other messages on the call's stream becomes,
    None where they pass as they come. ``guarded``: of what the upstream answers nothing leaves that has not passed the
    stages, also where it cannot be read. ``heard`` are changes of the upstream's other messages on that stream, and
    ``joined`` puts words of a stage's own between its events. ``speak`` sends an event before the answer of a stage's
    own; None where the client hears none.
    """

    origin: CallOrigin
    scope: Scope
    envelope: Envelope
    request: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    fetch: Fetch | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    walk: object | None = field(default=None, init=False)
    began: float = field(default_factory=time, init=False)
    deferred: list[Callable[[], None]] = field(default_factory=list, init=False)
    came: tuple[bytes, Any] | None = field(default=None, init=False)
    withheld: Callable[[str], str] | None = field(default=None, init=False)
    guarded: bool = field(default=False, init=False)
    heard: list[Callable[[bytes], bytes]] = field(default_factory=list, init=False)
    joined: Callable[[Pieces], Pieces] | None = field(default=None, init=False)
    speak: Callable[[bytes], None] | None = field(default=None, init=False)

    @property
    def modern(self) -> bool:
        return self.origin.era is Era.MODERN

    def parsed(self, response: bytes) -> Any:
        """The JSON value of a response. Raises BadJson, and AnswerTooLarge where it has too many values."""
        if self.came is None or self.came[0] is not response:
            return parse(response)
        if isinstance(self.came[1], AnswerTooLarge):
            raise self.came[1]
        return self.came[1]

    def without_request(self) -> Call:
        """Copy it for what is asked beside it, and may take longer than the call: its message is not kept so long."""
        # Not dataclasses.replace: every session asks so once, and that would look at each field.
        return Call(self.origin, self.scope, self.envelope, b"", self.headers, self.fetch, self.notes)

    def change(self, *edits: Edit) -> None:
        """Edit the request; everything outside the edited spans keeps its bytes."""
        self.request = edit(self.request, edits)

    def defer(self, release: Callable[[], None]) -> None:
        """Have ``release`` called when the exchange is over, whichever way it ended."""
        self.deferred.append(release)


class Withdrawn(Exception):
    """The client gave up its request before anything of it went upstream; nobody waits for an answer."""


class Gate(Protocol):
    """Decides whether a call goes on, or which call takes its place, before any stage reads it."""

    def skips(self, scope_id: str, name: str | None) -> bool:  # noqa: ARG002 (heirs read them)
        """Tell whether the gate has nothing to do for this name in this scope."""
        return False

    async def admit(self, call: Call) -> None:
        """Judge the call, or put another envelope, request and headers in its place.

        Raises an AdapterError for a call that must not go on.
        """


class Stage(Protocol):
    """One step of the road. The first stage whose ``ask`` returns a response ends the walk."""

    async def ask(self, call: Call) -> bytes | None:  # noqa: ARG002 (heirs read it)
        """Look at, edit or answer the request. Bytes are a whole JSON-RPC response; None goes on. Raises Withdrawn."""
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 (heirs read it)
        """The final response as it came, to the response as it shall leave."""
        return response


class OccasionalStage(Stage):
    """A stage that concerns few of the calls of its method."""

    @abstractmethod
    async def passes(self, call: Call) -> bool:
        """Tell whether it leaves this call and its answer as they are."""


class CallerGate(Gate, Protocol):
    """The gate that decides about callers, and about what they hear."""

    def rights_of(self, caller: Caller) -> object:
        """A value that is equal for callers with the same rights."""

    def heard(self, caller: Caller, data: bytes) -> bytes:
        """The part of a message on a GET stream that may leave."""

    def aside(self, caller: Caller, data: bytes) -> bytes:
        """The part of a message beside the answer to a call that may leave."""


class CallGuard(Gate, Stage, Protocol):
    """The gate that knows the tools of the upstream, and the stage of its lists. It judges a call again when the
    upstream began anew.
    """

    def repeatable(self, scope_id: str, name: str | None) -> bool:
        """Tell whether calling a tool twice does no more than once, by the definition that this scope sees now."""

    def changed(self) -> None:
        """Note that the upstream began anew, so its tools may be others now."""

    async def close(self) -> None:
        """Stop reading the tools of the upstream."""

    def listener(self) -> Callable[[bytes], None]:
        """Return a function that is given each chunk of one stream of the upstream."""

    async def list_again(self, call: Call, response: MessagePieces) -> tuple[bytes | memoryview, ...] | None:
        """As ``answer`` of a Stage, of the response to this call if an equal list was read before; None for any other
        response. What is returned is in pieces.
        """


Stages = tuple[Stage, ...]
Gates = tuple[Gate, ...]


CALL = "relay call"
"""The note of a planned call that holds the relay's own call."""


class ToolPlans(Gate, Protocol):
    """The stages in the slot ``plan``, which are made when a tool is first called.

    As a gate it hears of calls that a client gave up.
    """

    def of(self, tool: str, behind: Stages) -> Stages:
        """The stages of a tool: its plan, if it has one, and the stages ``behind`` it. Raises AdapterError."""


class LargeToolResults(Protocol):
    """The stages in the slot ``large``, by the names of tools."""

    def of(self, tool: str, behind: Stages) -> Stages:
        """The stages of a tool: its own in this slot, if it has one, and the stages ``behind`` it."""


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
        if len(response) > LARGE:
            # Each may take some milliseconds for a megabyte.
            await own_turn()
            if len(response) > LONG and call.came is not None and call.came[0] is not response:
                try:
                    call.came = response, await long_value(response)
                except AnswerTooLarge as error:
                    call.came = response, error
        response = await stage.answer(call, response)
    return response


def finish(call: Call) -> None:
    """The exchange is over. Harmless when said twice."""
    while call.deferred:
        call.deferred.pop()()


def asked_cursor(request: bytes) -> str | None:
    """The cursor of the page of a list that a request asks for; None: the first page."""
    span = find(request, ("params", "cursor"))
    cursor = parse(request[slice(*span)]) if span is not None else None
    return cursor if isinstance(cursor, str) else None


class StageEntry(NamedTuple):
    """A stage in a slot of a method: for one name, for the names that begin with ``prefix``, or for all names.

    ``speaks``: the stage answers by itself, and may take its time and tell of it until then.
    """

    method: str
    slot: str
    stage: Stage
    name: str | None = None
    prefix: str | None = None
    speaks: bool = False


@dataclass(eq=False, repr=False)
class StageTable:
    """The stages of one server's requests.

    ``unfold``, ``access`` and ``guard`` are gates of every ``tools/call``, ``plans`` has the plans around tools, and
    ``large`` the stages around those.
    ``refuses``: the guard may keep a tool from being listed or called.
    """

    entries: Sequence[StageEntry] = ()
    _: KW_ONLY
    unfold: Gate | None = None
    access: CallerGate | None = None
    guard: CallGuard | None = None
    plans: ToolPlans | None = None
    refuses: bool = False
    large: LargeToolResults | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.refuses = self.refuses or self.access is not None
        self.gates = _gates({"unfold": self.unfold, "access": self.access, "guard": self.guard}, self.plans)
        self._methods = {each.method for each in self.entries} | (
            {"tools/call"} if self.plans is not None else set()
        )
        keys = {(each.method, name) for each in self.entries for name in (None, each.name)}
        self._rows: dict[tuple[str, str | None], Stages] = {
            (method, name): _in_order(
                method, [each for each in self.entries if _concerns(each, method, name)]
            )
            for method, name in keys
        }
        self._of_prefix: dict[str, dict[str, Stages]] = {}
        for each in self.entries:
            if each.prefix is not None:
                row = [other for other in self.entries if _concerns(other, each.method, None)]
                self._of_prefix.setdefault(each.method, {})[each.prefix] = _in_order(
                    each.method, [each, *row]
                )
        self.requests = frozenset(
            {"tools/call"} | ({each.method for each in self.entries} if self.access else set())
        )
        """The methods that are refused without an id: nobody judges what has none, and an upstream might do it."""
        reads_calls = any(each.method == "tools/call" for each in self.entries)
        # An upstream has to read a call as it was read here, where that may be refused or changed.
        self.guards = self.refuses or self.unfold is not None or self.plans is not None or reads_calls
        self.speaking = frozenset(each.name for each in self.entries if each.speaks)
        """The adapter's own tools that may tell of their progress."""
        self.empty = not (self.entries or self.gates)
        """Every request is piped."""

    def put_first(self, methods: Iterable[str], gate: Gate) -> None:
        """Have a gate judge these requests before all others do. It concerns the upstream, and no tool of it."""
        self.gates = {**self.gates, **{each: (gate, *self.gates.get(each, ())) for each in methods}}
        self.guards, self.empty = True, False

    @property
    def planned(self) -> bool:
        """Tell whether tools may have plans around them."""
        return self.plans is not None

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that have stages by their names, the adapter's own among them."""
        calls = (each for each in self.entries if each.method == "tools/call")
        return frozenset(each.name for each in calls if each.name is not None)

    @property
    def upstream_tools(self) -> frozenset[str]:
        """The tools of the upstream that have stages by their names, so that it has to list them."""
        calls = (each for each in self.entries if each.method == "tools/call" and each.slot != "own")
        return frozenset(each.name for each in calls if each.name is not None)

    def stages_for(self, envelope: Envelope) -> Stages:
        """The stages of a request behind its gates, in running order. Raises AdapterError for a tool without a plan
        that can be made.
        """
        method, name = envelope.method, envelope.name
        if method not in self._methods:
            return ()
        stages = self._rows.get((method, name))
        if stages is None and name is not None and method in self._of_prefix:
            rows = self._of_prefix[method]
            stages = next((rows[prefix] for prefix in rows if name.startswith(prefix)), None)
        if stages is None:
            stages = self._rows.get((method, None), ())
        if method != "tools/call" or name is None:
            return stages
        if self.plans is not None:
            stages = self.plans.of(name, stages)
        return stages if self.large is None else self.large.of(name, stages)


def _concerns(entry: StageEntry, method: str, name: str | None) -> bool:
    return entry.method == method and entry.prefix is None and entry.name in (None, name)


def _gates(of_calls: dict[str, Gate | None], plans: ToolPlans | None) -> dict[str, Gates]:
    """The gates by the method that they stand before, in running order."""
    calls = tuple(gate for slot in TOOL_CALL if (gate := of_calls.get(slot)) is not None)
    gates: dict[str, Gates] = {"tools/call": calls} if calls else {}
    if plans is not None:
        gates["notifications/cancelled"] = (plans,)
    return gates


def _in_order(method: str, entries: list[StageEntry]) -> Stages:
    """The stages of the entries in the order of their slots. Raises KeyError for a method or slot without a place."""
    places = {slot: place for place, slot in enumerate(ORDER[method])}
    return tuple(each.stage for each in sorted(entries, key=lambda each: places[each.slot]))
