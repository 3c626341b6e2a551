"""The failure of a planned call: a sentence for the caller, and the stage at which the call ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from adapter.rules.results.blocks import NO_BLOCKS, Blocks
from adapter.rules.results.outcomes import ERROR_KEY, NOTHING, Result, payload, text_block
from adapter.rules.results.refusals import Expose, RefusalWords


class Unread:
    """Data that ``make`` reads when it is needed; most calls end without that."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call. ``result`` has the members of a CallToolResult, for an upstream as they came; nobody
    changes it.

    ``data`` is the value that the content was written from, NOTHING if there is none or it is unknown; it may be
    Unread, so use ``payload``. ``blocks`` are the blocks of the content that are not data. ``final``: a stage
    answered instead of the tool, so mappers and presenters do not change the answer.
    """

    result: Mapping[str, Any]
    data: Any = NOTHING
    blocks: Blocks = NO_BLOCKS
    final: bool = False

    @classmethod
    def of(cls, result: Result) -> Outcome:
        """The outcome of what a tool's code returned."""
        return cls(result.wire(), result.data, result.blocks)

    def as_result(self) -> dict[str, Any]:
        """The members of the JSON-RPC result."""
        return dict(self.result)

    @property
    def is_error(self) -> bool:
        return self.result.get("isError") is True

    @property
    def succeeded(self) -> bool:
        """Tell whether there is a complete result of a call that did not fail; a task or a question is not one."""
        complete = self.result.get("resultType") in (None, "complete")
        task = isinstance(self.result.get("task"), dict) and "content" not in self.result
        return complete and not task and not self.is_error

    @property
    def shapable(self) -> bool:
        """Tell whether there is data for mappers, presenters and other stages that work on a tool's data."""
        return self.succeeded and not self.final

    @property
    def payload(self) -> Any:
        """The data that mappers and presenters see of the outcome."""
        if self.data is NOTHING:
            return payload(self.result)
        return self.data.make() if isinstance(self.data, Unread) else self.data

    def written(self, result: Result) -> Outcome:
        """Return the outcome with new content of its data; other members of the result stay."""
        rest = {
            key: value
            for key, value in self.result.items()
            if key not in ("content", "structuredContent", "isError")
        }
        return Outcome({**rest, **result.wire()}, result.data, result.blocks)

    def with_content(self, content: list[Any]) -> Outcome:
        """The same with other content."""
        return replace(self, result={**self.result, "content": content})

    def with_meta(self, key: str, value: Any) -> Outcome:
        """The same with one more member of ``_meta``."""
        meta = self.result.get("_meta")
        known = meta if isinstance(meta, Mapping) else {}
        return replace(self, result={**self.result, "_meta": {**known, key: value}})


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
    def worded(cls, stage: Stage, refusal: RefusalWords, reason: Reason | None = None) -> StageFailed:
        """Return the failure that a refusal words."""
        sentence, text, retry_after = refusal
        return cls(stage, sentence, reason, text=text, retry_after=retry_after)

    def meta(self) -> dict[str, Any]:
        """The part of the failure that programs read."""
        error: dict[str, Any] = {"stage": self.stage, "code": STAGE_FAILED}
        if self.reason is not None:
            error["reason"] = self.reason
        if self.retry_after is not None:
            error["retry_after"] = self.retry_after
        return error


class AuthRefused(Exception):
    """A call that its caller may not make; ``str`` is the sentence for that caller. ``retry_after`` in seconds."""

    def __init__(
        self, sentence: str, reason: Reason | None = None, *, retry_after: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.retry_after = retry_after


class CallRefused(Exception):
    """A call that is answered with a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ToolRejected(Exception):
    """The server of a tool answered with a JSON-RPC error; ``str`` is its message.

    If no stage handles it, it leaves as it came.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """The form of failures of a tool's stages, out of ``errors`` of core, server and tool."""

    mode: Mode = "result"
    expose: Expose = "message"

    def outcome(self, failed: StageFailed) -> Outcome:
        """The result that tells of a failure. Raises CallRefused in the mode ``jsonrpc``."""
        if self.mode == "jsonrpc":
            raise CallRefused(STAGE_FAILED, str(failed), failed.meta()) from failed
        content = [text_block(failed.text)]
        return Outcome({"content": content, "isError": True, "_meta": {ERROR_KEY: failed.meta()}}, final=True)
