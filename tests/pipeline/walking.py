"""One stage at a time: calls to walk through it, what is behind it, and the user's code that it asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter import log
from adapter.pipeline.call import AuthRequest, Context, PlannedCall, PlanStage, Tell
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.validation_stage import CheckOwner, CheckVerdict, SchemaChecks
from adapter.rules.access.principals import NOBODY
from adapter.rules.results.outcomes import as_result

LOG = log.get_logger("test")


class Nowhere:
    """An Elsewhere where nothing is judged: what is checked in these tests is little."""

    async def judge(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        raise AssertionError(f"a check of {owner} is too much for the event loop")


CHECKS = SchemaChecks(Nowhere(), LOG)


def a_call(**arguments: Any) -> PlannedCall:
    """A call of ``users.get`` with these arguments."""
    context = Context.of(AuthRequest.of("users", "get-user", NOBODY))
    return PlannedCall("users", "get-user", arguments, _never, context)


async def _never(call: PlannedCall) -> Outcome:
    raise AssertionError(f"{call.tool} is executed by what stands behind the stage")


def answered(value: Any) -> Outcome:
    """What a hosted tool that returns ``value`` leads to."""
    return Outcome.of(as_result(value))


@dataclass
class Behind:
    """The rest of the plan: answers ``outcome`` or raises it, and keeps what it was given."""

    outcome: Outcome | BaseException = field(default_factory=lambda: answered("done"))
    arguments: list[Mapping[str, Any]] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        return bool(self.arguments)

    async def __call__(self, call: PlannedCall) -> Outcome:
        self.arguments.append(call.arguments)
        self.contexts.append(call.context)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


async def refused(stage: PlanStage, call: PlannedCall, behind: Behind) -> StageFailed:
    """The failure with which a stage ends a call."""
    try:
        outcome = await stage(call, behind)
    except StageFailed as failed:
        return failed
    raise AssertionError(f"the call was answered: {outcome}")


@dataclass
class Scripted:
    """A Code that is a lambda of payload and context; what it is given is kept."""

    work: Callable[[Any, Any], Any]
    reference: str = "code.py"
    payloads: list[Any] = field(default_factory=list)

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        self.payloads.append(payload)
        return self.work(payload, context)


class Written:
    """A Function that is written in a test."""

    reference = "code.py#function"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        self.parameters = len(inspect.signature(function).parameters)

    async def __call__(self, *arguments: Any) -> Any:
        value = self.plain(*arguments)
        return await value if inspect.isawaitable(value) else value


def raising(error: BaseException) -> Callable[..., Any]:
    """A function of anything that fails."""

    def function(*arguments: Any) -> Any:
        raise error

    return function
