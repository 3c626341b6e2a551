"""The failure of a planned call: a sentence for the caller, and the stage at which the call ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from adapter.rules.presenters.blocks import NO_BLOCKS, Blocks
from adapter.rules.results.exposure import Expose
from adapter.rules.results.outcomes import NOTHING, Result, payload, text_block


class Unread:
    """Data that is ``made`` anew for everybody who wants to see it, and most calls end without anybody who does."""

    __slots__ = ("made",)

    def __init__(self, made: Callable[[], Any]) -> None:
        self.made = made


@dataclass(frozen=True, slots=True)
class Outcome:
    """``result`` holds the members of a CallToolResult, those of an upstream as they came, and nobody changes it.

    ``data`` is the value that the content was written from, NOTHING where there is none or nobody knows; it may be
    Unread, so ask for ``payload``. ``blocks`` are those of the content that are not data. ``final``: a stage answered
    in the tool's stead, so that what would be made of the tool's data is not made of this.
    """

    result: Mapping[str, Any]
    data: Any = NOTHING
    blocks: Blocks = NO_BLOCKS
    final: bool = False

    @classmethod
    def of(cls, result: Result, meta: Mapping[str, Any] | None = None) -> Outcome:
        """The outcome of what a tool's code returned."""
        wire = result.wire()
        if meta:
            wire["_meta"] = dict(meta)
        return cls(wire, result.data, result.blocks)

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
        """Tell whether there is data here for mappers, presenters and all else that works on a tool's data."""
        return self.succeeded and not self.final

    @property
    def payload(self) -> Any:
        """The data that mappers and presenters see of the outcome."""
        if self.data is NOTHING:
            return payload(self.result)
        return self.data.made() if isinstance(self.data, Unread) else self.data

    def written(self, result: Result) -> Outcome:
        """The same call with content of its data written anew; other members of the result stay."""
        kept = {
            key: value
            for key, value in self.result.items()
            if key not in ("content", "structuredContent", "isError")
        }
        return Outcome({**kept, **result.wire()}, result.data, result.blocks)

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
