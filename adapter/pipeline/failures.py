"""The failure of a planned call: a sentence for the caller, and the stage at which the call ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapter.pipeline.outcome import Outcome
from adapter.rules.results.exposure import Expose
from adapter.rules.results.outcomes import Result, text_block

Stage = Literal[
    "resolve",
    "context",
    "auth",
    "limits",
    "input_transform",
    "validation",
    "environment",
    "substitution",
    "middleware",
    "handler",
    "connector",
    "output_transform",
    "presenter",
]
Reason = Literal["timeout", "cancelled", "busy", "rate"]
Mode = Literal["result", "jsonrpc"]

STAGE_FAILED = -32000
"""The code of every stage that fails."""

DOING: Mapping[Stage, str] = {
    "context": "context unavailable",
    "input_transform": "input transform failed",
    "middleware": "middleware failed",
    "handler": "handler script failed",
    "output_transform": "output transform failed",
}
"""What the sentences of stages with the user's code begin with."""

ERROR_KEY = "adapter/error"
"""The member of a result's ``_meta`` that names the stage and the code."""


class StageFailed(Exception):
    """A stage ended the call; ``str`` is the plain sentence that the caller reads.

    ``text`` is what stands in the result instead, where that has a form of its own; ``retry_after`` in seconds.
    """

    def __init__(
        self,
        stage: Stage,
        sentence: str,
        reason: Reason | None = None,
        *,
        text: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(sentence)
        self.stage = stage
        self.reason = reason
        self.text = sentence if text is None else text
        self.retry_after = retry_after

    @classmethod
    def worded(cls, stage: Stage, sentence: str, worded: Result, reason: Reason | None = None) -> StageFailed:
        """A failure that a result says in one of its envelopes."""
        text = str(worded.content[0]["text"])
        return cls(stage, sentence, reason, text=text, retry_after=worded.retry_after)

    def meta(self) -> dict[str, Any]:
        """The part of the failure that programs read."""
        error: dict[str, Any] = {"stage": self.stage, "code": STAGE_FAILED}
        if self.reason is not None:
            error["reason"] = self.reason
        if self.retry_after is not None:
            error["retry_after"] = self.retry_after
        return error


class CallRefused(Exception):
    """A call that is answered with a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ToolRejected(Exception):
    """The server of a tool answered with a JSON-RPC error; ``str`` is its message.

    Where no stage makes something of it, it leaves as it came.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """The form of the failures of a tool's stages: ``core.errors`` and what a server or tool says instead."""

    mode: Mode = "result"
    expose: Expose = "message"

    def outcome(self, failed: StageFailed) -> Outcome:
        """The result that tells of a failure. Raises CallRefused in the mode ``jsonrpc``."""
        if self.mode == "jsonrpc":
            raise CallRefused(STAGE_FAILED, str(failed), failed.meta()) from failed
        content = [text_block(failed.text)]
        return Outcome({"content": content, "isError": True, "_meta": {ERROR_KEY: failed.meta()}}, final=True)
