"""The check of a call's arguments against the inputs of its tool; a caller reads all faults at once.

Hosted tools declare inputs, and arguments are coerced into these. Tools of upstreams have a JSON Schema, and
arguments that fit it are passed on exactly as they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import LimitReached
from adapter.pipeline.call import Forward, InThread, PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.schema_checks import STEPS_AT_ONCE, SchemaCheck, SchemaChecks, quickly_written
from adapter.rules.calls.input_schemas import MOST_VALUES, DeclaredInputs, too_long, too_many
from adapter.rules.calls.inputs import Input, InputProblem, InputsRefused
from adapter.rules.last_used import LastUsed
from adapter.rules.presenters.presenters import SELECT
from adapter.rules.results import refusals
from adapter.rules.results.refusals import Issue
from adapter.rules.schema.checker import Fault
from adapter.rules.schema.cost import STEPS, OutOfSteps, SchemaInvalid

SCHEMAS_KEPT = 8
"""Compiled schemas of one tool: it has one, and for a while the one before for those who were pinned to it."""

SchemaOf = Callable[[PlannedCall], Awaitable[Mapping[str, Any] | None]]
"""The JSON Schema of the called tool's arguments, None where it is not known."""


@dataclass(eq=False)
class CoercionStage:
    """A PlanStage: arguments become the values of the declared inputs.

    With ``selects`` the caller may name in ``_select`` the members that it wants to see; the tool never gets that.
    ``in_thread`` runs long checks, in at most ``max_steps``.
    """

    tool: str
    inputs: DeclaredInputs
    selects: bool = field(default=False, kw_only=True)
    max_steps: int = field(default=STEPS, kw_only=True)
    in_thread: InThread = field(default=asyncio.to_thread, kw_only=True)

    def __repr__(self) -> str:
        return f"<CoercionStage of {self.tool!r}: {', '.join(self.inputs.each) or 'no inputs'}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage."""
        arguments, misselected = _select_taken(call) if self.selects else (call.arguments, None)
        try:
            if self.inputs.checker is None:
                values = self.inputs.fitted(arguments)
            else:
                values = await self._checked(arguments)
        except InputsRefused as refused:
            issues = [*_issues(self.inputs.each, refused), *([misselected] if misselected else [])]
            raise _unfit(self.tool, str(refused), issues) from None
        if misselected is not None:
            raise _unfit(self.tool, _sentence(misselected), [misselected])
        call.arguments = values
        return await forward(call)

    async def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.inputs.weight(arguments) > MOST_VALUES:
            raise too_many()
        with contextlib.suppress(OutOfSteps):
            return self.inputs.fitted(arguments, steps=STEPS_AT_ONCE)
        # Others' calls shall not wait for so much.
        check = partial(self.inputs.fitted, arguments, steps=self.max_steps)
        try:
            values: dict[str, Any] = await self.in_thread(check)
        except OutOfSteps:
            raise too_long(self.max_steps) from None
        return values


@dataclass(eq=False)
class ValidationStage:
    """A PlanStage: arguments that are not what the tool's schema says end the call; all others pass as they are.

    ``strict`` also refuses members that the schema does not declare, see compile_schema. Where no schema is known
    everything passes. ``selects`` as for CoercionStage. ``compilations`` is how many schemas were compiled until now.
    """

    tool: str
    schema_of: SchemaOf
    checks: SchemaChecks
    strict: bool = field(default=True, kw_only=True)
    selects: bool = field(default=False, kw_only=True)
    _latest: SchemaCheck | None = field(default=None, init=False)
    _kept: LastUsed[str, SchemaCheck] = field(default_factory=lambda: LastUsed(SCHEMAS_KEPT), init=False)

    def __post_init__(self) -> None:
        self.compilations = 0

    def __repr__(self) -> str:
        return f"<ValidationStage of {self.tool!r}: {len(self._kept)} schemas>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. A schema that nothing can be checked by ends the call too."""
        schema = await self.schema_of(call)
        arguments, misselected = _select_taken(call) if self.selects else (call.arguments, None)
        try:
            faults: Sequence[Fault] = ()
            if schema is not None:
                faults = await self._check(schema, call.server).faults(
                    arguments, call.client.caller.principal
                )
        except SchemaInvalid as invalid:
            raise StageFailed("validation", f"input validation failed: {invalid}") from None
        except LimitReached as busy:
            sentence = f"input validation failed: {busy}"
            raise StageFailed("validation", sentence, "busy", retry_after=busy.retry_after) from None
        issues = [*(fault.issue for fault in faults), *([misselected] if misselected else [])]
        if issues:
            sentence = faults[0].sentence if faults else _sentence(issues[0])
            raise _unfit(self.tool, sentence, issues)
        call.arguments = arguments
        return await forward(call)

    def _check(self, schema: Mapping[str, Any], server: str) -> SchemaCheck:
        """Return the check of a schema, compiled once; most calls come with the very object of the call before."""
        if self._latest is not None and self._latest.schema is schema:
            return self._latest
        digest = _digest(schema)
        check = self._kept.get(digest)
        if check is None:
            check = self.checks.of(schema, server, strict=self.strict)
            self._kept.put(digest, check)
            self.compilations += 1
        check.schema = schema
        self._latest = check
        return check


def _digest(schema: Mapping[str, Any]) -> str:
    # Not of its canonical form, to which names that only look alike are one.
    text = quickly_written(schema)
    return f"{id(schema)}" if text is None else hashlib.sha256(text).hexdigest()


def _select_taken(call: PlannedCall) -> tuple[Mapping[str, Any], Issue | None]:
    """Return the arguments without ``_select``, whose names are noted in the call; null counts as absent.

    The issue is the fault of ``_select``, if it has one.
    """
    if SELECT not in call.arguments:
        return call.arguments, None
    arguments = {name: value for name, value in call.arguments.items() if name != SELECT}
    names = call.arguments[SELECT]
    if names is None:
        return arguments, None
    if not isinstance(names, list | tuple):
        return arguments, refusals.wrong_type((SELECT,), names, "array")
    for position, name in enumerate(names):
        if not isinstance(name, str):
            return arguments, refusals.wrong_type((SELECT, position), name, "string")
    call.select = tuple(names)
    return arguments, None


def _unfit(tool: str, sentence: str, issues: Sequence[Issue]) -> StageFailed:
    return StageFailed.worded("validation", sentence, refusals.invalid(tool, issues))


def _sentence(issue: Issue) -> str:
    return (
        f"input validation failed: validation error for field '{issue.field}': "
        f"type validation failed: {issue.message}"
    )


def _issues(inputs: Mapping[str, Input], refused: InputsRefused) -> Iterator[Issue]:
    for problem in refused.problems:
        if problem.field in inputs:
            yield _issue(inputs[problem.field], problem)
    yield from (fault.issue for fault in refused.faults)
    if unknown := [problem.field for problem in refused.problems if problem.field not in inputs]:
        yield refusals.unrecognized((), unknown)


def _issue(declared: Input, problem: InputProblem) -> Issue:
    path, expected = (problem.field,), problem.expected or ""
    # The rule says it for models that read sentences; what is missing has a form of its own.
    if problem.text.startswith("required input"):
        return refusals.missing(path, expected)
    if declared.enum is not None:
        return refusals.not_an_option(path, problem.sent, declared.enum)
    return Issue(path, problem.text, problem.sent, f"Expected type: {expected}.")
