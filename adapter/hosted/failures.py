"""How a call of a hosted tool fails whose arguments are not what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from adapter.pipeline.failures import StageFailed
from adapter.rules import refusals
from adapter.rules.inputs import Input, InputsRefused, Problem


def unfit(tool: str, inputs: Mapping[str, Input], refused: InputsRefused) -> StageFailed:
    """The arguments are not what the tool declares; the caller reads all that is wrong with them at once."""
    return StageFailed.worded("validation", str(refused), refusals.invalid(tool, _issues(inputs, refused)))


def _issues(inputs: Mapping[str, Input], refused: InputsRefused) -> Iterator[refusals.Issue]:
    for problem in refused.problems:
        if problem.field in inputs:
            yield _issue(inputs[problem.field], problem)
    if unknown := [problem.field for problem in refused.problems if problem.field not in inputs]:
        yield refusals.unrecognized((), unknown)


def _issue(declared: Input, problem: Problem) -> refusals.Issue:
    path, expected = (problem.field,), problem.expected or ""
    # The rule says it for models that read sentences; what is missing has a form of its own.
    if problem.text.startswith("required input"):
        return refusals.missing(path, expected)
    if declared.enum is not None:
        return refusals.not_an_option(path, problem.sent, declared.enum)
    return refusals.Issue(path, problem.text, problem.sent, f"Expected type: {expected}.")
