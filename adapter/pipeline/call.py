"""A tool call on its way through its plan, and the context of it that the user's code may know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from adapter.errors import BadJson
from adapter.pipeline.failures import Outcome, Stage, StageFailed
from adapter.rules.access.principals import NOBODY, Caller
from adapter.rules.text.json_values import NotJson, compact
from adapter.wire.envelope import parse

_BARRED = frozenset(("__proto__", "constructor", "prototype"))


class Signal:
    """Tells any thread whether the call was given up: by its client, its deadline or the end of the adapter."""

    def __init__(self) -> None:
        self._aborted = False
        self._waiting: asyncio.Event | None = None

    @property
    def aborted(self) -> bool:
        return self._aborted

    def abort(self) -> None:
        """Give the call up; on the event loop only. Harmless when done twice."""
        self._aborted = True
        if self._waiting is not None:
            self._waiting.set()

    async def wait(self) -> None:
        """Return when the call is given up."""
        if self._waiting is None:
            self._waiting = asyncio.Event()
        if self._aborted:
            self._waiting.set()
        await self._waiting.wait()


class Headers(dict[str, str]):
    """The header fields of a caller, by name in any case, without the adapter's own token and the session id. Its
    keys are in lower case.
    """

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller.told_fields())

    def __repr__(self) -> str:
        # Values are credentials more often than not.
        return f"<Headers: {', '.join(self)}>"

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class View(dict[str, Any]):
    """A mapping whose members are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} here") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class AuthRequest(View):
    """The request behind a call: ``tool, server, entrance, headers, principal``."""

    @classmethod
    def of(cls, server: str, tool: str, caller: Caller) -> AuthRequest:
        return cls(
            tool=tool,
            server=server,
            entrance=caller.entrance,
            headers=Headers(caller),
            principal=caller.principal,
        )


class Context(View):
    """``request`` (AuthRequest), ``signal``, ``deadline`` (Unix seconds or None), ``trace_id``, and what a context
    factory, an auth plugin (``user``) and middleware add."""

    @classmethod
    def of(cls, request: AuthRequest, deadline: float | None = None, signal: Signal | None = None) -> Context:
        return cls(request=request, signal=signal or Signal(), deadline=deadline, trace_id=None)

    @property
    def given_up(self) -> Signal:
        """The signal of the call, even if the user's code has put something else there."""
        signal = self.get("signal")
        return signal if isinstance(signal, Signal) else Signal()

    def merged(self, members: Mapping[str, Any]) -> Context:
        """Return a new view with these members too, except names with a meaning for objects of JavaScript."""
        added = {
            name: value for name, value in members.items() if isinstance(name, str) and name not in _BARRED
        }
        return Context({**self, **added})


SafeStage = Literal["state_sync"]
"""The stage that a call cannot fail at: the tool has done its work."""


class ProgressReporter(Protocol):
    """Tells the client how far a call is.

    A client that did not ask is told nothing, and progress is told only when it grew. It waits until the client has
    read the progress before.
    """

    async def __call__(self, percent: float, message: str | None = None) -> None:
        """``percent`` of 100, and a sentence."""


async def tell_nobody(percent: float, message: str | None = None) -> None:
    """A Progress where nobody asked."""


Say = Callable[[str, Mapping[str, Any]], None]
"""A notification to the call's client outside of the call, where it listens: method and params."""


def say_nothing(method: str, params: Mapping[str, Any]) -> None:
    """A Say where nobody listens."""


@dataclass(slots=True)
class CallTime:
    """The time that the stages of a call may take, and how far it is.

    They may take ``seconds``, which end at ``until`` on the monotonic clock; ``until`` is None while no time is
    counted. ``deadline`` is the same moment in Unix seconds, for the user's code to read. ``at`` is the stage that the
    call has reached, ``walking`` says that it has begun, ``overdue`` is the failure of a call whose time has ended.
    """

    seconds: float | None = None
    until: float | None = None
    deadline: float | None = None
    at: Stage | SafeStage = field(default="resolve", init=False)
    walking: bool = field(default=False, init=False)
    overdue: StageFailed | None = field(default=None, init=False)


class CallClient(NamedTuple):
    """The client of a call. ``session`` tells callers of one principal apart, None where there are no sessions.

    ``progress`` tells it how far the call is; ``say`` reaches it outside of the call, where it listens.
    """

    caller: Caller = NOBODY
    session: str | None = None
    progress: ProgressReporter = tell_nobody
    say: Say = say_nothing


SOMEBODY = CallClient()
"""A client of which nothing is known."""


@dataclass(slots=True)
class PlannedCall:
    """One ``tools/call``. Stages change ``arguments`` by putting another mapping there, never in place.

    ``tool`` is the name as clients see it. ``execute`` does the work at the innermost point of the plan. ``given`` is
    the context where there is one already. Stages note: ``identity``, the caller that the tool's own check found;
    ``select``, the members of the data that the caller wants to see. ``continues``: the call is more than its
    arguments, as it answers a question of the tool or is to run as a task.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    execute: Callable[[PlannedCall], Awaitable[Outcome]]
    given: Context | None = None
    client: CallClient = SOMEBODY
    time: CallTime = field(default_factory=CallTime)
    identity: Any = field(default=None, init=False)
    select: tuple[str, ...] | None = field(default=None, init=False)
    continues: bool = field(default=False, init=False)
    notes: dict[str, Any] = field(default_factory=dict, init=False)
    _signal: Signal | None = field(default=None, init=False)

    @property
    def signal(self) -> Signal:
        """The signal of the call, which stays the same one; made on first use."""
        if self._signal is None:
            self._signal = Signal() if self.given is None else self.given.given_up
        return self._signal

    @property
    def context(self) -> Context:
        """The part of the call that the user's code may know; made on first use, as most calls never need it."""
        if self.given is None:
            request = AuthRequest.of(self.server, self.tool, self.client.caller)
            self.given = Context.of(request, self.time.deadline, self.signal)
        return self.given

    @context.setter
    def context(self, context: Context) -> None:
        self.given = context


Forward = Callable[[PlannedCall], Awaitable[Outcome]]
"""The rest of a plan, seen from one of its stages."""


class PlanStage(Protocol):
    """One step around all steps behind it. A stage that does not call ``forward`` ends the walk."""

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """Raises StageFailed when this stage refuses or fails."""


# --- the user's code ------------------------------------------------------------------------------------------

Tell = Callable[[float, str | None], Awaitable[None]]
"""Told of the code's progress: percent of 100, and a sentence or None."""


InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a job in a thread, and leaves it there when its caller is cancelled. Raises what the job raises."""


class Code(Protocol):
    """A script that is given a payload: a mapper or a handler, in process or in a process of its own."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """Return what the script returns, within ``timeout`` seconds.

        Raises TimeoutError when the script was given up, ToolUserError, and whatever else the code raises. If the
        caller is cancelled, the code is cancelled too, as far as that is possible.
        """


class Function(Protocol):
    """A function of the user in this process."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    @property
    def parameters(self) -> int:
        """The number of arguments it takes by position."""

    @property
    def plain(self) -> Callable[..., Any]:
        """The bare function, for those who call it directly."""

    async def __call__(self, *arguments: Any) -> Any:
        """Return what the function returns: if async, it is awaited; else it runs in a thread under the caller's
        context variables.

        Raises whatever the function raises.
        """


def shown(value: Any) -> Any:
    """Return a copy of a value, as JSON, for the user's code: changes in it change nothing here.

    Raises NotJson.
    """
    try:
        return parse(compact(value).encode())
    except BadJson:
        raise NotJson("The value is nested too deeply.") from None
