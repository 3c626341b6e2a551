"""Planned calls of an upstream's tools: a plan is walked by a task that sleeps at its innermost point until the
upstream has answered, so that its stages are the same ones that stand around a hosted tool.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from adapter.errors import LimitReached, ToolUnknown
from adapter.pipeline.call import CallClient, CallTime, PlannedCall
from adapter.pipeline.failures import STAGE_FAILED, CallRefused, Outcome, StageFailed, ToolRejected
from adapter.pipeline.plan import GRACE, ToolPlan
from adapter.relay.call.call_gate import Cancellations
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import CALL, Call, Stage, Stages, Withdrawn
from adapter.rules.results.tool_results import is_task, rpc_result
from adapter.rules.text.unicode import LONGEST_NAME
from adapter.wire.ambiguity import doubt_of_answer
from adapter.wire.envelope import INVALID_PARAMS, dump, error_response, parse
from adapter.wire.names import repeats_a_key
from adapter.wire.spans import Drop, Insert, Replace, edit

TASK = "task"
"""The note of a planned call that says whether its client wants it to run as a task."""

NO_TASK = (
    "This tool cannot run as a task here, because the adapter processes its result. Call it without a task."
)


class Rejected(ToolRejected):
    """With the response that leaves where no stage makes something of it."""

    def __init__(self, error: object, response: bytes) -> None:
        members = error if isinstance(error, dict) else {}
        code, said = members.get("code"), members.get("message")
        super().__init__(
            code if type(code) is int else STAGE_FAILED,
            said if isinstance(said, str) else "The upstream server refused the call.",
        )
        self.response = response


class SuspendedPlan:
    """One plan being walked in a task of its own.

    The stages on both sides of the tool have the call's time together, which stands still while the tool works; then
    they are cancelled. The user's own code is among them, and might never let go.
    """

    def __init__(self, plan: ToolPlan, call: PlannedCall) -> None:
        loop = asyncio.get_running_loop()
        self._plan = plan
        self._call = call
        self._arguments: Mapping[str, Any] | None = None
        self._turn: asyncio.Future[None] = loop.create_future()
        self._answered: asyncio.Future[Outcome] = loop.create_future()
        call.execute = self._execute
        self._left = call.time.seconds
        self._late: Callable[[], Outcome] | None = None
        self._withdrawn = False
        self._task = loop.create_task(plan.walk(call))
        self._task.add_done_callback(self._over)

    async def to_the_tool(self) -> Mapping[str, Any] | Outcome:
        """The arguments that the tool gets, or the outcome if the walk ends before it. Raises as the plan does, and
        Withdrawn."""
        if not self._turn.done():
            await self._in_time()
        if self._withdrawn:
            raise Withdrawn
        if self._late is not None:
            return self._late()
        return self._task.result() if self._arguments is None or self._task.done() else self._arguments

    async def on(self, answer: Outcome | Rejected) -> Outcome:
        """Go on with what the tool answered. Raises as the plan does, and the rejection where no stage caught it."""
        if not self._task.done():
            self._turn = self._task.get_loop().create_future()
            if not self._answered.done():
                if isinstance(answer, Outcome):
                    self._answered.set_result(answer)
                else:
                    self._answered.set_exception(answer)
            await self._in_time()
        return self._task.result() if self._late is None else self._late()

    def withdraw(self) -> None:
        """The client gave the call up: it ends here unless it is the tool's already, who hears of it in its own way."""
        self._call.signal.abort()
        if self._arguments is None and not self._task.done():
            self._withdrawn = True
            self._task.cancel()

    def end(self) -> None:
        """The exchange is over. Harmless when the walk is."""
        self._task.cancel()
        if not self._answered.done():
            self._answered.cancel()

    async def _execute(self, call: PlannedCall) -> Outcome:
        if self._arguments is not None:
            raise RuntimeError("a call goes to its tool once")
        if call.notes.get(TASK) and self._plan.reshapes:
            raise StageFailed("context", NO_TASK)
        self._arguments = call.arguments
        self._move()
        return await self._answered

    async def _in_time(self) -> None:
        """Wait until the walk has come to the next place where it stands still, or its time is over."""
        time, alarm, loop = self._call.time, None, self._task.get_loop()
        if self._left is not None:
            time.until = monotonic() + self._left
        try:
            # Most walks come there in the one turn that their task has now, and need no alarm.
            await asyncio.sleep(0)
            if not (self._turn.done() or self._task.done()):
                if time.until is not None:
                    alarm = loop.call_later(max(0.0, time.until - monotonic()), self._expire)
                await self._turn
        finally:
            if alarm is not None:
                alarm.cancel()
            if time.until is not None:
                self._left, time.until = max(0.0, time.until - monotonic()), None

    def _expire(self) -> None:
        """The time is over: cancel the stages, and wait for them no longer than they may take to clean up."""
        if self._turn.done():
            return
        try:
            outcome = self._plan.overdue(self._call)
        except CallRefused as refused:
            self._late = partial(_raise, refused)
        else:
            if outcome is None:
                return
            self._late = lambda: outcome
        self.end()
        self._task.get_loop().call_later(GRACE, self._move)

    def _over(self, task: asyncio.Task[Outcome]) -> None:
        # The call knows its walk by this alone: both would stay until the collector comes by.
        self._call.execute = _ended
        if not task.cancelled():
            # When the exchange is over nobody asks for it.
            task.exception()
        self._move()

    def _move(self) -> None:
        """The walk is at the tool, or over."""
        if not self._turn.done():
            self._turn.set_result(None)


async def _ended(_: PlannedCall) -> Outcome:
    raise RuntimeError("the walk of this call has ended")


def _raise(refused: CallRefused) -> Outcome:
    raise refused


RESTARTED = "The adapter restarted while this call ran, so its result cannot be shown. Call the tool again."

NO_OBJECT = "The arguments of a tool must be an object."


class Planned(Stage):
    """The stage that walks a tool's plan, one of the ``plans`` of its server."""

    def __init__(self, plan: ToolPlan, plans: Plans) -> None:
        self._plan = plan
        self._plans = plans

    @property
    def idle(self) -> bool:
        """Tell whether nothing is forgotten with the plan."""
        return self._plan.idle

    async def ask(self, call: Call) -> bytes | None:
        """Walk up to the tool itself; its arguments are then as the stages want them."""
        call.guarded = call.guarded or self._plan.reshapes
        await self._plans.mirrors.check(call)
        params = parse(call.request).get("params") or {}
        said = params.get("arguments")
        if said is not None and not isinstance(said, dict):
            # An upstream may be less strict, and would run what no stage has looked at.
            return error_response(call.envelope.id_bytes, INVALID_PARAMS, NO_OBJECT)
        walk = SuspendedPlan(self._plan, self._planned(call, said or {}, params))
        call.walk = walk
        call.defer(partial(self._end, call, walk))
        # One that has reached its tool hears of it by its signal.
        call.defer(self._plans.hear(call, walk.withdraw))
        try:
            arrived = await walk.to_the_tool()
        except CallRefused as refused:
            return error_response(call.envelope.id_bytes, refused.code, str(refused), refused.data)
        if isinstance(arrived, Outcome):
            return rpc_result(call.envelope.id_bytes, _complete(arrived.result, call))
        self._put(call, params, arrived)
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """Walk on with the tool's answer; one that no stage touches leaves as it came."""
        walk = call.walk
        message = call.parsed(response)
        result = message.get("result") if isinstance(message, dict) else None
        if not isinstance(walk, SuspendedPlan) and not self._plan.reshapes:
            return response
        try:
            if not isinstance(walk, SuspendedPlan):
                outcome = self._plan.errors.outcome(StageFailed("context", RESTARTED))
            elif isinstance(result, dict):
                outcome = await walk.on(Outcome(result))
                if self._plan.reshapes and is_task(outcome.result):
                    # Modern servers may make one of any call, and its result would come by none of these stages.
                    outcome = self._plan.errors.outcome(StageFailed("context", NO_TASK))
            else:
                outcome = await walk.on(Rejected(message.get("error"), response))
        except Rejected as rejected:
            return rejected.response
        except CallRefused as refused:
            return error_response(call.envelope.id_bytes, refused.code, str(refused), refused.data)
        if outcome.result is result and not (self._plan.reshapes and doubt_of_answer(response)):
            return response
        # Written anew rather than edited: what no stage has seen stays behind, such as an error beside the result.
        return rpc_result(call.envelope.id_bytes, _complete(outcome.result, call))

    def _end(self, call: Call, walk: SuspendedPlan) -> None:
        walk.end()
        # The walk knows the call: both would stay, with the message, until the collector comes by.
        call.walk = None

    def _planned(self, call: Call, arguments: dict[str, Any], params: Mapping[str, Any]) -> PlannedCall:
        deadline = None if self._plans.timeout is None else call.began + self._plans.timeout
        planned = PlannedCall(
            server=call.origin.server,
            tool=self._plan.tool,
            arguments=arguments,
            execute=_unreached,
            client=CallClient(
                call.origin.caller, call.scope.id, say=partial(self._plans.notifications.say, call.scope)
            ),
            time=CallTime(self._plans.timeout, deadline=deadline),
        )
        planned.continues = not CONTINUING.isdisjoint(params) and any(
            params.get(name) is not None for name in CONTINUING
        )
        planned.notes[CALL] = call
        planned.notes[TASK] = params.get("task") is not None
        return planned

    def _put(self, call: Call, params: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Have the request say what the stages saw and made of it, and its mirrors too."""
        said = params.get("arguments") or {}
        if repeats_a_key(call.request):
            text = dump({**params, "arguments": dict(arguments)})
            call.request = edit(call.request, [Replace(("params",), text)])
        elif arguments is not said and arguments != said:
            text = dump(dict(arguments))
            call.request = edit(
                edit(call.request, [Drop(("params", "arguments"))]), [Insert(("params", "arguments"), text)]
            )
        else:
            return
        self._plans.mirrors.renew(call, said, arguments)


CONTINUING = frozenset(("inputResponses", "requestState", "task"))
"""Members of a call's params that make it more than its arguments: answers to an earlier one's questions, or a task."""


async def _unreached(_: PlannedCall) -> Outcome:
    raise AssertionError("a walk puts its own execution there")


def _complete(result: Mapping[str, Any], call: Call) -> Mapping[str, Any]:
    """A result of the adapter's own, as the client's era has it."""
    return {"resultType": "complete", **result} if call.modern and "resultType" not in result else result


PLANS = 1024
"""Tools of one server whose compiled plan is kept; names come from clients."""

BUSY_PLANS = 16 * PLANS
"""The same of plans that count calls, which would be forgotten with them."""

_LOOKED_AT = 4
"""Plans that are looked at to find one that can be let go of: more than come, so that none pile up."""


@dataclass(eq=False)
class Plans(Cancellations):
    """The plans of one server's tools, compiled when they are first called. ``compiled`` is None for a tool without.

    A tool whose plan is empty is called as one without a plan. ``timeout`` is how many seconds the stages on both sides
    of the upstream may take together; ``before`` are the stages of some tools that stand before their plans.
    """

    compiled: Callable[[str], ToolPlan | None]
    mirrors: ParamHeaders
    notifications: Notifications
    timeout: float | None
    before: Mapping[str, Stage] = field(default_factory=dict)
    _stages: OrderedDict[str, tuple[Planned | None, Stages]] = field(default_factory=OrderedDict, init=False)

    def __repr__(self) -> str:
        return f"<Plans of {len(self._stages)} tools>"

    def __len__(self) -> int:
        return len(self._stages)

    def of(self, tool: str, behind: Stages = ()) -> Stages:
        """The stages of a tool: its plan, if it has one, and the stages ``behind`` it, which are always the same.

        Raises LimitReached, and ToolUnknown for a name that is too long to be kept.
        """
        if len(tool) > LONGEST_NAME:
            raise ToolUnknown(f"The name of a tool may have at most {LONGEST_NAME} characters.")
        kept = self._stages.get(tool)
        if kept is None:
            if len(self._stages) >= PLANS:
                self._make_room()
            plan = self.compiled(tool)
            planned = None if plan is None or plan.is_empty else Planned(plan, self)
            first = (self.before[tool],) if tool in self.before else ()
            kept = self._stages[tool] = planned, behind if planned is None else (*first, planned, *behind)
        return kept[1]

    def _make_room(self) -> None:
        """Let go of old plans that count nothing: who calls many names must not have their limits begin anew."""
        for _ in range(_LOOKED_AT):
            tool, kept = self._stages.popitem(last=False)
            if kept[0] is not None and not kept[0].idle:
                self._stages[tool] = kept
        if len(self._stages) >= BUSY_PLANS:
            raise LimitReached("Too many different tools were called recently; try again later.")
