"""How a call of a hosted tool fails: with a sentence for the caller, and the stage at which it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from adapter.hosted.tools import ToolAnswer
from adapter.rules import refusals
from adapter.rules.inputs import Input, InputsRefused, Problem
from adapter.rules.outcomes import text_block

Stage = Literal["validation", "environment", "substitution", "handler", "connector"]
Reason = Literal["timeout"]

STAGE_FAILED = -32000
"""The code of every stage that fails."""

ERROR_KEY = "adapter/error"
"""The member of a result's ``_meta`` that names the stage and the code."""


class StageFailed(Exception):
    """A stage ended the call; ``str`` is what the caller reads."""

    def __init__(self, stage: Stage, text: str, reason: Reason | None = None) -> None:
        super().__init__(text)
        self.stage = stage
        self.reason = reason

    def answer(self) -> ToolAnswer:
        """The result of the call."""
        error: dict[str, Any] = {"stage": self.stage, "code": STAGE_FAILED}
        if self.reason is not None:
            error["reason"] = self.reason
        return ToolAnswer([text_block(str(self))], is_error=True, meta={ERROR_KEY: error})


def unfit(tool: str, inputs: Mapping[str, Input], refused: InputsRefused) -> StageFailed:
    """The arguments are not what the tool declares; the caller reads all that is wrong with them at once."""
    (block,) = refusals.invalid(tool, _issues(inputs, refused)).content
    return StageFailed("validation", str(block["text"]))


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
